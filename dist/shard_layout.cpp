#include "tern/dist/shard_layout.h"

#include <algorithm>
#include <numeric>

namespace tern::dist {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

ShardLayout lay_out_shards(const std::vector<int64_t>& sizes, int ranks, int64_t alignment, int64_t block) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  ShardLayout layout{.begins = std::vector<int64_t>(sizes.size()),
                     .part = round_up((total + ranks - 1) / ranks, block)};
  for (;; layout.part += block) {
    int64_t end = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t begin = round_up(end, alignment);
      const bool is_cut = sizes[i] > 0 && begin / layout.part != (begin + sizes[i] - 1) / layout.part;
      if (is_cut) begin = round_up(begin, block);
      layout.begins[i] = begin;
      end = begin + sizes[i];
    }
    if (end <= layout.part * ranks) return layout;
  }
}

ShardRange shard_of(int64_t tensor_begin, int64_t tensor_size, int64_t part, int rank) {
  const int64_t first = part * rank;
  const int64_t begin = std::clamp<int64_t>(first - tensor_begin, 0, tensor_size);
  return {begin, std::clamp<int64_t>(first + part - tensor_begin, begin, tensor_size)};
}

}  // namespace tern::dist
