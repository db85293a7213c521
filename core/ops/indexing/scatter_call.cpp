#include "tern/core/ops/indexing/scatter_call.h"

#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/scatter.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/embedding.h"

namespace tern {
namespace {

using kernels::ScatterMode;

/// True where an element of the index is the last of those that name the same element of a tensor of this shape.
Tensor is_last_writer(const Tensor& index, int dim, const Shape& shape) {
  const NoGrad off;
  const Tensor order = arange(0, static_cast<double>(index.numel()), 1, index.options()).reshape(index.shape());
  return eq(gather(scatter(zeros(shape, index.options()), dim, index, order), dim, index), order);
}

/// Assigns or adds the source to elements of x.
struct ScatterAlong final : TwiceDifferentiable<ScatterAlong> {
  static constexpr const char* kName = "scatter";
  Saved index_;
  int dim_ = 0;
  bool adds_ = false;
  Tensor forward(const Tensor& x, const Tensor& source, const detail::ScatterCall& call) {
    index_ = call.index;
    dim_ = call.dim;
    adds_ = call.mode == ScatterMode::kAdd;
    const Tensor y = x.clone();
    detail::write(y, {call.op, call.mode, call.dim, call.index, source});
    return y;
  }
  Grads backward(const Tensor& dy) override {
    const Tensor index = index_.get();
    Grads grads(2);
    if (needs_grad(0)) grads[0] = adds_ ? dy : scatter(dy, dim_, index, 0.0);
    if (needs_grad(1)) {
      const Tensor read = gather(dy, dim_, index);
      grads[1] = adds_ ? read : where(is_last_writer(index, dim_, dy.shape()), read, 0.0);
    }
    return grads;
  }
};

/// Products and extremes of elements of x and source.
struct ScatterCombined final : TwiceDifferentiable<ScatterCombined> {
  static constexpr const char* kName = "scatter_reduce";
  Saved x_, source_, index_;
  SavedOutput y_;
  int dim_ = 0;
  ScatterMode mode_ = ScatterMode::kMultiply;
  Tensor forward(const Tensor& x, const Tensor& source, const detail::ScatterCall& call) {
    x_ = x;
    source_ = source;
    index_ = call.index;
    dim_ = call.dim;
    mode_ = call.mode;
    const Tensor y = x.clone();
    detail::write(y, {call.op, call.mode, call.dim, call.index, source});
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override {
    return mode_ == ScatterMode::kMultiply ? product_gradients(dy) : extreme_gradients(dy);
  }

 private:
  /// Elements that equal the result share its gradient.
  Grads extreme_gradients(const Tensor& dy) {
    const Tensor x = x_.get(), source = source_.get(), index = index_.get(), y = y_.get();
    const Tensor of_x = eq(x, y).detach(), of_source = eq(source, gather(y, dim_, index)).detach();
    const DType wide = detail::accumulation_type(dy.dtype());  // 65,520 equal ones are infinitely many in float16
    const Tensor count = scatter_add(of_x.to(wide), dim_, index, of_source.to(wide));
    const Tensor share = div(dy.to(wide), count).to(dy.dtype());
    return {where(of_x, share, 0.0), where(of_source, gather(share, dim_, index), 0.0)};
  }
  /// The derivative by a factor is the product of the others: of the factors that are not 0, if no other is 0. In fp32
  /// for 16-bit floats, whose product may leave their range although a quotient of it is inside.
  Grads product_gradients(const Tensor& gradient_of_y) {
    const DType dtype = gradient_of_y.dtype(), wide = detail::accumulation_type(dtype);
    const Tensor dy = gradient_of_y.to(wide), x = x_.get().to(wide), source = source_.get().to(wide),
                 index = index_.get();
    const Tensor x_is_0 = eq(x, 0.0), source_is_0 = eq(source, 0.0);
    const Tensor left = where(x_is_0, 1.0, x), right = where(source_is_0, 1.0, source);
    const Tensor product = scatter_reduce(left, dim_, index, right, ScatterReduction::kProd);
    const Tensor zero_count = scatter_add(x_is_0.to(DType::kInt64), dim_, index, source_is_0.to(DType::kInt64));
    const auto gradient = [](const Tensor& others, const Tensor& is_0, const Tensor& zeros_of, const Tensor& factor) {
      return where(eq(zeros_of, is_0.to(DType::kInt64)), div(others, factor), 0.0);
    };
    const Tensor dx = gradient(mul(dy, product), x_is_0, zero_count, left);
    const Tensor read = gather(mul(dy, product), dim_, index);
    const Tensor dsource = gradient(read, source_is_0, gather(zero_count, dim_, index), right);
    return {dx.to(dtype), dsource.to(dtype)};
  }
};

}  // namespace

std::string detail::describe_fault(const kernels::IndexFault& fault, const Tensor& index, int dim, int64_t low,
                                   int64_t high) {
  bool expanded = index.dim() > 1;
  int64_t inner = 1, copies = 1;
  for (int e = 0; e < index.dim(); ++e) {
    if (e == dim) continue;
    expanded = expanded && (index.strides()[e] == 0 || index.size(e) == 1);
    copies *= index.size(e);
    if (e > dim) inner *= index.size(e);
  }
  const int64_t position = expanded ? fault.first / inner % index.size(dim) : fault.first;
  const int64_t value = index.contiguous().reshape({-1})[fault.first].item<int64_t>();
  return detail::concatenate("index ", value, " at position ", position, " is outside [", low, ", ", high, ") (",
                             expanded ? fault.count / copies : fault.count, " in all)");
}

detail::ScatterCall detail::scatter_call(const char* op, ScatterMode mode, const Tensor& input, int dim,
                                         const Tensor& given_index, const Tensor& given_source) {
  check_one_device(op, {&input, &given_index, &given_source});
  const Tensor x = with_dims(input), index = with_dims(given_index);
  Tensor source = with_dims(given_source);
  const int i = x.shape().wrap(dim);
  TERN_CHECK(index.dtype() == DType::kInt64 && index.dim() == x.dim(), op, ": index must be int64 with ", x.dim(),
             " dimensions, got ", index.describe(),
             "; convert with .to(int64), and use unsqueeze and expand for a vector, or index_add and index_copy");
  TERN_CHECK(source.dtype() == x.dtype() && source.dim() == x.dim(), op, ": the source must be ", x.dtype(), " with ",
             x.dim(), " dimensions, as x, got ", source.describe());
  for (int d = 0; d < x.dim(); ++d) {
    TERN_CHECK((d == i || index.size(d) <= x.size(d)) && index.size(d) <= source.size(d), op, ": index ", index.shape(),
               " is larger than x ", x.shape(), " or the source ", source.shape(), " in dimension ", d);
    source = source.slice(d, 0, index.size(d));
  }
  return {op, mode, i, index, source};
}

detail::ScatterCall detail::slices_call(const char* op, ScatterMode mode, const Tensor& input, int dim,
                                        const Tensor& given_index, const Tensor& given_source) {
  const Tensor x = with_dims(input), index = with_dims(given_index);
  const int i = x.shape().wrap(dim);
  TERN_CHECK(index.dim() == 1 && (index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32), op,
             ": index must be int64 or int32 with one dimension, got ", given_index.describe());
  const Shape shape = x.shape().with(i, index.numel());
  const Tensor source = given_source.dim() == 0 ? given_source.expand(shape) : given_source;
  TERN_CHECK(source.shape() == shape, op, ": the source must be ", shape, ", got ", given_source.shape());
  std::vector<int64_t> column(static_cast<size_t>(x.dim()), 1);
  column[static_cast<size_t>(i)] = index.numel();
  return scatter_call(op, mode, x, i, index.to(DType::kInt64).reshape(column).expand(shape), source);
}

void detail::scatter_into(const Tensor& y, ScatterMode mode, int dim, const Tensor& index, const Tensor& source,
                          kernels::IndexFault* fault) {
  const kernels::Stream stream = current_stream(y.device());
  const Workspace workspace(y.device(),
                            [&] { return kernels::scatter_workspace(stream, mode, dim, index.view(), y.view()); });
  kernels::scatter(stream, mode, source.view(), dim, index.view(), workspace.data(), y.view(), fault);
}

void detail::write(const Tensor& y, const ScatterCall& call) {
  const NoGrad off;
  const Tensor target = with_dims(y);
  IndexCheck check(call.op, y.device());
  scatter_into(target, call.mode, call.dim, call.index, call.source, check.data());
  TERN_CHECK(check.passed(), call.op, ": ",
             describe_fault(check.found(), call.index, call.dim, 0, target.size(call.dim)));
}

Tensor detail::written(const Tensor& x, const ScatterCall& call) {
  const Tensor whole = with_dims(x);
  const bool simple = call.mode == ScatterMode::kAssign || call.mode == ScatterMode::kAdd;
  const Tensor y =
      simple ? ScatterAlong::apply(whole, call.source, call) : ScatterCombined::apply(whole, call.source, call);
  return y.reshape(x.shape());
}

}  // namespace tern
