#include "tern/core/autograd/pointwise_function.h"

#include <array>

#include "tern/core/allocator.h"
#include "tern/core/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/pointwise.h"

namespace tern {
namespace {

using kernels::ConstView;
using kernels::PointwisePass;
using kernels::Saves;

/// The view of x broadcast to `shape`, with stride 0 where it repeats. An undefined tensor gives the absent view.
ConstView broadcast_view(const Tensor& x, const Shape& shape) {
  if (!x.defined()) return {};
  int64_t strides[kMaxDims] = {};
  const int shift = shape.dims() - x.dim();
  for (int d = 0; d < x.dim(); ++d) strides[d + shift] = x.shape()[d] == 1 ? 0 : x.strides()[d];
  return {x.raw_data(), x.dtype(), shape.dims(), shape.data(), strides};
}

void run_kernel(const PointwiseOp& op, PointwisePass pass, const std::vector<Tensor>& inputs, DType compute,
                const Tensor& y) {
  ConstView views[6];
  for (size_t i = 0; i < inputs.size(); ++i) views[i] = broadcast_view(inputs[i], y.shape());
  kernels::pointwise(current_stream(y.device()), op.call(pass, compute), views, static_cast<int>(inputs.size()),
                     y.view());
}

DType compute_type(const PointwiseOp& op, DType dtype) {
  if (dtype == DType::kFloat64) return DType::kFloat64;
  return is_floating(dtype) || !op.integral ? DType::kFloat32 : DType::kInt64;
}

/// The type in which the inputs meet.
DType common_type(const PointwiseOp& op, const std::vector<Tensor>& inputs) {
  // The condition of a ternary op does not take part.
  const size_t first = op.arity == 3 && inputs[0].dtype() == DType::kBool ? 1 : 0;
  DType dtype = inputs[first].dtype();
  for (size_t i = first + 1; i < inputs.size(); ++i) {
    const bool dimensioned = inputs[i].dim() > 0, before = inputs[i - 1].dim() > 0;
    if (i == first + 1) dtype = promote(inputs[i - 1], inputs[i]);
    else if (dimensioned == before) dtype = promote(dtype, inputs[i].dtype());
  }
  return is_floating(dtype) || op.integral ? dtype : DType::kFloat32;
}

Tensor derivative(const PointwiseOp& op, int input, const Tensor& dy, const std::vector<Tensor>& saved);

/// Records dx = dy * derivative(saved), so that a gradient can be differentiated again. Inputs: dy, saved.
class PointwiseBackward final : public Node {
 public:
  PointwiseBackward(const PointwiseOp& op, int input) : op_(op), input_(input) { detail::end_construction(); }
  const char* name() const override { return op_.name; }

  void save(const Tensor& dy, const std::vector<Tensor>& saved) {
    dy_ = dy;
    count_ = saved.size();
    for (size_t s = 0; s < count_; ++s)
      if (saved[s].defined()) saved_[s] = saved[s];
  }

  Grads run(const Grads& output_grads) override {
    const Tensor& g = output_grads[0];
    std::vector<Tensor> saved(count_);
    for (size_t s = 0; s < count_; ++s)
      if (saved_[s].defined()) saved[s] = saved_[s].get();
    Grads grads(count_ + 1);
    if (needs_grad(0)) grads[0] = derivative(op_, input_, g, saved);
    for (size_t s = 0; s < count_; ++s) {
      if (!needs_grad(static_cast<int>(s) + 1)) continue;
      std::vector<Tensor> inputs = {g, dy_.get()};
      inputs.insert(inputs.end(), saved.begin(), saved.end());
      grads[s + 1] = empty(g.shape(), g.options());
      run_kernel(op_, {PointwisePass::kSecond, input_, static_cast<int>(s)}, inputs, compute_type(op_, g.dtype()),
                 grads[s + 1]);
    }
    return grads;
  }

 private:
  const PointwiseOp op_;
  const int input_;
  size_t count_ = 0;
  Saved dy_;
  std::array<Saved, 4> saved_;
};

/// dy * d op / d input at the saved tensors; absent (undefined) where the derivative does not read them.
Tensor derivative(const PointwiseOp& op, int input, const Tensor& dy, const std::vector<Tensor>& saved) {
  if (op.saves == Saves::kNone) return op.slope[input] == 1 ? dy : mul(dy, op.slope[input]);
  std::vector<const Tensor*> inputs = {&dy};
  std::vector<Tensor> tensors = {dy};
  for (const Tensor& s : saved) {
    inputs.push_back(&s);
    tensors.push_back(s);
  }
  const Tensor dx = empty(dy.shape(), dy.options());
  {
    NoGrad off;
    run_kernel(op, {PointwisePass::kBackward, input, 0}, tensors, compute_type(op, dy.dtype()), dx);
  }
  if (detail::should_record(inputs.data(), static_cast<int>(inputs.size()))) {
    auto node = std::make_shared<PointwiseBackward>(op, input);
    node->set_recorded(true);
    for (const Tensor* x : inputs) node->add_input(*x, true);
    node->save(dy, saved);
    set_history(dx, node, 0);
  }
  return dx;
}

/// The node of a forward op.
class PointwiseForward final : public Node {
 public:
  explicit PointwiseForward(const PointwiseOp& op) : op_(op) { detail::end_construction(); }
  const char* name() const override { return op_.name; }
  bool twice_differentiable() const override { return true; }

