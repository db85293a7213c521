# How tests are compiled: their options, and headers that are compiled once for many of them.

# Calls that are expected to throw give no result.
add_compile_options(-O1 $<$<COMPILE_LANGUAGE:CXX>:-Wno-unused-result>)

# GCC would replace the relative names of headers, which ccache makes, by absolute ones where these are shorter. Programs
# that are carried must not contain them (bench/gpu/bundle.sh).
if(TERN_CUDA AND TERN_SHARED AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-canonical-system-headers>)
endif()

# A test's own code is compiled without optimisation, in three quarters of the time and under AddressSanitizer in half of
# it, and there without UBSan. Not so where its loops would take longer than that saves: in these tests without a
# sanitizer, and with ThreadSanitizer, which watches every local variable. What a test tests keeps its options.
set(TERN_LOOP_TESTS
    core_allocator_random_test
    core_pickle_test
    core_torch_file_test
    data_delimited_test
    data_tokenizer_test
    emulator_cudnn_attention_test
    emulator_cudnn_convolution_test
    kernels_attention_test
    kernels_convolution_test
    kernels_copy_test
    kernels_embedding_test
    kernels_gemm_split_test
    kernels_gemm_test
    kernels_norm_test
    kernels_optimizer_test
    kernels_pointwise_test
    kernels_reduce_test
    kernels_sort_test)
set(tern_own_options -O0)
if(TERN_SANITIZE MATCHES "address.*undefined")
  list(APPEND tern_own_options -fno-sanitize=undefined)
elseif(TERN_SANITIZE MATCHES "thread")
  set(tern_own_options -O1)
endif()
function(tern_test_options target source)
  if(target IN_LIST TERN_LOOP_TESTS AND NOT TERN_SANITIZE)
    return()
  endif()
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${tern_own_options}")
  if(TARGET tern_test_ops_pch AND target MATCHES "^(core|nn|optim|models|cuda)_")
    target_precompile_headers(${target} REUSE_FROM tern_test_ops_pch)
  elseif(TARGET tern_test_pch AND NOT target MATCHES "^(emulated|emulator)_")  # tern_simt includes another header first
    target_precompile_headers(${target} REUSE_FROM tern_test_pch)
  endif()
endfunction()
# The precompiled headers of those tests: of the libraries, and for tests of tensors those of core's ops too. They work
# only for files that are compiled with the same options.
function(tern_test_pch name)  # HEADER...
  set(source ${CMAKE_CURRENT_BINARY_DIR}/pch.cpp)
  file(WRITE ${source} "int main() {}\n")
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE tern_options GTest::gtest)
  target_compile_options(${name} PRIVATE ${tern_own_options})
  target_precompile_headers(${name} PRIVATE ${TERN_PCH_HEADERS} <gtest/gtest.h> ${ARGN})
endfunction()
if(TERN_FAST_BUILD)
  tern_test_pch(tern_test_pch)
  tern_test_pch(tern_test_ops_pch ${PROJECT_SOURCE_DIR}/cmake/include/tern/core/ops/ops.h
                ${PROJECT_SOURCE_DIR}/cmake/include/tern/core/autograd/autocast.h)
endif()

