#include "tern/kernels/cuda/support/cudnn_info.h"

#if __has_include(<cudnn.h>)
#include "tern/kernels/cuda/support/check.h"
#include "tern/kernels/cuda/support/cudnn.h"
#endif

namespace tern::kernels::cuda {

// Never destroyed: destructors of other static objects may still compute.
SharedLibrary& cudnn_library() {
  static SharedLibrary& instance =
      *new SharedLibrary({"cuDNN",
                          "convolutions, recurrent layers, and attention where --autotune chooses it",
                          {"libcudnn.so.9"},
                          "package libcudnn9-cuda-13, or nvidia-cudnn-cu13 from pip",
                          "TERN_CUDNN",
                          "cudnnGetVersion",
                          [](void* probe) { return dotted_version(reinterpret_cast<size_t (*)()>(probe)()); }});
  return instance;
}

const LibraryInfo& cudnn_info() { return cudnn_library().info(); }

#if __has_include(<cudnn.h>)

const Cudnn& cudnn() {
  static const Cudnn functions{};  // retried after a failure
  return functions;
}

namespace detail {
void fail_cudnn(cudnnStatus_t status, const std::string& what) {
  char words[512] = {};
  cudnn().GetLastErrorString(words, sizeof words);
  const std::string text =
      tern::detail::concatenate(what, ": ", cudnn().GetErrorString(status), words[0] ? ": " : "", words);
  if (const cudaError_t error = cudaPeekAtLastError(); is_sticky(error)) fail_cuda(error, text);
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    cudaGetLastError();  // that of the allocation, which the next call of CUDA would return
    throw OutOfMemoryError(text);
  }
  fail(text);
}
}  // namespace detail

#endif

}  // namespace tern::kernels::cuda
