#pragma once
// Dropout masks for rows, numbered as in kernels/random.h, sixteen Philox blocks (128 columns) at a time.

#include <algorithm>
#include <cstring>

#include "tern/kernels/cpu/attention/simd.h"
#include "tern/kernels/random.h"
#include "tern/kernels/view.h"

namespace tern::kernels::TERN_CPU {
namespace {

class DropoutFactors {
 public:
  DropoutFactors(const Dropout& dropout, const ConstView& row_keys)
      : active_(dropout.p > 0),
        threshold_(dropout.p < 1 ? dropout_threshold(dropout.p) : 65536),
        scale_(dropout.p < 1 ? 1 / (1 - dropout.p) : 0),
        key_(philox_key(dropout.key)),
        row_keys_(row_keys ? row_keys.as<int64_t>() : nullptr) {}

  bool active() const { return active_; }

  /// factors[i] = scale where column begin + i of `row` is kept, else 0. begin is a multiple of kColumns; factors has
  /// space for n rounded up to kColumns.
  template <class F>
  void fill(int64_t row, int64_t begin, int64_t n, F* __restrict factors) const {
    const uint64_t row_key = row_keys_ ? static_cast<uint64_t>(row_keys_[row]) : static_cast<uint64_t>(row);
    const F scale = static_cast<F>(scale_);
    const uint32_t threshold = threshold_;
    for (int64_t i = 0; i < n; i += kColumns) {
      uint16_t numbers[kColumns];  // little endian: the halves of the words are in column order
      draw(row_key, static_cast<uint32_t>((begin + i) / 8), numbers);
      for (int64_t j = 0; j < kColumns; ++j) factors[i + j] = numbers[j] >= threshold ? scale : F(0);
    }
  }

  static constexpr int64_t kBlocks = 16, kColumns = 8 * kBlocks;

 private:
  /// The words of kBlocks blocks in order. One 64-bit lane per block; multiplications use the low halves.
  void draw(uint64_t row, uint32_t first_block, uint16_t* numbers) const {
    using attention::LongVec;
    constexpr int kLanes = sizeof(LongVec) / 8;
    const LongVec zero = {}, low = 0xffffffffull + zero;
    LongVec lane_index;
    for (int l = 0; l < kLanes; ++l) lane_index[l] = l;
    for (int b = 0; b < kBlocks; b += kLanes) {
      LongVec c0 = lane_index + (first_block + b), c1 = zero, c2 = row + zero, c3 = (row >> 32) + zero;
      uint32_t k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
#pragma GCC unroll 10
      for (int round = 0; round < 10; ++round, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        const LongVec p0 = attention::multiply_low_halves(c0, 0xd2511f53ull + zero);
        const LongVec p1 = attention::multiply_low_halves(c2, 0xcd9e8d57ull + zero);
        c0 = (p1 >> 32) ^ c1 ^ (uint64_t{k0} + zero);
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ (uint64_t{k1} + zero);
        c3 = p0;
      }
      const LongVec first = (c0 & low) | (c1 << 32), second = (c2 & low) | (c3 << 32);
      uint64_t words[2 * kLanes];
#pragma GCC unroll 8
      for (int l = 0; l < kLanes; ++l) {
        words[2 * l] = first[l];
        words[2 * l + 1] = second[l];
      }
      std::memcpy(numbers + 8 * b, words, sizeof words);
    }
  }

  bool active_;
  uint32_t threshold_;
  double scale_;
  uint64_t key_;
  const int64_t* row_keys_;
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
