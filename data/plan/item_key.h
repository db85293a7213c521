#pragma once
// What a sample's random choices depend on.

#include <cstdint>

#include "tern/data/plan/shuffle.h"

namespace tern::data {

/// Identifies a sample of a batch. Its random choices depend on nothing else: not on workers, batches or the device.
struct ItemKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t row = 0;     // in the data set, or its number in a stream of samples
  int32_t repeat = 0;  // how often the epoch had this row before (samplers may draw a row several times)
};

/// The random numbers of a sample.
inline RandomStream item_random(const ItemKey& key, Draw draw = Draw::kSample) {
  const auto row = static_cast<uint64_t>(key.row);
  return {key.seed, draw, static_cast<uint64_t>(key.epoch) << 32 | (row & 0xffffffff),
          (row >> 32) + static_cast<uint64_t>(key.repeat)};
}

}  // namespace tern::data
