# Compiler options shared by every target, and the libraries Tern stands on.

add_library(tern_options INTERFACE)
target_include_directories(tern_options INTERFACE ${CMAKE_BINARY_DIR}/include)
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
  if(TERN_SANITIZE MATCHES "address.*undefined")
    # Together these checks take the compiler four times as long: -O1 halves that, and so does leaving out those of
    # UBSan that are half of its work and tell of what AddressSanitizer sees at the access.
    target_compile_options(tern_options INTERFACE -O1 -fno-sanitize=null,object-size,vptr)
  endif()
endif()
if(TERN_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TERN_BUILD_FUZZ needs clang and its libFuzzer: cmake --preset fuzz")
  endif()
  target_compile_options(tern_options INTERFACE -fsanitize=fuzzer-no-link)  # what libFuzzer learns of the code's paths
endif()
foreach(level v2 v3 v4)
  string(TOUPPER ${level} upper)
  if(level IN_LIST TERN_CPU_LEVELS)
    target_compile_definitions(tern_options INTERFACE TERN_CPU_HAS_${upper}=1)
  else()
    target_compile_definitions(tern_options INTERFACE TERN_CPU_HAS_${upper}=0)
  endif()
endforeach()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(dnnl REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(LibArchive REQUIRED)
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
set(TERN_CORE_LIBRARIES nlohmann_json::nlohmann_json ZLIB::ZLIB)
set(TERN_DATA_LIBRARIES LibArchive::LibArchive CURL::libcurl OpenSSL::Crypto PNG::PNG JPEG::JPEG nlohmann_json::nlohmann_json
    Threads::Threads)
set(TERN_PROGRAM_LIBRARIES CLI11::CLI11 tomlplusplus::tomlplusplus nlohmann_json::nlohmann_json)