  void save(const std::vector<Tensor>& inputs, const Tensor& y) {
    uint32_t needed = 0;
    for (int i = 0; i < op_.arity; ++i)
      if (needs_grad(i)) needed |= op_.needs[i];
    const bool keeps_inputs = op_.saves == Saves::kInputs || op_.saves == Saves::kBoth;
    const int output_bit = keeps_inputs ? op_.arity : 0;
    for (int i = 0; keeps_inputs && i < op_.arity; ++i)
      if (needed >> i & 1) inputs_[static_cast<size_t>(i)] = inputs[static_cast<size_t>(i)];
    if (op_.saves != Saves::kInputs && op_.saves != Saves::kNone && (needed >> output_bit & 1)) output_ = y;
  }

  Grads run(const Grads& output_grads) override {
    std::vector<Tensor> saved;
    if (op_.saves == Saves::kInputs || op_.saves == Saves::kBoth)
      for (int i = 0; i < op_.arity; ++i)
        saved.push_back(inputs_[static_cast<size_t>(i)].defined() || released() ? inputs_[static_cast<size_t>(i)].get()
                                                                               : Tensor());
    if (op_.saves == Saves::kOutput || op_.saves == Saves::kBoth)
      saved.push_back(output_.defined() || released() ? output_.get() : Tensor());
    Grads grads(static_cast<size_t>(op_.arity));
    for (int i = 0; i < op_.arity; ++i)
      if (needs_grad(i) && op_.differentiable[i])
        grads[static_cast<size_t>(i)] = derivative(op_, i, output_grads[0], saved);
    return grads;
  }

 private:
  const PointwiseOp op_;
  std::array<Saved, 3> inputs_;
  SavedOutput output_;
};

Shape result_shape(const PointwiseOp& op, const std::vector<Tensor>& inputs) {
  TERN_CHECK(static_cast<int>(inputs.size()) == op.arity, op.name, ": expected ", op.arity, " inputs, got ",
             inputs.size());
  Shape shape;
  for (const Tensor& x : inputs) {
    TERN_CHECK(x.defined(), op.name, ": an input is undefined");
    TERN_CHECK(x.device() == inputs[0].device() || (x.device().is_cpu() && x.dim() == 0), op.name, ": inputs are on ",
               inputs[0].device(), " and ", x.device(), "; copy one with to(device)");
    shape = broadcast_shapes(op.name, shape, x.shape());
  }
  return shape;
}

}  // namespace

void pointwise_into(const PointwiseOp& op, const std::vector<Tensor>& inputs, const Tensor& y) {
  run_kernel(op, {}, inputs, compute_type(op, common_type(op, inputs)), y);
}

Tensor apply_pointwise(const PointwiseOp& op, const std::vector<Tensor>& given) {
  std::vector<Tensor> inputs = given;
  const Shape shape = result_shape(op, inputs);
  std::vector<Tensor*> pointers;
  for (Tensor& x : inputs) pointers.push_back(&x);
  autocast_inputs(op.name, pointers);

  AllocationTag tag(op.name);
  const DType dtype = common_type(op, inputs);
  const Tensor y = empty(shape, {op.bool_result ? DType::kBool : dtype, inputs[0].device()});
  run_kernel(op, {}, inputs, compute_type(op, dtype), y);

  std::vector<const Tensor*> tensors(pointers.begin(), pointers.end());
  const int count = static_cast<int>(tensors.size());
  if (anomaly_mode() != Anomaly::kOff) detail::check_anomaly_forward(op.name, tensors.data(), count, y);
  if (is_floating(y.dtype()) && detail::should_record(tensors.data(), count)) {
    auto node = std::make_shared<PointwiseForward>(op);
    node->set_recorded(true);
    for (const Tensor* x : tensors) {
      detail::check_input(op.name, *x);
      node->add_input(*x, true);
    }
    node->save(inputs, y);
    set_history(y, node, 0);
  }
  return y;
}

}  // namespace tern
