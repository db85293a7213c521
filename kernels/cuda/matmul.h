#pragma once
// One call of cuBLASLt: what is computed, with which algorithm, and the settings of gemm_settings.h.

#include <array>
#include <string>

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// Workspace of every product, bytes; NVIDIA's advice for Hopper. The same always, because it decides which algorithms
/// may be chosen and so the bits of the result. It begins at a multiple of kMatmulAlignment.
inline constexpr int64_t kMatmulWorkspace = int64_t{32} << 20;
inline constexpr int64_t kMatmulAlignment = 256;

/// What is done with the vector of MatmulOperands::bias, which has D's dtype. kAdd: D gains bias[row]. kGradientOfB:
/// the sums over the inner dimension of op(B) are written to it, n of them.
enum class MatmulBias : uint8_t { kNone, kAdd, kGradientOfB };

/// D = alpha op(A) op(B) + beta D in column-major order: op(A) is [m, k], op(B) [k, n], D [m, n], the elements of a
/// column side by side and columns `ld` elements apart. Alignments are those of the pointers, in bytes.
struct Matmul {
  DType input = DType::kFloat32, output = DType::kFloat32;
  bool transpose_a = false, transpose_b = false;
  MatmulBias bias = MatmulBias::kNone;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t lda = 0, ldb = 0, ldd = 0, batch_a = 0, batch_b = 0, batch_d = 0;
  int64_t align_a = 0, align_b = 0, align_d = 0, align_bias = 0;

  static constexpr int kNumbers = 20;
  /// Everything that the choice of an algorithm may depend on.
  std::array<int64_t, kNumbers> key() const;
  std::string describe() const;
};

struct MatmulOperands {
  double alpha = 1;
  const void *a = nullptr, *b = nullptr;
  double beta = 0;
  void* d = nullptr;
  const void* bias = nullptr;  // written with kGradientOfB
};

/// kMatmulAlignment for the start of an allocation, else the largest power of two up to 16 that divides the address:
/// few cases, because the alignment is part of what decides the algorithm.
int64_t alignment_of(const void* pointer);

/// Queues the product. False, and nothing is queued, when cuBLASLt has no algorithm for it. workspace:
/// kMatmulWorkspace bytes. m, n, k and batch are at least 1 and fit into 32 bits.
bool try_matmul(Stream stream, const Matmul& matmul, const MatmulOperands& operands, void* workspace);

}  // namespace tern::kernels::cuda
