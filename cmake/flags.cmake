# What every file is compiled with. The promise of equal bits rests on these flags: see docs/determinism.md.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
string(REPLACE "-O2" "-O3" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")

set(every_flag "${CMAKE_C_FLAGS} ${CMAKE_CUDA_FLAGS}")
foreach(config DEBUG RELEASE RELWITHDEBINFO MINSIZEREL)
  string(APPEND every_flag " ${CMAKE_C_FLAGS_${config}} ${CMAKE_CUDA_FLAGS_${config}}")
endforeach()
if(every_flag MATCHES "-f(fast-math|unsafe-math|finite-math-only|associative-math|reciprocal-math)|use_fast_math|-Ofast")
  message(FATAL_ERROR "raffle cannot be built with ${CMAKE_MATCH_0}: tokens would differ between machines. "
                      "Take it out of CMAKE_C_FLAGS.")
endif()

# Flags of this project's own targets; users of the library get none of them.
add_library(raffle_flags INTERFACE)
target_compile_features(raffle_flags INTERFACE c_std_11)
target_compile_options(raffle_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:-ffp-contract=off;-fno-fast-math;-Wall;-Wextra>"
  "$<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${RAFFLE_WERROR}>>:-Werror>")
if(RAFFLE_SANITIZE)
  set(sanitize -fsanitize=${RAFFLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(raffle_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${sanitize}>")
  target_link_options(raffle_flags INTERFACE -fsanitize=${RAFFLE_SANITIZE})
  # Loops copied into each of their dozen callers are for speed; under a sanitizer they take four minutes to compile.
  target_compile_options(raffle_flags INTERFACE
                         "$<$<COMPILE_LANGUAGE:C>:-DRAFFLE_FN=static inline __attribute__((unused))>")
endif()
if(RAFFLE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "RAFFLE_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
  endif()
  target_compile_options(raffle_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>")
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
