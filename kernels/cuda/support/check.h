#pragma once
// Errors of the CUDA runtime as exceptions. Nothing here exists in the emulated build, which has no runtime.

#ifndef TERN_SIMT
#include <cuda_runtime.h>

#include "tern/core/check.h"

namespace tern::kernels::cuda::detail {
[[noreturn]] inline void fail_cuda(cudaError_t error, const char* expression, const char* file, int line) {
  cudaGetLastError();  // an error that is not sticky must not show again at the next call
  fail(file, ":", line, ": ", expression, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
}
}  // namespace tern::kernels::cuda::detail

/// Throws tern::Error with the expression, its place and CUDA's own words when a runtime call fails. A macro because
/// the message quotes the expression.
#define TERN_CUDA_CHECK(expression)                                                          \
  do {                                                                                       \
    if (const cudaError_t tern_error = (expression); tern_error != cudaSuccess)              \
      ::tern::kernels::cuda::detail::fail_cuda(tern_error, #expression, __FILE__, __LINE__); \
  } while (false)
#endif
