#include "tern/core/ops/matmul/distance.h"

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/vector_norm.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/cdist.h"

namespace tern {
namespace {

Tensor lengths_of(const Tensor& differences, double order) {
  if (differences.size(-1) == 0) return sum(differences, {-1});  // a largest difference would not exist
  return vector_norm(differences, order, {-1});
}
void check_order(const char* op, double order) {
  TERN_CHECK(order >= 0, op, ": the order must not be negative, got ", order);
}

/// The distances of the rows of x [batch, m, d] and z [batch, n, d].
struct Distances final : TwiceDifferentiable<Distances> {
  static constexpr const char* kName = "cdist";
  double order_ = 2;
  Saved x_, z_;
  SavedOutput y_;

  Tensor forward(const Tensor& x, const Tensor& z, double order) {
    const Tensor y = empty({x.size(0), x.size(1), z.size(1)}, x.options());
    kernels::cdist_forward(current_stream(x.device()), order, x.view(), z.view(), y.view());
    order_ = order;
    x_ = x;
    z_ = z;
    y_ = y;
    return y;
  }
  Grads backward(const Tensor& dy) override { return grad_enabled() ? by_ops(dy) : by_kernel(dy); }

  Grads by_kernel(const Tensor& dy) {
    const Tensor x = x_.get(), z = z_.get(), y = y_.get();
    const Tensor dx = needs_grad(0) ? empty_like(x) : Tensor(), dz = needs_grad(1) ? empty_like(z) : Tensor();
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(x.device(), [&] { return kernels::cdist_backward_workspace(stream, order_, y.view()); });
    kernels::cdist_backward(stream, order_, x.view(), z.view(), y.view(), dy.contiguous().view(), workspace.data(),
                            dx.view(), dz.view());
    return {dx, dz};
  }
  /// Gradients that can be differentiated: those of the same distances made of ops, for which all differences are
  /// stored.
  Grads by_ops(const Tensor& dy) {
    // Other handles: x and z may be one tensor, or one may be computed of the other.
    const Tensor x = x_.get().unsqueeze(-2), z = z_.get().unsqueeze(-3);
    const Tensor y = lengths_of(sub(x, z), order_);
    std::vector<Tensor> inputs;
    if (needs_grad(0)) inputs.push_back(x);
    if (needs_grad(1)) inputs.push_back(z);
    const std::vector<Tensor> found = grad({y}, inputs, {.gradients = {dy}, .create_graph = true});
    return {needs_grad(0) ? found.front().squeeze(-2) : Tensor(), needs_grad(1) ? found.back().squeeze(-3) : Tensor()};
  }
};

}  // namespace

Tensor pdist(const Tensor& x, double order) {
  TERN_CHECK(x.dim() == 2 && is_floating(x.dtype()), "pdist: expected floating rows [n, d], got ", x.describe());
  check_order("pdist", order);
  const Tensor pairs = triu_indices(x.size(0), x.size(0), 1, {DType::kInt64, x.device()});
  return lengths_of(sub(index_select(x, 0, pairs[0]), index_select(x, 0, pairs[1])), order);
}

Tensor cdist(const Tensor& a, const Tensor& b, double order) {
  TERN_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1), "cdist: expected rows of equal length, got ",
             a.shape(), " and ", b.shape());
  check_order("cdist", order);
  const Shape left(a.shape().data(), a.dim() - 2), right(b.shape().data(), b.dim() - 2);
  const Shape batch = broadcast_shapes("cdist", left, right);
  const DType promoted = promote(a, b);
  Tensor x = a.to(is_floating(promoted) ? promoted : float32), z = b.to(x.dtype());
  detail::autocast_inputs("norm", {&x, &z});
  const auto stacked = [&](const Tensor& rows) {
    std::vector<int64_t> sizes = batch.vec();
    sizes.insert(sizes.end(), {rows.size(-2), rows.size(-1)});
    return rows.expand(Shape(sizes)).reshape({batch.numel(), rows.size(-2), rows.size(-1)}).contiguous();
  };
  const Tensor y = Distances::apply(stacked(x), stacked(z), order);
  std::vector<int64_t> sizes = batch.vec();
  sizes.insert(sizes.end(), {a.size(-2), b.size(-2)});
  return y.reshape(Shape(sizes));
}

}  // namespace tern
