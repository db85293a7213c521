# Tests of kernels that are instantiated over targets (kernels/contracts/target.h), and what these targets need.

# What the contracts of kernels run on (kernels/contracts/target.h), besides the CPU: in a build with CUDA a GPU, else the
# emulator and, where NVIDIA's headers are, the stand-in for its runtime. Tests in emulated have the emulator alone.
foreach(name tern_contract tern_contract_simt tern_contract_cpu)
  if(NOT name STREQUAL "tern_contract_cpu" AND NOT TERN_EMULATOR AND NOT TERN_CUDA)
    continue()
  endif()
  add_library(${name} STATIC kernels/contracts/target.cpp)
  target_link_libraries(${name} PUBLIC tern_options tern_kernels PRIVATE GTest::gtest)
  if(TERN_CUDA AND name STREQUAL "tern_contract")
    target_link_libraries(${name} PUBLIC tern_device ${TERN_CUDA_LIBRARIES})
  elseif(name STREQUAL "tern_contract_cpu")
    target_link_libraries(${name} PUBLIC tern_device)
  else()
    target_compile_definitions(${name} PRIVATE TERN_TARGET_EMULATED=1)
    target_link_libraries(${name} PUBLIC $<LINK_ONLY:tern_simt_kernels> $<LINK_ONLY:tern_simt>)
  endif()
endforeach()
if(TARGET tern_contract AND (TERN_CUDA OR TERN_CUDA_HEADERS))
  target_compile_definitions(tern_contract PRIVATE TERN_TARGET_DEVICE=1)
  target_include_directories(tern_contract SYSTEM PRIVATE ${TERN_CUDA_HEADERS})
endif()
if(TERN_CUDA_HEADERS AND TERN_EMULATOR AND NOT TERN_CUDA)
  target_link_libraries(tern_contract PUBLIC $<LINK_ONLY:tern_cuda_host> $<LINK_ONLY:tern_simt_kernels> $<LINK_ONLY:tern_standin>)
endif()

# A test of kernels that is instantiated over targets (kernels/contracts/target.h); other tests run on the CPU alone.
function(tern_kernel_test target source)
  file(STRINGS ${source} contract REGEX "^INSTANTIATE_TEST_SUITE_P.*_targets")
  if(NOT contract)
    target_link_libraries(${target} PRIVATE tern_kernels tern_device)
    return()
  endif()
  file(STRINGS ${source} products REGEX "contracts/(gemm|convolution)\\.h")
  # CUDA's products are host code, which needs NVIDIA's headers.
  if(NOT TERN_CUDA AND (NOT TERN_EMULATOR OR (products AND NOT TERN_CUDA_HEADERS)))
    target_link_libraries(${target} PRIVATE tern_contract_cpu)
  else()
    target_link_libraries(${target} PRIVATE tern_contract)
  endif()
  set_property(GLOBAL APPEND PROPERTY TERN_CONTRACT_TESTS ${target})
  if(TERN_CUDA)  # one of those that bench/gpu/check.sh runs
    set_target_properties(${target} PROPERTIES OUTPUT_NAME cuda_${target})
  endif()
endfunction()

