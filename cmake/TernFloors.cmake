# One library per floor: tern_<name> from <name>/**/*.cpp, except dist/mpi/library (a shared object that is loaded when
# needed), models/cli (the program) and the folders named cuda, no_cuda and without. The floors are compiled the same
# way with and without CUDA; a program is linked with
#   tern_cuda     core/cuda, dist/cuda and the kernels, where TERN_CUDA is on
#   tern_no_cuda  core/no_cuda, dist/no_cuda, where it is off: no CUDA device can be used
#   tern_cuda     with the emulated kernels and the stand-in runtime of the tests, where the program's property
#                 TERN_EMULATED_CUDA is on
# The library for other projects, Tern::tern, is one shared object of all floors and of tern_cuda or tern_no_cuda. With
# TERN_SHARED the programs of this build are linked with it too, under the same target names, so that a folder of many
# programs holds it once.

# Files that an option leaves out, and what takes their place.
set(tern_parts TERN_CURL TERN_ARCHIVES TERN_IMAGES TERN_ONNX)
set(tern_sources_TERN_CURL data/files/http.cpp)
set(tern_sources_TERN_ARCHIVES data/files/archive.cpp)
set(tern_sources_TERN_IMAGES data/images/jpeg.cpp data/images/png.cpp)
set(tern_sources_TERN_ONNX models/onnx/model_file.cpp models/onnx/export/model_writer.cpp)
set(tern_without_TERN_CURL data/without/http.cpp)
set(tern_without_TERN_ARCHIVES data/without/archive.cpp)
set(tern_without_TERN_IMAGES data/without/images.cpp)
set(tern_without_TERN_ONNX models/without/onnx.cpp)

