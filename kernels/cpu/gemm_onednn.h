#pragma once
// The one place that talks to oneDNN about matrix products. Compiles with oneDNN 2.6 and 3. All its calls run on the
// calling thread alone: libgomp's threads, oneDNN's own, wait for each other even when one of them does not run. What
// oneDNN cannot do is an Error.

#include <compare>
#include <memory>

#include "tern/kernels/types.h"

namespace tern::kernels::TERN_CPU {

/// Throws when exit() runs on this thread: the code of oneDNN's products lies in static variables, which it destroys.
/// Called before products are shared out.
void check_not_ending();

/// What a cached product is found by. Row-major; a is [m, k] (transposed: stored [k, m]) with row stride lda, and so
/// on. pack_b: b is first rewritten by pack() into the layout the product likes best. bias: fp32 [n], added to each
/// row.
struct MatmulKey {
  DType input = DType::kFloat32, output = DType::kFloat32;
  bool transpose_a = false, transpose_b = false, pack_b = false, bias = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  auto operator<=>(const MatmulKey&) const = default;
};

/// A product of fixed shape: c = op(a) op(b) + bias. Immutable and usable from several threads at a time.
class Matmul {
 public:
  explicit Matmul(const MatmulKey& key);
  ~Matmul();
  int64_t packed_bytes() const;   // memory for pack()'s result
  int64_t scratch_bytes() const;  // memory that one run() needs, 64-byte aligned
  bool same_packing(const Matmul& other) const;
  void pack(const void* b, void* packed) const;  // shared out among threads
  void run(const void* a, const void* b, const void* bias, void* c, void* scratch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Finds or makes a product; keeps the 256 used last. Making one costs about 0.1 ms (some ms when code is generated).
std::shared_ptr<const Matmul> find_matmul(const MatmulKey& key);

/// True when oneDNN has fast packed products of this dtype here: fp32 with AVX-512, bf16 with AVX512-BF16 or AMX.
bool has_packed_matmul(DType dtype);

/// c = alpha op(a) op(b) + beta c, row-major fp32.
void sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
           int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace tern::kernels::TERN_CPU
