# nvcc, the architectures and the flags of the CUDA kernels.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin REQUIRED)
endif()
# Machine code for sm_80 and sm_90a, and intermediate code that the drivers of newer GPUs compile when they load it.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "Architectures of the CUDA kernels" FORCE)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(TERN_CUDA_FLAGS --expt-relaxed-constexpr --extended-lambda --compress-mode=size)
find_package(CUDAToolkit REQUIRED)
# The runtime is built in and finds the driver when it is there; cuBLASLt and the like are loaded when they are needed.
set(TERN_CUDA_LIBRARIES CUDA::cudart_static)
if(TERN_WERROR)
  list(APPEND TERN_CUDA_FLAGS --Werror all-warnings)
endif()
