#pragma once
// Dropout masks for rows, numbered as in kernels/random.h, a 16-byte vector of columns at a time.

#include "tern/kernels/cuda/support/vector.h"
#include "tern/kernels/random.h"
#include "tern/kernels/view.h"

namespace tern::kernels::cuda {

/// The form of Dropout that kernels over rows take as an argument.
struct RowDropout {
  explicit RowDropout(const Dropout& dropout, const ConstView& keys)
      : active(dropout.p > 0),
        threshold(dropout.p < 1 ? dropout_threshold(dropout.p) : 65536),  // no 16-bit number reaches 65536
        scale(dropout.p < 1 ? 1 / (1 - dropout.p) : 0),
        random(dropout.key),
        row_keys(keys ? keys.as<int64_t>() : nullptr) {}

  /// The keys from which the random numbers of one row are drawn.
  struct Row {
    uint64_t key = 0, row = 0;
  };
  __device__ Row row(int64_t index) const {
    if (!active) return {};
    return {philox_key(random), static_cast<uint64_t>(row_keys ? row_keys[index] : index)};
  }

  /// factors.v[i] = scale where column + i is kept, else 0. kWidth divides 8, and column is a multiple of kWidth.
  template <class F, int kWidth>
  __device__ Vector<F, kWidth> factors(Row row, int64_t column) const {
    static_assert(8 % kWidth == 0, "RowDropout: a vector is within one Philox block");
    uint64_t own_key = row.key;
#ifndef TERN_SIMT
    asm volatile("" : "+l"(own_key));  // without this the compiler keeps the keys of all ten rounds in registers
#endif
    const Philox4 words = philox(own_key, row.row, 0, static_cast<uint32_t>(column / 8));
    const F kept = static_cast<F>(scale);
    const int first = kWidth == 8 ? 0 : static_cast<int>(column % 8);
    Vector<F, kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int half = first + i;
      const uint32_t low = half & 2 ? words.word[1] : words.word[0], high = half & 2 ? words.word[3] : words.word[2];
      const uint32_t word = half & 4 ? high : low;
      result.v[i] = ((half & 1 ? word >> 16 : word) & 0xffffu) >= threshold ? kept : F(0);
    }
    return result;
  }

  bool active;
  uint32_t threshold;
  double scale;
  RandomKey random;
  const int64_t* row_keys;
};

}  // namespace tern::kernels::cuda
