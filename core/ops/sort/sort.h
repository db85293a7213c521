#pragma once
// Sorting, selecting, searching and cumulative sums. The values are differentiable as in PyTorch, any number of times.

#include <optional>

#include "tern/core/tensor.h"

namespace tern {

// dim: a dimension, negative from the end; a tensor without dimensions counts as one of one element. x may have up to
// 2^32 - 2 elements along dim (cumsum: any number). NaN is greater than everything else and equals NaN; -0 equals 0.
// Every result is uniquely defined, hence the same on every device.

/// values[..., j, ...] = x[..., indices[..., j, ...], ...]; indices are int64.
struct SortResult {
  Tensor values, indices;
};
/// Any dtype; both results have x's shape. Stable: equal elements keep their order, also when descending.
SortResult sort(const Tensor& x, int dim = -1, bool descending = false);
/// sort's indices; not differentiable.
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
/// The k largest (smallest) elements along dim, whose size becomes k: the first k of sort(x, dim, largest), so that of
/// equal elements the first are taken. Unless sorted, in the order of x. Any dtype. Throws Error unless 0 <= k <=
/// x.size(dim).
SortResult topk(const Tensor& x, int64_t k, int dim = -1, bool largest = true, bool sorted = true);

/// The k-th smallest element along dim, k from 1; with keepdim the dimension stays with size 1. Of equal elements
/// kthvalue gives the position of the k-th in sorted order.
SortResult kthvalue(const Tensor& x, int64_t k, int dim = -1, bool keepdim = false);
/// The lower one of the middle elements along dim; NaN if there is one, or, for nanmedian, only if all are.
SortResult median(const Tensor& x, int dim, bool keepdim = false);
SortResult nanmedian(const Tensor& x, int dim, bool keepdim = false);
/// The same of all elements; NaN of no floats. The elements that equal it share the gradient.
Tensor median(const Tensor& x);
Tensor nanmedian(const Tensor& x);
/// The most frequent value along dim, the smallest of several, and the index of its last element.
SortResult mode(const Tensor& x, int dim = -1, bool keepdim = false);
/// How a quantile between two elements is made of them; of an infinite one and a finite one it is infinite. kNearest
/// rounds halves to the even position.
enum class Interpolation : uint8_t { kLinear, kLower, kHigher, kMidpoint, kNearest };
/// The elements at q (size - 1) of the sorted x along dim, without a dimension of all of x; NaN if there is one. q is a
/// number in [0, 1], or a vector of them, read by the host, which gives the result a first dimension. Floats only. Not
/// differentiable by q.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int> dim = {}, bool keepdim = false,
                Interpolation interpolation = Interpolation::kLinear);
Tensor quantile(const Tensor& x, double q, std::optional<int> dim = {}, bool keepdim = false,
                Interpolation interpolation = Interpolation::kLinear);
/// The same of the elements that are not NaN; NaN if all are.
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int> dim = {}, bool keepdim = false,
                   Interpolation interpolation = Interpolation::kLinear);
Tensor nanquantile(const Tensor& x, double q, std::optional<int> dim = {}, bool keepdim = false,
                   Interpolation interpolation = Interpolation::kLinear);

/// For every value the number of elements of `sorted` (ascending) that are less than it, or with `right` not greater:
/// int64. One dtype. sorted is a vector, or has the values' dimensions before the last.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
/// searchsorted(boundaries, values, right).
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right = false);
/// Whether each element of x equals one of the candidates (NaN equals none): bool.
Tensor isin(const Tensor& x, const Tensor& candidates, bool invert = false);

/// Cumulative sums along dim, in x's shape. Floats are added in fp64 in a fixed order and rounded to x's dtype;
/// integers and bool give int64, which wraps around.
Tensor cumsum(const Tensor& x, int dim);
/// Cumulative products, as cumsum, but computed in fp32 for 16 bits. The gradient is right at zeros too.
Tensor cumprod(const Tensor& x, int dim);
/// log(cumsum(exp(x))) without overflow, of floats.
Tensor logcumsumexp(const Tensor& x, int dim);
/// The largest (smallest) element so far along dim, or NaN from the first NaN on, and the index of the last one that
/// equals it. Any dtype.
SortResult cummax(const Tensor& x, int dim);
SortResult cummin(const Tensor& x, int dim);
/// The differences of neighbours along dim, n times; of bool whether they differ. prepend and append, of x's
/// dimensions, are joined to x first.
Tensor diff(const Tensor& x, int64_t n = 1, int dim = -1, const Tensor& prepend = {}, const Tensor& append = {});

// The size of these results depends on values: on a GPU the host waits for the device, and a captured step fails.

/// The indices of the nonzero elements (NaN is nonzero), in row-major order: int64 [count, x.dim()].
Tensor nonzero(const Tensor& x);
/// values[inverse] is x; counts[i] is how often values[i] occurs. inverse (of x's shape) and counts are int64.
struct UniqueResult {
  Tensor values, inverse, counts;
};
/// The different elements of the flattened x, ascending; every NaN is different. Not differentiable.
UniqueResult unique(const Tensor& x);
/// The same for runs of equal elements, in the order of x.
UniqueResult unique_consecutive(const Tensor& x);
/// The same for slices along dim: values are the different slices, in lexicographic order or, for unique_consecutive,
/// the first of each run, inverse and counts are vectors. unique sorts once for each element of a slice.
UniqueResult unique(const Tensor& x, int dim);
UniqueResult unique_consecutive(const Tensor& x, int dim);
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
/// The elements of x where the bool mask is set, in row-major order of their common broadcast shape: [count].
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace tern
