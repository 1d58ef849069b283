# cmake -D PROGRAM=file -D NAME=name -P run.cmake: runs an example and counts it the way tests/run.py wants it.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
message("${said}")
if(NOT status EQUAL 0)
  message("${NAME}: 0 passed, 1 failed")
  message(FATAL_ERROR "${NAME} ended with ${status}")
endif()
message("${NAME}: 1 passed, 0 failed")
