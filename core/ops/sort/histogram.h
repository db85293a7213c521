#pragma once
// Counts of elements by their value. On a GPU the host waits for the device, and a captured step fails.

#include "tern/core/tensor.h"

namespace tern {

/// How often 0, 1, ... occur in a vector of integers that are not negative: int64 [max(x's maximum + 1, minlength)].
/// With weights, of x's shape, the sums of their weights instead, in fp32 for fp32 weights and fp64 for others.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0);
/// How many elements of a floating x are in each of `bins` equal parts of [low, high], whose last includes high; others
/// are not counted. If low == high, x's least and greatest elements are taken instead, and [v - 1, v + 1] where all
/// elements are v. Of x's dtype.
Tensor histc(const Tensor& x, int64_t bins = 100, double low = 0, double high = 0);
/// counts[i] of the floating x's elements are in [edges[i], edges[i + 1]), the last of which includes its end; others
/// are not counted. Of x's dtype. edges: ascending, or `bins` equal parts of [low, high] as in histc, but of
/// [v - 1/2, v + 1/2] where all elements are v, and of [0, 1] where there are none. With weights, of x's shape, the
/// sums of their weights. With density counts are divided by their sum and by the widths.
struct Histogram {
  Tensor counts, edges;
};
struct HistogramOptions {
  double low = 0, high = 0;  // not used where edges are given
  Tensor weights = {};
  bool density = false;
};
Histogram histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& options = {});
Histogram histogram(const Tensor& x, int64_t bins = 100, const HistogramOptions& options = {});

}  // namespace tern
