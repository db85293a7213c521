#pragma once

#include <cstdint>
#include <vector>

namespace tern::dist {

/// Where tensors lie in a bucket that is cut into equal parts, one for each rank. Numbers count elements.
struct ShardLayout {
  std::vector<int64_t> begins;
  int64_t part = 0;
};

/// Lays tensors of these sizes one after the other into a bucket with small parts. All begin at multiples of
/// `alignment`, as do the parts; a cut through a tensor is a multiple of `block`, itself one of alignment, behind its
/// begin.
ShardLayout lay_out_shards(const std::vector<int64_t>& sizes, int ranks, int64_t alignment, int64_t block);

/// Elements [begin, end) of a tensor.
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
/// What a rank has of a tensor that begins there in the bucket; begin == end when it has nothing.
ShardRange shard_of(int64_t tensor_begin, int64_t tensor_size, int64_t part, int rank);

}  // namespace tern::dist
