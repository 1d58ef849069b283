# How tests are declared.

foreach(label arm asan tsan cuda) # the ones that tests/run.py builds
  add_custom_target(tests_${label})
endforeach()

# raffle_test(NAME SOURCES... [LIBRARIES ...] [LABELS ...] [COST n]): a C program that may look inside the
# library. It ends with the line "NAME: N passed, N failed", exit status 0 if none failed. Labels say where
# else it runs: arm (cross-compiled, under qemu), asan, tsan, cuda (needs a GPU), long (only in test-long).
# `cmake --build DIR --target tests_LABEL` builds the tests of a label.
function(raffle_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "COST" "SOURCES;LIBRARIES;LABELS;ARGUMENTS")
  add_executable(${name} ${test_SOURCES} ${test_UNPARSED_ARGUMENTS})
  set(src ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${src}/core ${src}/cpu ${src}/math)
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} raffle_static raffle_flags m)
  add_test(NAME ${name} COMMAND ${name} ${test_ARGUMENTS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${test_LABELS}" SKIP_RETURN_CODE 77)
  foreach(label ${test_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
  if(test_COST)
    set_tests_properties(${name} PROPERTIES COST ${test_COST})
  endif()
endfunction()
