# cmake -D FROM=file -D TO=file.c -D NAME=name -P embed.cmake: a file as an array of bytes.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
get_filename_component(from ${FROM} NAME)
file(WRITE ${TO} "/* ${from}, by embed.cmake */\n#include \"embedded.h\"\n\n"
                 "const unsigned char ${NAME}[] = {\n${bytes}\n};\nconst size_t ${NAME}_bytes = sizeof ${NAME};\n")
