#pragma once
// Declarations shared by the files of the stand-in cuBLASLt: descriptors with the attributes and sizes of NVIDIA's
// library (13.1), and the description of a product.

#include <cublasLt.h>

#include <cstring>
#include <map>
#include <string>

#include "tern/tests/emulator/cublaslt/cublaslt.h"
#include "tern/tests/emulator/runtime/numbers.h"
#include "tern/tests/emulator/runtime/queue.h"

namespace tern::standin::lt {

enum class Kind { kHandle, kOperation, kLayout, kPreference };

/// An object behind one of the library's opaque pointers: its attributes by number, 8 bytes each.
struct Object {
  struct Value {
    size_t bytes = 0;
    char data[8] = {};
  };
  Kind kind;
  int device = 0;  // device of a handle
  std::map<int, Value> attributes;

  explicit Object(Kind of) : kind(of) {}
  template <class T>
  T get(int attribute) const {
    T value;
    std::memcpy(&value, attributes.at(attribute).data, sizeof(T));
    return value;
  }
  template <class T>
  void define(int attribute, T initial) {
    Value& value = attributes[attribute];
    value.bytes = sizeof(T);
    std::memcpy(value.data, &initial, sizeof(T));
  }
};

/// The existing object at a pointer; null if there is none or it is of another kind.
const Object* find(const void* pointer, Kind kind);
/// Stores the reason and returns the status.
cublasStatus_t reject(cublasStatus_t status, const std::string& reason);

/// Every function can have an injected error.
#define STANDIN_FAULT(name)                                   \
  if (const int fault = tern::standin::injected_fault(#name)) \
  return tern::standin::lt::reject(static_cast<cublasStatus_t>(fault), "injected")

/// A matrix in memory: element (row, column) is at row + column * ld.
struct Matrix {
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, cols = 0, ld = 0, batch = 1, batch_stride = 0;

  /// From the first to the last element of one matrix.
  int64_t elements() const { return rows + (cols - 1) * ld; }
};

/// The computation of one call: D = epilogue(alpha op(A) op(B) + beta C).
struct Product {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  bool transpose_a = false, transpose_b = false;
  Matrix a, b, c, d;
  int64_t m = 0, n = 0, k = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;  // a cublasLtEpilogue_t if valid
  void* bias = nullptr;
  int64_t bias_stride = 0;

  bool wide() const { return scale == CUDA_R_64F; }
  int64_t bias_size() const { return epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m; }
};

/// Reads and checks the descriptors. Returns CUBLAS_STATUS_SUCCESS or the library's status.
cublasStatus_t read_product(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Product& product);

/// Pointers and scalars of one call.
struct Arguments {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  double alpha_value = 0, beta_value = 0;
  MatmulAlgorithm algorithm = MatmulAlgorithm::kGeneral;
  uint64_t call = 0;
};

/// Computes the product on the host; the caller has checked the memory.
void compute(const Product& product, const Arguments& arguments);

}  // namespace tern::standin::lt
