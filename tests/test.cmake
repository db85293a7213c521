# tern_test(FLOOR [LIBRARY...]) makes the tests of a floor, and tern_not_built() the entries of those that cannot be.

# The seconds that a test may take. With a sanitizer a program takes 2 to 30 times as long.
function(tern_timeout test seconds)
  if(TERN_SANITIZE)
    math(EXPR seconds "${seconds} * 10")
  endif()
  set_tests_properties(${test} PROPERTIES TIMEOUT ${seconds})
endfunction()

# Open MPI leaks, in part by components that it has unloaded at the end: AddressSanitizer needs whole stacks to find Open
# MPI in them (lsan.supp).
set(TERN_WITH_MPI ENVIRONMENT_MODIFICATION ASAN_OPTIONS=path_list_append:fast_unwind_on_malloc=0)

# The stand-in for NVIDIA's runtime reports an access to memory that is not there from its handler of SIGSEGV, on the
# thread that made the access: it may allocate.
set(TERN_WITH_STANDIN ENVIRONMENT_MODIFICATION TSAN_OPTIONS=path_list_append:report_signal_unsafe=0)

# A test that cannot be built here stays in ctest's list, disabled, and tests/run.sh counts its cases by its source. The
# reason starts with one of the names in tests/run.sh.
function(tern_not_built name source reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E false)
  set_tests_properties(${name} PROPERTIES DISABLED TRUE)
  set_property(GLOBAL APPEND_STRING PROPERTY TERN_NOT_BUILT "${name}\t${source}\t${reason}\n")
endfunction()

function(tern_absent_tests floor sources reason)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    tern_not_built(${floor}_${name} ${source} "${reason}")
  endforeach()
endfunction()

function(tern_test floor)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${floor}/*.cpp)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    set(target ${floor}_${name})
    tern_left_out(${target} reason)
    if(reason)
      tern_not_built(${target} ${source} "${reason}")
      if(name MATCHES "_slow_test$")
        set_tests_properties(${target} PROPERTIES LABELS slow)
      endif()
      continue()
    endif()
    add_executable(${target} ${source})
    tern_test_options(${target} ${source})
    if(floor STREQUAL "program")  # runs the built program; the libraries are for its checks
      target_link_libraries(${target} PRIVATE tern_models)
      target_compile_definitions(${target} PRIVATE TERN_PROGRAM="$<TARGET_FILE_NAME:tern_program>")
      add_dependencies(${target} tern_program)
    elseif(floor STREQUAL "kernels")
      tern_kernel_test(${target} ${source})
    elseif(TARGET tern_${floor})
      target_link_libraries(${target} PRIVATE tern_${floor})
    endif()
    target_link_libraries(${target} PRIVATE ${ARGN} tern_test_main)
    add_test(NAME ${target} COMMAND ${target})
    tern_timeout(${target} 600)
    # On a fresh clone ctest has no recorded times: the long ones first, so that none is left to one core at the end.
    if(floor STREQUAL "program")
      set_tests_properties(${target} PROPERTIES COST 30)
      if(name MATCHES "^launch_")
        set_tests_properties(${target} PROPERTIES ${TERN_WITH_MPI})
      endif()
    elseif(floor STREQUAL "emulated")
      set_tests_properties(${target} PROPERTIES COST 10)
    endif()
    get_property(contracts GLOBAL PROPERTY TERN_CONTRACT_TESTS)
    if(target IN_LIST contracts)
      set_tests_properties(${target} PROPERTIES COST 20 ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/lib/standin
                                                ${TERN_WITH_STANDIN})
    endif()
    if(name MATCHES "_slow_test$")
      set_tests_properties(${target} PROPERTIES LABELS slow)
      tern_timeout(${target} 7200)
      add_dependencies(tern_slow_tests ${target})
    else()
      add_dependencies(tern_tests ${target})
    endif()
    file(STRINGS ${source} golden REGEX "source_dir\\(\\)")
    if(golden AND NOT floor STREQUAL "program")
      add_dependencies(tern_golden_tests ${target})
    endif()
    if(target IN_LIST TERN_SANITIZE_TESTS)
      set_property(TEST ${target} APPEND PROPERTY LABELS sanitize)
      add_dependencies(tern_sanitize_tests ${target})
    endif()
  endforeach()
endfunction()

