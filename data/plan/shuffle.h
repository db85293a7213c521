#pragma once
// Reproducible shuffles, equal on every machine (the result of std::shuffle depends on the standard library).

#include <cstdint>
#include <span>
#include <utility>

#include "tern/kernels/random.h"

namespace tern::data {

/// Purpose of random numbers: under one seed every purpose has a separate stream, also separate from dropout's.
enum class Draw : uint32_t {
  kSplit = 0x64617461,
  kHoldOut,
  kFold,
  kEpoch,
  kBatchOrder,
  kImage,
  kImageBatch,
  kMixing,
  kSample,
  kWeighted,
  kStreamOrder,
  kFlip
};

/// 64-bit numbers of Philox (kernels/random.h) at counters 0, 1, 2, ... under (seed, draw, index). A part of it begins
/// at counter part * 2^32.
class RandomStream {
 public:
  RandomStream(uint64_t seed, Draw draw, uint64_t index, uint64_t part = 0)
      : key_(kernels::philox_key({seed, index})), lane_(static_cast<uint32_t>(draw)), counter_(part << 32) {}

  /// The next number.
  uint64_t next() {
    const kernels::Philox4 words = kernels::philox(key_, counter_++, lane_, 0);
    return (static_cast<uint64_t>(words.word[1]) << 32) | words.word[0];
  }

  /// Uniform in [low, high).
  double uniform(double low = 0, double high = 1) {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
  }

  /// Uniform in 0 .. bound - 1, without bias (Lemire, "Fast random integer generation in an interval", 2019).
  uint64_t below(uint64_t bound) {
    for (;;) {
      const auto product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<uint64_t>(product) >= (0 - bound) % bound) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  uint64_t key_;
  uint32_t lane_;
  uint64_t counter_;
};

/// Fisher-Yates, from the end; uniform over all orders.
template <class T>
void shuffle(std::span<T> items, RandomStream stream) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[stream.below(i)]);
}

}  // namespace tern::data
