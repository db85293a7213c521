#include "tern/kernels/cuda/cudnn_attention.h"

#if __has_include(<cudnn.h>)
#include "tern/kernels/cuda/support/check.h"
#include "tern/kernels/cuda/support/cudnn.h"
#endif

namespace tern::kernels::cuda {
namespace {

// Never destroyed: destructors of other static objects may still compute.
SharedLibrary& library() {
  static SharedLibrary& instance =
      *new SharedLibrary({"cuDNN",
                          "fused attention chosen by --autotune",
                          {"libcudnn.so.9"},
                          "package libcudnn9-cuda-13, or nvidia-cudnn-cu13 from pip",
                          "TERN_CUDNN",
                          "cudnnGetVersion",
                          [](void* probe) { return dotted_version(reinterpret_cast<size_t (*)()>(probe)()); }});
  return instance;
}

}  // namespace

const LibraryInfo& cudnn_info() { return library().info(); }

#if __has_include(<cudnn.h>)

namespace {

Cudnn find_functions() {
  Cudnn f = {};
#define TERN_FIND(name) f.name = library().function<decltype(cudnn##name)>("cudnn" #name)
  TERN_FIND(Create);
  TERN_FIND(SetStream);
  TERN_FIND(GetErrorString);
  TERN_FIND(GetLastErrorString);
  TERN_FIND(BackendCreateDescriptor);
  TERN_FIND(BackendDestroyDescriptor);
  TERN_FIND(BackendSetAttribute);
  TERN_FIND(BackendGetAttribute);
  TERN_FIND(BackendFinalize);
  TERN_FIND(BackendExecute);
#undef TERN_FIND
  return f;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn functions = find_functions();  // retried after a failure
  return functions;
}

namespace detail {
void fail_cudnn(cudnnStatus_t status, const std::string& what) {
  char words[512] = {};
  cudnn().GetLastErrorString(words, sizeof words);
  const std::string text =
      tern::detail::concatenate(what, ": ", cudnn().GetErrorString(status), words[0] ? ": " : "", words);
  if (const cudaError_t error = cudaPeekAtLastError(); is_sticky(error)) fail_cuda(error, text);
  fail(text);
}
}  // namespace detail

#endif

}  // namespace tern::kernels::cuda
