#pragma once
// CUDA runtime errors as exceptions. Not included by emulated kernels, which have no runtime.

#ifndef TERN_SIMT
#include <cuda_runtime_api.h>

#include "tern/kernels/base/check.h"

namespace tern::kernels::cuda::detail {

/// Errors after which every later call fails, because the context and with it all device memory is lost: those that
/// CUDA's header describes so, and uncorrectable errors of memory and links.
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
  cudaGetLastError();  // clears an error that is not sticky, so that the next call does not return it
  const std::string text = what + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemoryError(text);
  if (is_sticky(error)) fail_device(text);
  throw Error(text);
}

}  // namespace tern::kernels::cuda::detail

/// Throws with the expression, its location and CUDA's message when a runtime call fails: OutOfMemoryError, DeviceError
/// for errors after which every later call fails, otherwise Error. A macro because the message quotes the expression.
#define TERN_CUDA_CHECK(expression)                                                                            \
  do {                                                                                                         \
    if (const cudaError_t tern_error = (expression); tern_error != cudaSuccess)                                \
      ::tern::kernels::cuda::detail::fail_cuda(                                                                \
          tern_error,                                                                                          \
          ::tern::detail::concatenate(::tern::detail::base_name(__FILE__), ":", __LINE__, ": ", #expression)); \
  } while (false)
#endif
