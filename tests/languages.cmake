# The languages that programs of the C API are written in, where there are compilers. No part of the library is.

include(CheckLanguage)
check_language(C)
if(CMAKE_C_COMPILER)
  enable_language(C)
endif()
check_language(Fortran)
if(CMAKE_Fortran_COMPILER)
  enable_language(Fortran)
endif()
