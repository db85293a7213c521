# One library per floor of the house: tern_<name> from <name>/**/*.cpp, except dist/mpi/library, a shared object of its
# own, models/cli, which is the program's, and the folders named cuda and no_cuda. The floors are compiled without knowing
# of CUDA; a program is linked with
#   tern_cuda     core/cuda, dist/cuda and the kernels, where TERN_CUDA is on
#   tern_no_cuda  core/no_cuda, dist/no_cuda, where it is off: nothing of CUDA can be used
#   tern_cuda     and the emulated kernels and the stand-in runtime of the tests, where the program's property
#                 TERN_EMULATED_CUDA is on
# With TERN_SHARED (which needs TERN_CUDA) the floors are shared libraries, and so is tern_cuda with all that it consists
# of and CUDA's runtime: a folder of many programs holds them once. A floor then calls what the program is linked with.

function(tern_floor_sources name variable)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/mpi/library/|/models/cli/|/cuda/|/no_cuda/")
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

function(tern_floor name)
  cmake_parse_arguments(FLOOR "" "" "DEPENDS;LIBRARIES" ${ARGN})
  tern_floor_sources(${name} sources)
  set(kind PUBLIC)
  if(sources AND TERN_SHARED)
    add_library(tern_${name} SHARED ${sources})
    set_target_properties(tern_${name} PROPERTIES DEFINE_SYMBOL "")  # objects as of a static library: ccache has them
  elseif(sources)
    add_library(tern_${name} STATIC ${sources})
  else()
    add_library(tern_${name} INTERFACE)
    set(kind INTERFACE)
  endif()
  target_link_libraries(tern_${name} ${kind} tern_options)
  foreach(floor ${FLOOR_DEPENDS})
    target_link_libraries(tern_${name} ${kind} tern_${floor})
  endforeach()
  target_link_libraries(tern_${name} ${kind} tern_device)
  target_link_libraries(tern_${name} ${kind} ${FLOOR_LIBRARIES})
endfunction()

# After the floors: what they ask of CUDA, as tern_device.
function(tern_device_libraries)
  file(GLOB no_cuda CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/no_cuda/*.cpp ${CMAKE_SOURCE_DIR}/dist/no_cuda/*.cpp)
  add_library(tern_no_cuda STATIC ${no_cuda})
  target_link_libraries(tern_no_cuda PRIVATE tern_options)
  if(TERN_CUDA_HEADERS)
    file(GLOB cuda CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/cuda/*.cpp ${CMAKE_SOURCE_DIR}/dist/cuda/*.cpp)
    set(architectures 80-real,90a-real)  # what the emulated device is told
    if(TERN_CUDA)
      string(REPLACE ";" "," architectures "${CMAKE_CUDA_ARCHITECTURES}")
    endif()
    set_source_files_properties(${CMAKE_SOURCE_DIR}/core/cuda/device.cpp PROPERTIES COMPILE_DEFINITIONS
                                "TERN_CUDA_ARCHITECTURES=\"${architectures}\"")
    if(TERN_SHARED)
      # Programs that stop at core have no dist: what of it is for CUDA goes there.
      set(dist_cuda ${cuda})
      list(FILTER dist_cuda INCLUDE REGEX "/dist/")
      list(FILTER cuda EXCLUDE REGEX "/dist/")
      target_sources(tern_dist PRIVATE ${dist_cuda})
      target_include_directories(tern_dist SYSTEM PRIVATE ${TERN_CUDA_HEADERS})
      add_library(tern_cuda SHARED ${cuda} $<TARGET_OBJECTS:tern_cuda_host> $<TARGET_OBJECTS:tern_cuda_kernels>)
      set_target_properties(tern_cuda PROPERTIES DEFINE_SYMBOL "" LINKER_LANGUAGE CXX)
      target_include_directories(tern_cuda SYSTEM PRIVATE ${TERN_CUDA_HEADERS})
      target_link_libraries(tern_cuda PRIVATE tern_options tern_base ${TERN_CUDA_LIBRARIES} ${CMAKE_DL_LIBS})
    else()
      add_library(tern_cuda STATIC ${cuda})
      target_link_libraries(tern_cuda PRIVATE tern_options tern_cuda_host tern_dist)
    endif()
  endif()
  add_library(tern_device INTERFACE)
  if(TERN_CUDA)
    if(NOT TERN_SHARED)
      target_link_libraries(tern_cuda PRIVATE tern_cuda_kernels ${TERN_CUDA_LIBRARIES})
    endif()
    target_link_libraries(tern_device INTERFACE tern_cuda)
  else()
    target_link_libraries(tern_device INTERFACE
                          $<IF:$<BOOL:$<TARGET_PROPERTY:TERN_EMULATED_CUDA>>,tern_emulated_cuda,tern_no_cuda>)
  endif()
endfunction()
