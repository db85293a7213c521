// Reductions over axes, and softmax.

#include <cmath>
#include <limits>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

using Reduce = Tensor (*)(const Tensor& x, const std::vector<int>& dims, bool keep);

/// The axes: an attribute up to the opset before kSince, then an input. Without axes all, unless told otherwise.
template <int64_t kSince>
bool reduced_axes(const Call& c, std::vector<int>& dims) {
  const bool old = c.opset() < kSince;
  const Numbers axes = old ? c.numbers("axes") : c.has(1) ? c.list(1) : Numbers();
  if (axes.empty() && c.flag("noop_with_empty_axes")) return false;
  dims = wrapped(axes, c.value(0).tensor.dim());
  return true;
}

template <Reduce kReduce, int64_t kSince>
void reduce(Call& c) {
  std::vector<int> dims;
  const Tensor x = c.in(0);
  if (!reduced_axes<kSince>(c, dims)) dims.clear();
  const bool none = x.dim() == 0 || (dims.empty() && c.flag("noop_with_empty_axes"));
  if (none) {  // of each element alone
    const Tensor alone = x.unsqueeze(-1);
    return c.set(0, kReduce(alone, {alone.dim() - 1}, false).to(x.dtype()), c.element(0));
  }
  c.set(0, kReduce(x, dims, c.flag("keepdims", true)).to(x.dtype()), c.element(0));
}

Tensor real(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(float64); }

Tensor l1(const Tensor& x, const std::vector<int>& dims, bool keep) {
  return is_floating(x.dtype()) ? vector_norm(x, 1, dims, keep) : sum(abs(x), dims, keep);
}
Tensor l2(const Tensor& x, const std::vector<int>& dims, bool keep) { return vector_norm(real(x), 2, dims, keep); }
Tensor mean_of(const Tensor& x, const std::vector<int>& dims, bool keep) { return mean(real(x), dims, keep); }
Tensor sum_of(const Tensor& x, const std::vector<int>& dims, bool keep) { return sum(x, dims, keep); }
Tensor product_of(const Tensor& x, const std::vector<int>& dims, bool keep) { return prod(x, dims, keep); }
Tensor log_sum(const Tensor& x, const std::vector<int>& dims, bool keep) { return log(sum(real(x), dims, keep)); }
Tensor log_sum_exp(const Tensor& x, const std::vector<int>& dims, bool keep) { return logsumexp(real(x), dims, keep); }
Tensor sum_square(const Tensor& x, const std::vector<int>& dims, bool keep) { return sum(square(x), dims, keep); }

/// Of nothing the number that changes no other.
template <bool kLargest>
Tensor extreme(const Tensor& x, const std::vector<int>& dims, bool keep) {
  if (x.numel() > 0) return kLargest ? max(x, dims, keep) : min(x, dims, keep);
  const Shape shape = sum(x, dims, keep).shape();
  double value = kLargest ? -INFINITY : INFINITY;
  if (x.dtype() == boolean) value = kLargest ? 0 : 1;
  if (x.dtype() == int32) value = kLargest ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  if (x.dtype() == uint8) value = kLargest ? 0 : 255;
  TERN_CHECK(x.dtype() != int64 || shape.numel() == 0, "the extreme of no int64");
  return full(shape, value, x.options());
}

template <bool kLargest>
void arg_extreme(Call& c) {
  const bool last = c.flag("select_last_index"), keep = c.flag("keepdims", true);
  const int axis = wrapped(c.integer("axis", 0), c.in(0).dim());
  const Tensor x = last ? flip(c.in(0), {axis}) : c.in(0);
  const Tensor first = kLargest ? argmax(x, axis, keep) : argmin(x, axis, keep);
  c.set(0, last ? static_cast<double>(x.size(axis) - 1) - first : first, kInt64);
}

/// Up to opset 12 softmax is taken over all elements from the axis on, from 13 over the axis.
template <Tensor (*kOp)(const Tensor&, int)>
void over_axis(Call& c) {
  const Tensor x = c.in(0);
  const bool old = c.opset() < 13;
  const int axis = wrapped(c.integer("axis", old ? 1 : -1), x.dim());
  if (!old || axis == x.dim() - 1) return c.set(kOp(x, axis));
  c.set(kOp(x.flatten(axis), axis).reshape(x.shape()));
}

Tensor softmax_of(const Tensor& x, int dim) { return softmax(x, dim); }
Tensor log_softmax_of(const Tensor& x, int dim) { return log_softmax(x, dim); }
Tensor hardmax(const Tensor& x, int dim) { return one_hot(argmax(x, dim), x.size(dim)).movedim(-1, dim).to(x.dtype()); }

}  // namespace

void add_reduce_ops(Rows& rows) {
  const Rows own = {
      {"ReduceSum", 1, reduce<sum_of, 13>},
      {"ReduceMean", 1, reduce<mean_of, 18>},
      {"ReduceProd", 1, reduce<product_of, 18>},
      {"ReduceMax", 1, reduce<extreme<true>, 18>},
      {"ReduceMin", 1, reduce<extreme<false>, 18>},
      {"ReduceL1", 1, reduce<l1, 18>},
      {"ReduceL2", 1, reduce<l2, 18>},
      {"ReduceLogSum", 1, reduce<log_sum, 18>},
      {"ReduceLogSumExp", 1, reduce<log_sum_exp, 18>},
      {"ReduceSumSquare", 1, reduce<sum_square, 18>},
      {"ArgMax", 1, arg_extreme<true>},
      {"ArgMin", 1, arg_extreme<false>},
      {"Softmax", 1, over_axis<softmax_of>},
      {"LogSoftmax", 1, over_axis<log_softmax_of>},
      {"Hardmax", 1, over_axis<hardmax>},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
