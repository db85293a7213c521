#pragma once
// One call of cuBLASLt: the product, the algorithm and the settings of gemm/settings.h.

#include <array>
#include <string>

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// Workspace of every product in bytes, as NVIDIA recommends for Hopper. Constant, because it determines which
/// algorithms can be chosen and so the bits of the result. Aligned to kMatmulAlignment.
inline constexpr int64_t kMatmulWorkspace = int64_t{32} << 20;
inline constexpr int64_t kMatmulAlignment = 256;

/// The use of the vector MatmulOperands::bias, which has D's dtype. kAdd: bias[row] is added to D. kGradientOfB: it
/// receives the n sums over the inner dimension of op(B).
enum class MatmulBias : uint8_t { kNone, kAdd, kGradientOfB };

/// D = alpha op(A) op(B) + beta D in column-major order: op(A) is [m, k], op(B) [k, n], D [m, n]; columns are
/// contiguous and `ld` elements apart. Alignments are those of the pointers, in bytes.
struct Matmul {
  DType input = DType::kFloat32, output = DType::kFloat32;
  bool transpose_a = false, transpose_b = false;
  MatmulBias bias = MatmulBias::kNone;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t lda = 0, ldb = 0, ldd = 0, batch_a = 0, batch_b = 0, batch_d = 0;
  int64_t align_a = 0, align_b = 0, align_d = 0, align_bias = 0;

  static constexpr int kNumbers = 20;
  /// All values that the choice of an algorithm may depend on.
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

/// kMatmulAlignment for the start of an allocation, else the largest power of two up to 16 that divides the address.
/// There are few values, because the alignment is part of the key of an algorithm's choice.
int64_t alignment_of(const void* pointer);

/// Queues the product. Returns false and queues nothing when cuBLASLt has no algorithm for it. workspace:
/// kMatmulWorkspace bytes. m, n, k and batch are at least 1 and fit into 32 bits.
bool try_matmul(Stream stream, const Matmul& matmul, const MatmulOperands& operands, void* workspace);

}  // namespace tern::kernels::cuda
