#pragma once
// Errors of the CUDA runtime as exceptions. The emulated kernels do not see it: they have no runtime.

#ifndef TERN_SIMT
#include <cuda_runtime_api.h>

#include "tern/core/check.h"

namespace tern::kernels::cuda::detail {

/// Errors after which every later call fails: the context is lost, and with it all device memory. Those of which CUDA's
/// header says so, and of memory and links that cannot be corrected.
inline bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

[[noreturn]] inline void fail_cuda(cudaError_t error, const std::string& what) {
  cudaGetLastError();  // an error that is not sticky must not show again at the next call
  const std::string text = what + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemoryError(text);
  if (is_sticky(error)) fail_device(text);
  throw Error(text);
}

}  // namespace tern::kernels::cuda::detail

/// Throws with the expression, its place and CUDA's own words when a runtime call fails: OutOfMemoryError, DeviceError
/// for errors that no later call survives, otherwise Error. A macro because the message quotes the expression.
#define TERN_CUDA_CHECK(expression)                                                                            \
  do {                                                                                                         \
    if (const cudaError_t tern_error = (expression); tern_error != cudaSuccess)                                \
      ::tern::kernels::cuda::detail::fail_cuda(                                                                \
          tern_error,                                                                                          \
          ::tern::detail::concatenate(::tern::detail::base_name(__FILE__), ":", __LINE__, ": ", #expression)); \
  } while (false)
#endif
