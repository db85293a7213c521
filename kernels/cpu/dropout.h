#pragma once
// Dropout masks for rows: the numbering of kernels/random.h, sixteen Philox blocks (128 columns) at a time.

#include <algorithm>
#include <cstring>

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

  /// factors[i] is the scale where column begin + i of `row` is kept, 0 elsewhere. begin is a multiple of kColumns;
  /// factors has room for n rounded up to kColumns.
  template <class F>
  void fill(int64_t row, int64_t begin, int64_t n, F* __restrict factors) const {
    const uint64_t row_key = row_keys_ ? static_cast<uint64_t>(row_keys_[row]) : static_cast<uint64_t>(row);
    const F scale = static_cast<F>(scale_);
    const uint32_t threshold = threshold_;
    for (int64_t i = 0; i < n; i += kColumns) {
      uint16_t numbers[kColumns];  // little endian: the halves of the words lie in the order of the columns
      draw(row_key, static_cast<uint32_t>((begin + i) / 8), numbers);
      for (int64_t j = 0; j < kColumns; ++j) factors[i + j] = numbers[j] >= threshold ? scale : F(0);
    }
  }

  static constexpr int64_t kBlocks = 16, kColumns = 8 * kBlocks;

 private:
  void draw(uint64_t row, uint32_t first_block, uint16_t* numbers) const {
    uint32_t words[4][kBlocks];
    for (uint32_t b = 0; b < kBlocks; ++b) {
      const Philox4 block = philox(key_, row, 0, first_block + b);
      for (int w = 0; w < 4; ++w) words[w][b] = block.word[w];
    }
    uint32_t ordered[4 * kBlocks];
    for (int64_t b = 0; b < kBlocks; ++b)
      for (int w = 0; w < 4; ++w) ordered[4 * b + w] = words[w][b];
    std::memcpy(numbers, ordered, sizeof ordered);
  }

  bool active_;
  uint32_t threshold_;
  double scale_;
  uint64_t key_;
  const int64_t* row_keys_;
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
