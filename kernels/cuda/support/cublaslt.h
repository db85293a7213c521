#pragma once
// cuBLASLt's functions, loaded on first use, and its errors as exceptions.

#include <cublasLt.h>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/library.h"

namespace tern::kernels::cuda {

/// The functions that Tern calls, named without the prefix "cublasLt".
struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtGetStatusName) GetStatusName;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
  decltype(&cublasLtMatmul) Matmul;
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
