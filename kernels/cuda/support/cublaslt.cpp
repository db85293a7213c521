#include "tern/kernels/cuda/support/cublaslt.h"

namespace tern::kernels::cuda {
namespace {

// Never destroyed: destructors of other static objects may still compute.
SharedLibrary& library() {
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

CublasLt find_functions() {
  CublasLt f = {};
#define TERN_FIND(name) f.name = library().function<decltype(cublasLt##name)>("cublasLt" #name)
  TERN_FIND(Create);
  TERN_FIND(GetStatusName);
  TERN_FIND(MatmulDescCreate);
  TERN_FIND(MatmulDescDestroy);
  TERN_FIND(MatmulDescSetAttribute);
  TERN_FIND(MatrixLayoutCreate);
  TERN_FIND(MatrixLayoutDestroy);
  TERN_FIND(MatrixLayoutSetAttribute);
  TERN_FIND(MatmulPreferenceCreate);
  TERN_FIND(MatmulPreferenceDestroy);
  TERN_FIND(MatmulPreferenceSetAttribute);
  TERN_FIND(MatmulAlgoGetHeuristic);
  TERN_FIND(MatmulAlgoCheck);
  TERN_FIND(Matmul);
#undef TERN_FIND
  return f;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = find_functions();  // retried after a failure
  return functions;
}

const LibraryInfo& cublaslt_info() { return library().info(); }

namespace detail {
void fail_cublas(cublasStatus_t status, const char* expression, const char* file, int line) {
  fail(tern::detail::base_name(file), ":", line, ": ", expression, ": ", cublaslt().GetStatusName(status));
}
}  // namespace detail

}  // namespace tern::kernels::cuda
