#include "tern/dist/gradients/shard_layout.h"

#include <algorithm>
#include <numeric>

namespace tern::dist {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// The first offset from `begin` on at which every part boundary within the tensor lies between blocks; a value beyond
/// `end` if none precedes it.
int64_t place(int64_t begin, int64_t size, int64_t part, int64_t end, int64_t block) {
  while (begin < end) {
    const int64_t cut = (begin / part + 1) * part;  // the first boundary that can cut the tensor
    if (begin + size <= cut) return begin;
    const int64_t moved = cut - (cut - begin) / block * block;
    if (moved < cut && (part % block == 0 || moved + size <= cut + part)) return moved;
    begin = cut;
    if (part % block == 0) return begin;
  }
  return end;
}

}  // namespace

ShardLayout lay_out_shards(const std::vector<int64_t>& sizes, int ranks, int64_t alignment, int64_t block) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  ShardLayout layout{.begins = std::vector<int64_t>(sizes.size()),
                     .part = round_up((total + ranks - 1) / ranks, alignment)};
  for (;; layout.part += alignment) {
    const int64_t all = layout.part * ranks;
    int64_t end = 0;
    for (size_t i = 0; i < sizes.size() && end <= all; ++i) {
      const int64_t begin = round_up(end, alignment);
      layout.begins[i] = sizes[i] > 0 ? place(begin, sizes[i], layout.part, all, block) : begin;
      end = layout.begins[i] + sizes[i];
    }
    if (end <= all) return layout;
  }
}

ShardRange shard_of(int64_t tensor_begin, int64_t tensor_size, int64_t part, int rank) {
  const int64_t first = part * rank;
  const int64_t begin = std::clamp<int64_t>(first - tensor_begin, 0, tensor_size);
  return {begin, std::clamp<int64_t>(first + part - tensor_begin, begin, tensor_size)};
}

}  // namespace tern::dist
