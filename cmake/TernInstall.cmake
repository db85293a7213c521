# cmake --install: the libraries and their headers, so that find_package(Tern) gives Tern::tern and Tern::bench, and the
# program. Nothing in what is installed names a folder of this machine: libraries are found relative to each other,
# headers relative to the package file, so that the folder may be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tern)
set(libraries tern ${TERN_KERNEL_LIBRARIES})
foreach(library ${TERN_KERNEL_LIBRARIES})
  string(REGEX REPLACE "^tern_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${libraries} EXPORT TernTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
target_include_directories(tern INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(tern_benchmarks PROPERTIES EXPORT_NAME bench)
install(TARGETS tern_benchmarks EXPORT TernTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
list(APPEND libraries tern_benchmarks)
if(TARGET tern_mpi)  # loaded at run time, from the folder of libtern.so
  install(TARGETS tern_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  list(APPEND libraries tern_mpi)
endif()
set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "\$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON
                      BUILD_WITH_INSTALL_RPATH ON)
if(TARGET tern_program)
  install(TARGETS tern_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(RELATIVE_PATH from_program /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(tern_program PROPERTIES INSTALL_RPATH "\$ORIGIN/${from_program}" INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# The names of local functions are a tenth of an installed library. Other build types keep them.
foreach(target ${libraries} tern_program)
  if(TARGET ${target})
    target_link_options(${target} PRIVATE $<$<CONFIG:Release>:-Wl,--discard-all>)
  endif()
endforeach()

install(EXPORT TernTargets NAMESPACE Tern:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TernConfig.cmake.in ${PROJECT_BINARY_DIR}/TernConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TernConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TernConfig.cmake ${PROJECT_BINARY_DIR}/TernConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/data/assets/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME EMBEDDED_DATA.md)

# The public headers are those that tern.h and bench/benchmark.h reach, that of the C API, and one for users of Eigen;
# with CUDA also those of a file with the kernels of an op.
set(TERN_PUBLIC_HEADERS tern.h tern_c.h bench/benchmark.h core/interop/eigen.h)
if(TERN_CUDA)
  list(APPEND TERN_PUBLIC_HEADERS kernels/cuda/pointwise/kernel.h)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/TernInstallHeaders.cmake.in ${PROJECT_BINARY_DIR}/TernInstallHeaders.cmake
               @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/TernInstallHeaders.cmake)
