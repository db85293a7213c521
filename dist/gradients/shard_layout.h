#pragma once

#include <cstdint>
#include <vector>

namespace tern::dist {

/// Offsets of tensors in a bucket that is cut into equal parts, one per rank. Units: elements.
struct ShardLayout {
  std::vector<int64_t> begins;
  int64_t part = 0;
};

/// Places tensors of these sizes one after another in a bucket, with parts as small as possible. Tensors and parts
/// begin at multiples of `alignment`; a part boundary within a tensor is a multiple of `block` (a multiple of
/// alignment) after the tensor's begin.
ShardLayout lay_out_shards(const std::vector<int64_t>& sizes, int ranks, int64_t alignment, int64_t block);

/// Elements [begin, end) of a tensor.
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
/// The range of a tensor at offset tensor_begin in the bucket that belongs to `rank`; begin == end if it has none.
ShardRange shard_of(int64_t tensor_begin, int64_t tensor_size, int64_t part, int rank);

}  // namespace tern::dist
