#pragma once
// Pooling of channels-last images: [batch, depth, height, width, channels]. One- and two-dimensional ones have a depth
// (and height) of 1.

#include <array>

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// The sizes of a pooling; arrays are depth, height, width.
struct PoolShape {
  int64_t batch = 1, channels = 1;
  std::array<int64_t, 3> in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1};
  std::array<int64_t, 3> stride = {1, 1, 1}, padding = {0, 0, 0}, dilation = {1, 1, 1};
  /// Windows of almost equal size that cover the input: [floor(o in / out), ceil((o + 1) in / out)) for output o;
  /// kernel, stride, padding and dilation are not read.
  bool adaptive = false;

  TERN_HD int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  TERN_HD int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
};

/// Inputs begin, begin + step, ... < end of one dimension.
struct PoolWindow {
  int64_t begin, end, step;
  TERN_HD int64_t count() const { return end > begin ? (end - begin + step - 1) / step : 0; }
};

/// The inputs that output `o` of dimension d reads, without those outside of the image.
TERN_HD inline PoolWindow pool_window(const PoolShape& s, int d, int64_t o) {
  if (s.adaptive) return {o * s.in[d] / s.out[d], ((o + 1) * s.in[d] + s.out[d] - 1) / s.out[d], 1};
  const int64_t first = o * s.stride[d] - s.padding[d], step = s.dilation[d];
  const int64_t end = first + (s.kernel[d] - 1) * step + 1;
  const int64_t skipped = first < 0 ? (-first + step - 1) / step : 0;
  return {first + skipped * step, end < s.in[d] ? end : s.in[d], step};
}

/// The outputs [begin, end) of dimension d whose windows may hold input i.
TERN_HD inline PoolWindow pool_outputs(const PoolShape& s, int d, int64_t i) {
  int64_t begin, end;
  if (s.adaptive) {
    begin = i * s.out[d] / s.in[d];
    end = ((i + 1) * s.out[d] + s.in[d] - 1) / s.in[d];
  } else {
    const int64_t reach = (s.kernel[d] - 1) * s.dilation[d], place = i + s.padding[d];
    begin = place > reach ? (place - reach + s.stride[d] - 1) / s.stride[d] : 0;
    end = place / s.stride[d] + 1;
  }
  return {begin, end < s.out[d] ? end : s.out[d], 1};
}

/// The windows of the three dimensions.
struct PoolWindows {
  PoolWindow of[3];
  /// body(pixel) for each pixel of an image of this size, in row-major order.
  template <class Body>
  TERN_HD void for_each(const std::array<int64_t, 3>& size, const Body& body) const {
    for (int64_t z = of[0].begin; z < of[0].end; z += of[0].step)
      for (int64_t y = of[1].begin; y < of[1].end; y += of[1].step)
        for (int64_t x = of[2].begin; x < of[2].end; x += of[2].step) body((z * size[1] + y) * size[2] + x);
  }
};

/// The place of a pixel in an image of this size.
struct PoolPlace {
  int64_t at[3];
  TERN_HD PoolPlace(int64_t pixel, const std::array<int64_t, 3>& size)
      : at{pixel / (size[1] * size[2]), pixel / size[2] % size[1], pixel % size[2]} {}
  /// What an output reads.
  TERN_HD PoolWindows inputs(const PoolShape& s) const {
    return {{pool_window(s, 0, at[0]), pool_window(s, 1, at[1]), pool_window(s, 2, at[2])}};
  }
  /// The outputs whose windows may hold an input.
  TERN_HD PoolWindows outputs(const PoolShape& s) const {
    return {{pool_outputs(s, 0, at[0]), pool_outputs(s, 1, at[1]), pool_outputs(s, 2, at[2])}};
  }
  /// Whether the window of this output holds input `in`.
  TERN_HD bool reads(const PoolShape& s, const PoolPlace& in) const {
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      const PoolWindow window = pool_window(s, d, at[d]);
      const int64_t steps = in.at[d] - window.begin;
      inside = inside && steps >= 0 && in.at[d] < window.end && steps % window.step == 0;
    }
    return inside;
  }
};

/// What a mean is divided by.
struct PoolDivisor {
  bool counts_padding =
      true;           // the window's size with the zeros of the padding, but not beyond it; else the inputs read
  int64_t fixed = 0;  // this number, if it is not 0
};

TERN_HD inline int64_t pool_divisor(const PoolShape& s, const PoolDivisor& divisor, const int64_t (&output)[3]) {
  if (divisor.fixed != 0) return divisor.fixed;
  int64_t count = 1;
  for (int d = 0; d < 3; ++d) {
    if (divisor.counts_padding && !s.adaptive) {
      const int64_t begin = output[d] * s.stride[d] - s.padding[d], limit = s.in[d] + s.padding[d];
      const int64_t end = begin + s.kernel[d];
      count *= (end < limit ? end : limit) - begin;
    } else {
      count *= pool_window(s, d, output[d]).count();
    }
  }
  return count;
}

/// The index of the maximum of a window that holds no input, as one whose dilation steps over a small image.
inline constexpr int64_t kNoPlace = -1;

/// y = the maximum of each window, index (int64, of y's shape, or absent) its place in the image: the first one, or the
/// last NaN's. Of a window without inputs y is -inf and index kNoPlace. x: [batch, in..., channels], y: [batch, out...,
/// channels]; of one dtype, contiguous.
TERN_KERNEL(void, max_pool, Stream stream, const PoolShape& shape, ConstView x, View y, View index);
/// dx = for every input the sum of the dy whose index it is, in the order of the outputs; a dy with kNoPlace is in
/// none.
TERN_KERNEL(void, max_pool_backward, Stream stream, const PoolShape& shape, ConstView dy, ConstView index, View dx);

/// y = the sum of each window divided by its divisor; sums are fp32 (fp64 of fp64). No dilation, and every window must
/// hold an input.
TERN_KERNEL(void, mean_pool, Stream stream, const PoolShape& shape, PoolDivisor divisor, ConstView x, View y);
TERN_KERNEL(void, mean_pool_backward, Stream stream, const PoolShape& shape, PoolDivisor divisor, ConstView dy,
            View dx);

}  // namespace tern::kernels
