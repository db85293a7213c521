#pragma once
// The only interface to oneDNN's matrix products. All calls run on the calling thread only (onednn.h). Products that
// oneDNN does not support throw an Error.

#include <compare>
#include <memory>

#include "tern/kernels/types.h"

namespace tern::kernels::TERN_CPU {

/// Called before work that may call oneDNN is distributed to threads. Throws while exit() runs on this thread: oneDNN's
/// code of products is in static variables, which exit() destroys. Where the address space is limited, the first call
/// makes the code of sgemm(), because a thread could take the memory that another found free for it; then it may throw
/// OutOfMemoryError.
void prepare_products();

/// The key of a cached product. Row-major; a is [m, k] (transposed: stored [k, m]) with row stride lda, and so on.
/// pack_b: b is first rewritten by pack() into the product's preferred layout. bias: fp32 [n], added to each row.
struct MatmulKey {
  DType input = DType::kFloat32, output = DType::kFloat32;
  bool transpose_a = false, transpose_b = false, pack_b = false, bias = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  auto operator<=>(const MatmulKey&) const = default;
};

/// A product of fixed shape: c = op(a) op(b) + bias. Immutable; several threads may use it at a time.
class Matmul {
 public:
  explicit Matmul(const MatmulKey& key);
  ~Matmul();
  int64_t packed_bytes() const;   // size of pack()'s result
  int64_t scratch_bytes() const;  // memory for one run(), aligned to 64 bytes
  bool same_packing(const Matmul& other) const;
  void pack(const void* b, void* packed) const;  // runs on all threads
  void run(const void* a, const void* b, const void* bias, void* c, void* scratch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Finds or creates a product and caches the 512 used last. Creation takes about 0.1 ms (some ms with code generation).
std::shared_ptr<const Matmul> find_matmul(const MatmulKey& key);

/// True when oneDNN has fast packed products of this dtype here: fp32 with AVX-512, bf16 with AVX512-BF16 or AMX.
bool has_packed_matmul(DType dtype);

/// c = alpha op(a) op(b) + beta c, row-major fp32.
void sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace tern::kernels::TERN_CPU
