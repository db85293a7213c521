#pragma once
// cuBLASLt's functions, loaded on first use, and its errors as exceptions.

#include <cublasLt.h>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::kernels::cuda {

SharedLibrary& cublaslt_library();

/// The functions that Tern calls, named without the prefix "cublasLt".
struct CublasLt {
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, Create);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, GetStatusName);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulDescCreate);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulDescDestroy);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulDescSetAttribute);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatrixLayoutCreate);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatrixLayoutDestroy);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatrixLayoutSetAttribute);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulPreferenceCreate);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulPreferenceDestroy);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulPreferenceSetAttribute);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulAlgoGetHeuristic);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, MatmulAlgoCheck);
  TERN_LIBRARY_FUNCTION(cublaslt_library(), cublasLt, Matmul);
};

/// Throws Error when the library is missing.
const CublasLt& cublaslt();
/// Loads the library if that has not been tried; does not throw.
const LibraryInfo& cublaslt_info();

namespace detail {
[[noreturn]] void fail_cublas(cublasStatus_t status, const char* expression, const char* file, int line);
}  // namespace detail

}  // namespace tern::kernels::cuda

/// Throws tern::Error with the expression, its location and the status when a call of cuBLASLt fails. A macro because
/// the message quotes the expression.
#define TERN_CUBLAS_CHECK(expression)                                                           \
  do {                                                                                          \
    if (const cublasStatus_t tern_status = (expression); tern_status != CUBLAS_STATUS_SUCCESS)  \
      ::tern::kernels::cuda::detail::fail_cublas(tern_status, #expression, __FILE__, __LINE__); \
  } while (false)
