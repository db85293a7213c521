# Compiler options shared by every target of Tern, and the libraries Tern stands on.

include(TernLevels)

# Every include is written "tern/core/tensor.h": the link cmake/include/tern leads to the source root.
set(TERN_INCLUDE_DIR ${PROJECT_SOURCE_DIR}/cmake/include)

# What the headers must know, here and where another project uses them.
set(TERN_DEFINITIONS "")
foreach(level ${tern_all_levels})
  string(TOUPPER ${level} upper)
  if(level IN_LIST TERN_LEVELS)
    list(APPEND TERN_DEFINITIONS TERN_CPU_HAS_${upper}=1)
  else()
    list(APPEND TERN_DEFINITIONS TERN_CPU_HAS_${upper}=0)
  endif()
endforeach()

add_library(tern_options INTERFACE)
target_include_directories(tern_options INTERFACE ${TERN_INCLUDE_DIR})
target_compile_definitions(tern_options INTERFACE ${TERN_DEFINITIONS})
target_compile_options(tern_options INTERFACE
                       "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-fno-math-errno>")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(tern_options INTERFACE -Wno-unknown-pragmas)  # hints for g++'s vectoriser
endif()
if(TERN_WERROR)
  target_compile_options(tern_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(TERN_SANITIZE)
  target_compile_options(tern_options INTERFACE -fsanitize=${TERN_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer -g1)
  target_link_options(tern_options INTERFACE -fsanitize=${TERN_SANITIZE})
  # What g++ finds by following values is wrong about instrumented code (its manual says so of -fsanitize); builds
  # without a sanitizer have these warnings.
  target_compile_options(tern_options INTERFACE
                         "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-maybe-uninitialized;-Wno-restrict>"
                         "$<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow;-Wno-uninitialized>")
  if(TERN_SANITIZE MATCHES "address.*undefined")
    # Together these checks make compiling take four times as long. -O1 halves that, and so does leaving out checks of
    # UBSan that are most of its work and find what AddressSanitizer finds at the access.
    target_compile_options(tern_options INTERFACE -O1 -fno-sanitize=null,object-size,pointer-overflow,vptr)
    # The check of alignment is a quarter of the rest: only where bytes become numbers.
    target_compile_options(tern_options INTERFACE
                           "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:TERN_CHECK_ALIGNMENT>>>:-fno-sanitize=alignment>")
  endif()
endif()
if(TERN_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TERN_BUILD_FUZZ needs clang and its libFuzzer: cmake --preset fuzz")
  endif()
  target_compile_options(tern_options INTERFACE -fsanitize=fuzzer-no-link)  # what libFuzzer learns of the code's paths
endif()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(dnnl REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
set(TERN_CORE_LIBRARIES nlohmann_json::nlohmann_json ZLIB::ZLIB)
set(TERN_DATA_LIBRARIES OpenSSL::Crypto ZLIB::ZLIB nlohmann_json::nlohmann_json Threads::Threads)
if(TERN_ARCHIVES)
  find_package(LibArchive REQUIRED)
  list(APPEND TERN_DATA_LIBRARIES LibArchive::LibArchive)
endif()
if(TERN_CURL)
  find_package(CURL REQUIRED)
  list(APPEND TERN_DATA_LIBRARIES CURL::libcurl)
endif()
if(TERN_IMAGES)
  find_package(PNG REQUIRED)
  find_package(JPEG REQUIRED)
  list(APPEND TERN_DATA_LIBRARIES PNG::PNG JPEG::JPEG)
endif()
set(TERN_MODELS_LIBRARIES "")
if(TERN_ONNX)
  find_package(Protobuf REQUIRED)
  list(APPEND TERN_MODELS_LIBRARIES protobuf::libprotobuf-lite)
endif()
if(TERN_BUILD_PROGRAM)
  find_package(CLI11 REQUIRED)
  find_package(tomlplusplus REQUIRED)
  set(TERN_PROGRAM_LIBRARIES CLI11::CLI11 tomlplusplus::tomlplusplus nlohmann_json::nlohmann_json)
endif()
