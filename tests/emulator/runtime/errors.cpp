// Names and texts of errors, equal to CUDA's: of those that the stand-in returns, and that tests let it return.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

namespace {

struct Description {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define DESCRIBE(error, text) \
  { error, #error, text }
constexpr Description kDescriptions[] = {
    DESCRIBE(cudaSuccess, "no error"),
    DESCRIBE(cudaErrorInvalidValue, "invalid argument"),
    DESCRIBE(cudaErrorMemoryAllocation, "out of memory"),
    DESCRIBE(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    DESCRIBE(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    DESCRIBE(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    DESCRIBE(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    DESCRIBE(cudaErrorInvalidDevice, "invalid device ordinal"),
    DESCRIBE(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    DESCRIBE(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    DESCRIBE(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    DESCRIBE(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    DESCRIBE(cudaErrorNotReady, "device not ready"),
    DESCRIBE(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    DESCRIBE(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    DESCRIBE(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    DESCRIBE(cudaErrorAssert, "device-side assert triggered"),
    DESCRIBE(cudaErrorHardwareStackError, "hardware stack error"),
    DESCRIBE(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    DESCRIBE(cudaErrorMisalignedAddress, "misaligned address"),
    DESCRIBE(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
    DESCRIBE(cudaErrorInvalidPc, "invalid program counter"),
    DESCRIBE(cudaErrorLaunchFailure, "unspecified launch failure"),
    DESCRIBE(cudaErrorNotPermitted, "operation not permitted"),
    DESCRIBE(cudaErrorNotSupported, "operation not supported"),
    DESCRIBE(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    DESCRIBE(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    DESCRIBE(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    DESCRIBE(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    DESCRIBE(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    DESCRIBE(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    DESCRIBE(cudaErrorStreamCaptureImplicit,
             "operation would make the legacy stream depend on a capturing blocking stream"),
    DESCRIBE(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    DESCRIBE(cudaErrorStreamCaptureWrongThread,
             "attempt to terminate a thread-local capture sequence from another thread"),
    DESCRIBE(cudaErrorUnknown, "unknown error"),
};
#undef DESCRIBE

const Description* find(cudaError_t error) {
  const auto* found = std::ranges::find(kDescriptions, error, &Description::error);
  return found == std::end(kDescriptions) ? nullptr : found;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const Description* found = find(error);
  return found ? found->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const Description* found = find(error);
  return found ? found->text : "unrecognized error code";
}

}  // extern "C"
