#pragma once
// For ops on images: [batch, channels, spatial...] with the channels last in memory (Tensor::channels_last).

#include <algorithm>
#include <array>
#include <vector>

#include "tern/core/tensor.h"

namespace tern::detail {

/// [batch, channels] and the last `dims` sizes.
inline Shape image_shape(int64_t batch, int64_t channels, const std::array<int64_t, 3>& size, int dims) {
  std::vector<int64_t> sizes = {batch, channels};
  for (int d = 3 - dims; d < 3; ++d) sizes.push_back(size[static_cast<size_t>(d)]);
  return Shape(sizes);
}

/// The kernels' view of a tensor with its channels last: [batch, depth, height, width, channels].
inline kernels::View rows_of(const Tensor& x) {
  std::vector<int64_t> sizes = {x.size(0), 1, 1, 1, x.size(1)};
  for (int d = 2; d < x.dim(); ++d) sizes[static_cast<size_t>(d + 4 - x.dim())] = x.size(d);
  const Shape shape(sizes);
  return {x.raw_data(), x.dtype(), shape.dims(), shape.data(), contiguous_strides(shape).data()};
}

/// [batch, channels, spatial...] as [batch, spatial..., channels].
inline kernels::View channels_moved_last(const kernels::View& x) {
  kernels::View moved = x;
  std::rotate(moved.shape + 1, moved.shape + 2, moved.shape + moved.dims);
  std::rotate(moved.strides + 1, moved.strides + 2, moved.strides + moved.dims);
  return moved;
}

/// Throws Error that names `op` and `what` unless least <= value < 2^31, so that products of sizes do not overflow.
inline void check_sizes(const char* op, const char* what, const std::vector<int64_t>& values, int64_t least) {
  for (const int64_t value : values)
    TERN_CHECK(value >= least && value < int64_t{1} << 31, op, ": ", what, " must be at least ", least,
               " and below 2^31, got ", value);
}

}  // namespace tern::detail
