#include "tern/kernels/cuda/support/cublaslt.h"

namespace tern::kernels::cuda {

// Never destroyed: destructors of other static objects may still compute.
SharedLibrary& cublaslt_library() {
  static SharedLibrary& instance = *new SharedLibrary(
      {"cuBLASLt",
       "matrix products on CUDA",
       {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
       "packages libcublas-13-0, or nvidia-cublas from pip",
       "TERN_CUBLASLT",
       "cublasLtGetVersion",
       [](void* probe) { return dotted_version(reinterpret_cast<decltype(&cublasLtGetVersion)>(probe)()); }});
  return instance;
}

const CublasLt& cublaslt() {
  static const CublasLt functions{};  // retried after a failure
  return functions;
}

const LibraryInfo& cublaslt_info() { return cublaslt_library().info(); }

namespace detail {
void fail_cublas(cublasStatus_t status, const char* expression, const char* file, int line) {
  fail(tern::detail::base_name(file), ":", line, ": ", expression, ": ", cublaslt().GetStatusName(status));
}
}  // namespace detail

}  // namespace tern::kernels::cuda
