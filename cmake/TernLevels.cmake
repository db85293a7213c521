# TERN_LEVELS: the x86-64 levels that TERN_CPU_LEVELS stands for. `machine` is resolved whenever CMake runs, because a
# build folder may move to another machine.

set(tern_all_levels v2 v3 v4)

# Flags in /proc/cpuinfo of a processor that has the level, besides those of the levels before it. When a program
# starts, kernels/base/cpu_level.cpp reads cpuid.
set(tern_flags_v2 cx16 popcnt sse4_1 sse4_2 ssse3)
set(tern_flags_v3 abm avx avx2 bmi1 bmi2 f16c fma movbe)
set(tern_flags_v4 avx512bw avx512cd avx512dq avx512f avx512vl)

function(tern_machine_level variable)
  set(info "")
  if(EXISTS /proc/cpuinfo)
    file(READ /proc/cpuinfo info LIMIT 16384)
  endif()
  string(REGEX MATCH "\nflags[ \t]*:([^\n]*)" line "${info}")
  string(REPLACE " " ";" flags "${CMAKE_MATCH_1}")
  set(found "")
  foreach(level ${tern_all_levels})
    foreach(flag ${tern_flags_${level}})
      if(NOT flag IN_LIST flags)
        set(${variable} "${found}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
    set(found ${level})
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

set(TERN_LEVELS "")
foreach(level ${TERN_CPU_LEVELS})
  if(level STREQUAL "machine")
    tern_machine_level(level)
    if(NOT level)
      message(FATAL_ERROR "TERN_CPU_LEVELS=machine: /proc/cpuinfo shows no processor with x86-64-v2 (SSE4.2), the least "
                          "that Tern runs on; for another machine name the levels: -DTERN_CPU_LEVELS=\"v2;v3;v4\"")
    endif()
    message(STATUS "CPU kernels: ${level}, the level of this machine; all levels: -DTERN_CPU_LEVELS=\"v2;v3;v4\"")
  elseif(NOT level IN_LIST tern_all_levels)
    message(FATAL_ERROR "TERN_CPU_LEVELS: expected machine or a list of v2, v3 and v4, got \"${TERN_CPU_LEVELS}\"")
  endif()
  list(APPEND TERN_LEVELS ${level})
endforeach()
list(REMOVE_DUPLICATES TERN_LEVELS)
if(NOT TERN_LEVELS)
  message(FATAL_ERROR "TERN_CPU_LEVELS is empty: expected machine or a list of v2, v3 and v4")
endif()
