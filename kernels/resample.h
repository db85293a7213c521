#pragma once
// Resizing along one axis: each output is a weighted sum of a few neighbouring inputs. An image is resized axis by
// axis.

#include "tern/kernels/kernel.h"
#include "tern/kernels/math/math.h"

namespace tern::kernels {

enum class ResampleMode : uint8_t { kNearest, kNearestExact, kLinear, kCubic };

/// How an axis is resized, by the formulas of PyTorch's interpolate (ATen/native/UpSample.h, in the compute type).
struct ResampleAxis {
  ResampleMode mode = ResampleMode::kNearest;
  int64_t in = 1, out = 1;
  bool align_corners = false;  // the centres of the first and last elements coincide, else the outer edges
  bool antialias = false;      // the filter is as wide as the distance of the outputs (kLinear, kCubic)
  double factor = 0;           // of the size as the caller gave it; 0: out / in

  /// The distance of two outputs in inputs.
  template <class F>
  TERN_HD F scale() const {
    if (align_corners) return out > 1 ? static_cast<F>(in - 1) / static_cast<F>(out - 1) : F(0);
    return factor > 0 ? static_cast<F>(1 / factor) : static_cast<F>(in) / static_cast<F>(out);
  }
  /// Half the width of the filter with antialias.
  template <class F>
  TERN_HD F support() const {
    const F half = mode == ResampleMode::kCubic ? F(2) : F(1);
    return scale<F>() >= F(1) ? half * scale<F>() : half;
  }
  /// Inputs that an output reads: as many neighbours for every output, some with weight 0.
  TERN_HD int64_t taps() const {
    int64_t count = mode == ResampleMode::kCubic ? 4 : mode == ResampleMode::kLinear ? 2 : 1;
    // One more than in the compute type, where rounding could enlarge the filter.
    if (antialias) count = static_cast<int64_t>(support<double>()) * 2 + 4;
    return count < in ? count : in;
  }
};

/// The weights of one output, of inputs first ... first + taps - 1.
template <class F>
struct ResampleWeights {
  const ResampleAxis& axis;
  int64_t taps, first;
  F* weights;

  TERN_HD ResampleWeights(const ResampleAxis& a, int64_t output, F* memory) : axis(a), taps(a.taps()), weights(memory) {
    for (int64_t k = 0; k < taps; ++k) weights[k] = 0;
    if (axis.antialias)
      filter(output);
    else
      interpolate(static_cast<F>(output));
  }

 private:
  TERN_HD static int64_t floor_of(F value) {
    const auto whole = static_cast<int64_t>(value);
    return static_cast<F>(whole) > value ? whole - 1 : whole;
  }
  /// The whole part of a place: of fp64 too after it was rounded to fp32, as in PyTorch.
  TERN_HD static int64_t nearest(F place) { return floor_of(static_cast<F>(static_cast<float>(place))); }
  TERN_HD static F between(F share) { return share < F(0) ? F(0) : share > F(1) ? F(1) : share; }
  TERN_HD int64_t clamped(int64_t i) const { return i < 0 ? 0 : i < axis.in ? i : axis.in - 1; }
  /// Sets the first input, `before` inputs before the last one at or before the place i; returns i, at most the last.
  TERN_HD int64_t start(int64_t i, int64_t before) {
    const int64_t place = i < axis.in ? i : axis.in - 1, wanted = place - before, limit = axis.in - taps;
    first = wanted < 0 ? 0 : wanted < limit ? wanted : limit;
    return place;
  }
  TERN_HD void add(int64_t i, F weight) { weights[clamped(i) - first] += weight; }
  /// Keys' cubic convolution within and beyond a distance of 1.
  TERN_HD static F inner_cubic(F x, F a) { return ((a + F(2)) * x - (a + F(3))) * x * x + F(1); }
  TERN_HD static F outer_cubic(F x, F a) { return ((a * x - F(5) * a) * x + F(8) * a) * x - F(4) * a; }
  TERN_HD void interpolate(F output) {
    const F scale = axis.scale<F>(), place = axis.align_corners ? scale * output : scale * (output + F(0.5)) - F(0.5);
    const F inside = place > F(0) ? place : F(0);
    if (axis.mode == ResampleMode::kNearest) {
      add(start(nearest(scale * output), 0), F(1));
    } else if (axis.mode == ResampleMode::kNearestExact) {
      add(start(nearest(inside + F(0.5)), 0), F(1));
    } else if (axis.mode == ResampleMode::kLinear) {
      const int64_t i = start(floor_of(inside), 0);
      const F share = between(inside - static_cast<F>(i));
      add(i, F(1) - share);
      add(i + 1, share);
    } else {
      const int64_t i = start(floor_of(place), 1);
      const F share = between(place - static_cast<F>(i)), rest = F(1) - share, a = F(-0.75);
      add(i - 1, outer_cubic(share + F(1), a));
      add(i, inner_cubic(share, a));
      add(i + 1, inner_cubic(rest, a));
      add(i + 2, outer_cubic(rest + F(1), a));
    }
  }
  TERN_HD F filter_at(F x) const {
    x = x < F(0) ? -x : x;
    if (axis.mode == ResampleMode::kLinear) return x < F(1) ? F(1) - x : F(0);
    const F a = F(-0.5);
    return x < F(1) ? inner_cubic(x, a) : x < F(2) ? outer_cubic(x, a) : F(0);
  }
  TERN_HD void filter(int64_t output) {
    const F scale = axis.scale<F>(), support = axis.support<F>();
    const F center = scale * (static_cast<F>(output) + F(0.5)), inverse = scale >= F(1) ? F(1) / scale : F(1);
    const auto low = static_cast<int64_t>(center - support + F(0.5));
    const auto high = static_cast<int64_t>(center + support + F(0.5));
    const int64_t begin = low > 0 ? low : 0, end = high < axis.in ? high : axis.in;
    start(begin, 0);
    F total = 0;
    for (int64_t i = begin; i < end; ++i) {
      const F weight = filter_at((static_cast<F>(i) - center + F(0.5)) * inverse);
      total += weight;
      add(i, weight);
    }
    for (int64_t k = 0; k < taps && total != F(0); ++k) weights[k] /= total;
  }
};

/// The first output, from 0 to `outputs`, whose first input is after `input`. `first` does not decrease.
TERN_HD inline int64_t resample_after(const int32_t* first, int64_t outputs, int64_t input) {
  int64_t low = 0, high = outputs;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (first[middle] > input)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// first[o]: the first input that output o reads, int32 [out]; weights: fp32 or fp64 [out, taps], contiguous.
TERN_KERNEL(void, resample_table, Stream stream, const ResampleAxis& axis, View first, View weights);
/// y = the weighted sums of x along the middle axis. x: [outer, in, inner], y: [outer, out, inner], contiguous; each of
/// them of one floating dtype or of its compute type, which the weights have. What has weight 0 is not read.
TERN_KERNEL(int64_t, resample_workspace, Stream stream, ConstView x, ConstView first, ConstView weights, View y);
TERN_KERNEL(void, resample, Stream stream, ConstView x, ConstView first, ConstView weights, View y, void* workspace);
/// The transposed map, which gives the gradient: dy [outer, out, inner], dx [outer, in, inner].
TERN_KERNEL(int64_t, resample_transposed_workspace, Stream stream, ConstView dy, ConstView first, ConstView weights,
            View dx);
TERN_KERNEL(void, resample_transposed, Stream stream, ConstView dy, ConstView first, ConstView weights, View dx,
            void* workspace);

}  // namespace tern::kernels