function(tern_floor_sources name variable)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/mpi/library/|/models/cli/|/cuda/|/no_cuda/|/(data|models)/without/")
  foreach(part ${tern_parts})
    if(NOT "${tern_without_${part}}" MATCHES "^${name}/")
      continue()
    endif()
    list(TRANSFORM tern_sources_${part} PREPEND ${PROJECT_SOURCE_DIR}/)
    set_source_files_properties(${tern_sources_${part}} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # a test replaces them
    if(NOT ${part})
      list(REMOVE_ITEM sources ${tern_sources_${part}})
      list(APPEND sources ${PROJECT_SOURCE_DIR}/${tern_without_${part}})
    endif()
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# With TERN_FAST_BUILD the headers of the standard library that most files include are compiled once, with the floor
# core, and the files of a floor several at a time. .ci/nightly builds without it too, which shows that every file
# includes what it needs.
set(TERN_PCH_HEADERS algorithm array atomic chrono cmath condition_variable cstdint cstring deque filesystem functional
    limits map memory mutex numeric optional set span sstream stdexcept string string_view thread unordered_map utility
    vector)
list(TRANSFORM TERN_PCH_HEADERS REPLACE "(.+)" "<\\1>")

# Compiles the standard library's headers once for all floors. models and the program are compiled at -O1, because they
# only call the code that computes. They need a second precompiled header: g++ 12 ignores the -O option of a command and
# uses the level that the precompiled header was made with.
function(tern_precompile target)
  if(target STREQUAL tern_cli AND TERN_SANITIZE MATCHES "thread")
    return()  # g++ 12 ends with an internal error
  endif()
  if(target MATCHES "^tern_(models|cli)" AND TERN_FAST_BUILD)
    if(TERN_OBJECTS_models)
      target_precompile_headers(${target} REUSE_FROM ${TERN_OBJECTS_models})
    else()
      target_precompile_headers(${target} PRIVATE ${TERN_PCH_HEADERS} <nlohmann/json.hpp>)
    endif()
  elseif(TERN_OBJECTS_core)
    target_precompile_headers(${target} REUSE_FROM ${TERN_OBJECTS_core})
  else()
    target_precompile_headers(${target} PRIVATE ${TERN_PCH_HEADERS})
  endif()
endfunction()

function(tern_build_fast target)
  if(NOT TERN_FAST_BUILD)
    return()
  endif()
  set(files 8)
  if(target MATCHES "^tern_(models|cli)")
    set(files 16)
  elseif(NOT TERN_OBJECTS_core)  # core itself: an edit of one of its files is to be compiled within seconds
    set(files 3)
    set_source_files_properties(core/io/json.cpp core/io/safetensors.cpp core/io/state_file.cpp
                                core/profiler/report.cpp PROPERTIES
                                SKIP_UNITY_BUILD_INCLUSION ON)  # each takes as long as three others
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # takes the included .cpp files for headers
  endif()
  if(PROJECT_IS_TOP_LEVEL)  # never built: gives compile_commands.json an entry for each file
    get_target_property(sources ${target} SOURCES)
    add_library(${target}_files OBJECT EXCLUDE_FROM_ALL ${sources})
    foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
      set_target_properties(${target}_files PROPERTIES ${property} $<TARGET_PROPERTY:${target},${property}>)
    endforeach()
  endif()
  tern_precompile(${target})
endfunction()

# Sets TERN_OBJECTS_<name> to the target that compiles the floor.
function(tern_floor name)
  cmake_parse_arguments(FLOOR "" "" "DEPENDS;LIBRARIES" ${ARGN})
  tern_floor_sources(${name} sources)
  set(below ${FLOOR_DEPENDS})
  if(TERN_SHARED)
    set(objects tern_${name}_objects)
    add_library(${objects} OBJECT ${sources})
    add_library(tern_${name} INTERFACE)
    target_link_libraries(tern_${name} INTERFACE tern tern_options ${FLOOR_LIBRARIES})
    foreach(floor ${FLOOR_DEPENDS})
      target_link_libraries(tern_${name} INTERFACE tern_${floor})
    endforeach()
    list(TRANSFORM below REPLACE "(.+)" "tern_\\1_objects")
  else()
    set(objects tern_${name})
    add_library(${objects} STATIC ${sources})
    list(TRANSFORM below PREPEND tern_)
    if(NOT FLOOR_DEPENDS)
      list(APPEND below tern_kernels)
    endif()
    list(APPEND below tern_device)
  endif()
  target_link_libraries(${objects} PUBLIC tern_options ${below} ${FLOOR_LIBRARIES})
  if(TERN_SANITIZE STREQUAL "thread")
    target_compile_options(${objects} PRIVATE -O1)  # a quarter less work for the compiler than -O2
  endif()
  if(name STREQUAL "models")
    target_compile_options(${objects} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(name MATCHES "^(core|data)$")
    set_target_properties(${objects} PROPERTIES TERN_CHECK_ALIGNMENT ON)
  endif()
  tern_build_fast(${objects})
  set(TERN_OBJECTS_${name} ${objects} PARENT_SCOPE)
  set_property(GLOBAL APPEND PROPERTY TERN_FLOOR_OBJECTS ${objects})
  set_property(GLOBAL APPEND PROPERTY TERN_FLOOR_LIBRARIES ${FLOOR_LIBRARIES})
endfunction()

# The floors' CUDA functions: tern_no_cuda, and tern_cuda where NVIDIA's headers are installed.
function(tern_cuda_floor)
  file(GLOB no_cuda CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/no_cuda/*.cpp ${PROJECT_SOURCE_DIR}/dist/no_cuda/*.cpp)
  add_library(tern_no_cuda STATIC ${no_cuda})
  target_link_libraries(tern_no_cuda PRIVATE tern_options)
  if(NOT TERN_CUDA_HEADERS)
    return()
  endif()
  file(GLOB cuda CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/cuda/*.cpp ${PROJECT_SOURCE_DIR}/dist/cuda/*.cpp)
  set(architectures 80-real,90a-real)  # reported by the emulated device
  if(TERN_CUDA)
    string(REPLACE ";" "," architectures "${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/core/cuda/device.cpp PROPERTIES COMPILE_DEFINITIONS
                              "TERN_CUDA_ARCHITECTURES=\"${architectures}\"")
  add_library(tern_cuda STATIC ${cuda})
  target_link_libraries(tern_cuda PRIVATE tern_options tern_cuda_host)
  if(TERN_CUDA)
    target_link_libraries(tern_cuda PRIVATE tern_cuda_kernels ${TERN_CUDA_LIBRARIES})
  else()  # for tests alone
    set_target_properties(tern_cuda tern_cuda_host PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(NOT TERN_SHARED)
    target_link_libraries(tern_cuda PRIVATE tern_dist)
  endif()
endfunction()

# After the floors: tern_device, with which the programs of this build are linked, and the library for other projects.
function(tern_library)
  tern_cuda_floor()
  get_property(parts GLOBAL PROPERTY TERN_FLOOR_OBJECTS)
  get_property(libraries GLOBAL PROPERTY TERN_FLOOR_LIBRARIES)
  set(definitions ${TERN_DEFINITIONS})
  add_library(tern_device INTERFACE)
  if(TERN_CUDA)
    list(APPEND parts tern_cuda tern_cuda_host tern_cuda_kernels)
    list(APPEND libraries ${TERN_CUDA_LIBRARIES})
    # Files that use Tern may have kernels for their ops (kernels/cuda/pointwise/kernel.h).
    list(APPEND definitions TERN_CUDA)
    target_compile_definitions(tern_models INTERFACE TERN_CUDA)
    set(device tern_cuda)
  else()
    list(APPEND parts tern_no_cuda)
    set(device $<IF:$<BOOL:$<TARGET_PROPERTY:TERN_EMULATED_CUDA>>,tern_emulated_cuda,tern_no_cuda>)
  endif()
  if(TERN_SHARED)
    set(device tern)
  endif()
  target_link_libraries(tern_device INTERFACE ${device})

  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  list(REMOVE_DUPLICATES libraries)
  add_library(tern SHARED ${objects})
  add_library(Tern::tern ALIAS tern)
  set_target_properties(tern PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(tern SYSTEM INTERFACE $<BUILD_INTERFACE:${TERN_INCLUDE_DIR}>)
  target_compile_features(tern INTERFACE cxx_std_20)
  target_compile_definitions(tern INTERFACE ${definitions})
  # Calls within the library never use a program's copy of an inline function, which may be compiled without
  # optimisation or for another processor.
  target_link_options(tern PRIVATE -Wl,-Bsymbolic-functions)
  if(NOT TERN_SANITIZE)  # the program defines the sanitizer's functions
    target_link_options(tern PRIVATE -Wl,-z,defs)
  endif()
  target_link_libraries(tern PUBLIC ${TERN_KERNEL_LIBRARIES} PRIVATE tern_options ${libraries} ${CMAKE_DL_LIBS})
endfunction()
