#include "tern/core/ops/pointwise/function.h"

#include <array>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/pointwise/derivatives.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/tensor_impl.h"

namespace tern {
namespace {

using kernels::ConstView, kernels::PointwisePass, kernels::Saves;

constexpr size_t kMaxSaved = 4;                 // three inputs and the output
constexpr size_t kMaxOperands = kMaxSaved + 2;  // and g, dy in the second derivative

/// Pointers to tensors, in the order of the kernel's operands.
class Operands {
 public:
  void add(const Tensor& x) { addresses_[count_++] = &x; }
  void add(std::span<const Tensor> tensors) {
    for (const Tensor& x : tensors) add(x);
  }
  operator detail::PointwiseInputs() const { return {addresses_, count_}; }  // NOLINT(google-explicit-constructor)

 private:
  const Tensor* addresses_[kMaxOperands];
  size_t count_ = 0;
};

/// The view of x broadcast to `shape`, with stride 0 in broadcast dimensions. An undefined tensor gives an absent view.
ConstView broadcast_view(const Tensor& x, const Shape& shape) {
  if (!x.defined()) return {};
  int64_t strides[kMaxDims] = {};
  const int shift = shape.dims() - x.dim();
  for (int d = 0; d < x.dim(); ++d) strides[d + shift] = x.shape()[d] == 1 ? 0 : x.strides()[d];
  return {x.raw_data(), x.dtype(), shape.dims(), shape.data(), strides};
}

void run_kernel(const detail::PointwiseOp& op, PointwisePass pass, detail::PointwiseInputs inputs, DType compute,
                const Tensor& y) {
  ConstView views[kMaxOperands];
  for (size_t i = 0; i < inputs.size(); ++i) views[i] = broadcast_view(*inputs[i], y.shape());
  kernels::pointwise(current_stream(y.device()), op.call(pass, compute), views, static_cast<int>(inputs.size()),
                     y.view());
}

DType compute_type(const detail::PointwiseOp& op, DType dtype) {
  if (dtype == DType::kFloat64) return DType::kFloat64;
  return is_floating(dtype) || !op.integral ? DType::kFloat32 : DType::kInt64;
}

/// The type to which the inputs are promoted. The bool condition of a ternary op is ignored.
DType common_type(const detail::PointwiseOp& op, detail::PointwiseInputs inputs) {
  if (op.arity == 3 && inputs[0]->dtype() == DType::kBool) inputs = inputs.subspan(1);
  // Promotion is within the tensors with dimensions and within those without, then between the two results.
  bool found[2] = {};
  DType dtypes[2] = {};
  for (const Tensor* x : inputs) {
    const int kind = x->dim() > 0;
    dtypes[kind] = found[kind] ? promote(dtypes[kind], x->dtype()) : x->dtype();
    found[kind] = true;
  }
  const DType dtype = !found[1] ? dtypes[0] : !found[0] ? dtypes[1] : promote_dimensioned(dtypes[1], dtypes[0]);
  return is_floating(dtype) || op.integral ? dtype : DType::kFloat32;
}

/// The op's index in BuiltinOps, or -1.
int builtin_of(const detail::PointwiseOp& op) { return op.call({}, DType::kFloat32).builtin; }

/// Records dx = dy * derivative(saved), so that a gradient can be differentiated again. Inputs: dy, saved.
class PointwiseBackward final : public detail::Node {
 public:
  PointwiseBackward(const detail::PointwiseOp& op, int input) : op_(op), input_(input) { detail::end_construction(); }
  const char* name() const override { return op_.name; }
  /// The derivative by the saved tensors is a kernel or, where ops can take its place, made of them; the derivative by
  /// dy is this op.
  bool twice_differentiable() const override {
    return detail::derivative_of_ops(builtin_of(op_)) != nullptr || !depends_on_saved();
  }

  void save(const Tensor& dy, std::span<const Tensor> saved) {
    dy_ = dy;
    count_ = saved.size();
    for (size_t s = 0; s < count_; ++s)
      if (saved[s].defined()) saved_[s] = saved[s];
  }

  Grads run(const Grads& output_grads) override {
    const Tensor& g = output_grads[0];
    Tensor tensors[kMaxSaved];
    for (size_t s = 0; s < count_; ++s) tensors[s] = saved_[s].get_or_none();
    const std::span<const Tensor> saved(tensors, count_);
    const Tensor dy = dy_.get();
    Grads grads(count_ + 1);
    if (needs_grad(0)) grads[0] = detail::pointwise_derivative(op_, input_, g, saved);
    if (grad_enabled() && depends_on_saved()) {
      second_of_ops(g, dy, saved, grads);
      return grads;
    }
    for (size_t s = 0; s < count_; ++s) {
      if (!needs_grad(static_cast<int>(s) + 1)) continue;
      Operands operands;
      operands.add(g);
      operands.add(dy);
      operands.add(saved);
      grads[s + 1] = empty(g.shape(), g.options());
      run_kernel(op_, {PointwisePass::kSecond, input_, static_cast<int>(s)}, operands, compute_type(op_, g.dtype()),
                 grads[s + 1]);
    }
    return grads;
  }

 private:
  bool depends_on_saved() const {
    for (size_t s = 0; s < count_; ++s)
      if (needs_grad(static_cast<int>(s) + 1)) return true;
    return false;
  }

  /// The gradients by the saved tensors, recorded: those of the derivative made of ops. Computed in fp32 for 16 bits.
  void second_of_ops(const Tensor& g, const Tensor& dy, std::span<const Tensor> saved, Grads& grads) const {
    const auto wide = [](const Tensor& x) { return is_low_precision(x.dtype()) ? x.to(DType::kFloat32) : x; };
    // Another handle for each: several may be one tensor, whose gradient would come back as their sum.
    Tensor values[kMaxSaved];
    std::vector<Tensor> wanted;
    for (size_t s = 0; s < count_; ++s) {
      if (saved[s].defined()) values[s] = wide(saved[s]).unsqueeze(0).squeeze(0);
      if (needs_grad(static_cast<int>(s) + 1)) wanted.push_back(values[s]);
    }
    const Tensor dx = detail::derivative_of_ops(builtin_of(op_))(op_.parameters, input_, wide(dy), {values, count_});
    std::vector<Tensor> second(wanted.size());
    if (dx.requires_grad())  // not where the derivative is constant between kinks
      second = grad({dx}, wanted, {.gradients = {wide(g)}, .create_graph = true, .allow_unused = true});
    for (size_t s = 0, i = 0; s < count_; ++s) {
      if (!needs_grad(static_cast<int>(s) + 1)) continue;
      grads[s + 1] = second[i].defined() ? second[i] : zeros_like(wanted[i]);
      ++i;
    }
  }

  const detail::PointwiseOp op_;
  const int input_;
  size_t count_ = 0;
  Saved dy_;
  std::array<Saved, kMaxSaved> saved_;
};

/// The node of a forward op.
class PointwiseForward final : public detail::Node {
 public:
  explicit PointwiseForward(const detail::PointwiseOp& op) : op_(op) { detail::end_construction(); }
  const char* name() const override { return op_.name; }
  bool twice_differentiable() const override { return true; }

  void save(detail::PointwiseInputs inputs, const Tensor& y) {
    uint32_t needed = 0;
    for (int i = 0; i < op_.arity; ++i)
      if (needs_grad(i)) needed |= op_.needs[i];
    const bool keeps_inputs = op_.saves == Saves::kInputs || op_.saves == Saves::kBoth;
    const int output_bit = keeps_inputs ? op_.arity : 0;
    for (int i = 0; keeps_inputs && i < op_.arity; ++i)
      if (needed >> i & 1) inputs_[static_cast<size_t>(i)] = *inputs[static_cast<size_t>(i)];
    if (op_.saves != Saves::kInputs && op_.saves != Saves::kNone && (needed >> output_bit & 1)) output_ = y;
  }

  Grads run(const Grads& output_grads) override {
    Tensor tensors[kMaxSaved];
    size_t count = 0;
    if (op_.saves == Saves::kInputs || op_.saves == Saves::kBoth)
      for (int i = 0; i < op_.arity; ++i, ++count) tensors[count] = inputs_[static_cast<size_t>(i)].get_or_none();
    if (op_.saves == Saves::kOutput || op_.saves == Saves::kBoth) tensors[count++] = output_.get_or_none();
    Grads grads(static_cast<size_t>(op_.arity));
    for (int i = 0; i < op_.arity; ++i)
      if (needs_grad(i) && op_.differentiable[i])
        grads[static_cast<size_t>(i)] = detail::pointwise_derivative(op_, i, output_grads[0], {tensors, count});
    return grads;
  }

 private:
  const detail::PointwiseOp op_;
  std::array<Saved, 3> inputs_;
  SavedOutput output_;
};

/// The device of the op: a number on the CPU (a tensor without dimensions) moves to the device of the others.
Device op_device(detail::PointwiseInputs inputs) {
  for (const Tensor* x : inputs)
    if (!x->device().is_cpu() || x->dim() > 0) return x->device();
  return inputs[0]->device();
}

bool all_on(Device device, detail::PointwiseInputs inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](const Tensor* x) { return x->device() == device; });
}

Shape result_shape(const detail::PointwiseOp& op, detail::PointwiseInputs inputs) {
  TERN_CHECK(static_cast<int>(inputs.size()) == op.arity, op.name, ": expected ", op.arity, " inputs, got ",
             inputs.size());
  Shape shape;
  for (const Tensor* x : inputs) {
    TERN_CHECK(x->defined(), op.name, ": an input is undefined");
    shape = x == inputs[0] ? x->shape() : broadcast_shapes(op.name, shape, x->shape());
  }
  const Device device = op_device(inputs);
  for (const Tensor* x : inputs)
    TERN_CHECK(x->device() == device || (x->device().is_cpu() && x->dim() == 0), op.name, ": inputs are on ", device,
               " and ", x->device(), "; copy one with to(device)");
  return shape;
}

bool is_expanded(const Tensor& x) {
  for (int d = 0; d < x.dim(); ++d)
    if (x.strides()[static_cast<size_t>(d)] == 0 && x.size(d) > 1) return true;
  return false;
}

/// In memory like the first input of the result's shape that was not expanded to it, if that has its channels last.
Tensor empty_result(detail::PointwiseInputs inputs, const Shape& shape, const TensorOptions& options) {
  if (shape.dims() < 3) return empty(shape, options);
  for (const Tensor* x : inputs)
    if (x->defined() && x->shape() == shape && !is_expanded(*x)) return detail::empty_ordered_like(*x, options);
  return empty(shape, options);
}

Tensor apply_in_dtype(const detail::PointwiseOp& op, detail::PointwiseInputs inputs, const Shape& shape) {
  const ProfileRange range(op.name, RangeKind::kOp);
  AllocationTag tag(op.name);
  const DType dtype = common_type(op, inputs);
  const Tensor y = empty_result(inputs, shape, {op.bool_result ? DType::kBool : dtype, inputs[0]->device()});
  run_kernel(op, {}, inputs, compute_type(op, dtype), y);

  const int count = static_cast<int>(inputs.size());
  if (range.recording()) range.count_tensors(inputs.data(), count, &y, 1);
  if (anomaly_mode() != Anomaly::kOff) detail::check_anomaly_forward(op.name, inputs.data(), count, y);
  if (is_floating(y.dtype()) && detail::should_record(inputs.data(), count)) {
    auto node = std::make_shared<PointwiseForward>(op);
    for (const Tensor* x : inputs) detail::check_input(op.name, *x);
    node->add_inputs(inputs.data(), count, true);
    node->save(inputs, y);
    detail::set_history(y, node, 0);
  }
  return y;
}

}  // namespace

// The saved tensors that the derivative does not read are undefined.
Tensor detail::pointwise_derivative(const detail::PointwiseOp& op, int input, const Tensor& dy,
                                    std::span<const Tensor> saved) {
  if (op.saves == Saves::kNone) return op.slope[input] == 1 ? dy : mul(dy, op.slope[input]);
  if (grad_enabled() && detail::derivative_is_cheap(builtin_of(op)))
    return detail::derivative_of_ops(builtin_of(op))(op.parameters, input, dy, saved);
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "derivative",
        [](const char*, const PointwiseOp& recorded, int by, const Tensor& gradient, const std::vector<Tensor>& all) {
          return pointwise_derivative(recorded, by, gradient, all);
        },
        op.name, op, input, dy, std::vector<Tensor>(saved.begin(), saved.end()));
  Operands operands;
  operands.add(dy);
  operands.add(saved);
  const detail::PointwiseInputs inputs = operands;
  const Tensor dx = empty_result(inputs, dy.shape(), dy.options());
  run_kernel(op, {PointwisePass::kBackward, input, 0}, inputs, compute_type(op, dy.dtype()), dx);
  if (const int count = static_cast<int>(inputs.size()); detail::should_record(inputs.data(), count)) {
    auto node = std::make_shared<PointwiseBackward>(op, input);
    node->add_inputs(inputs.data(), count, true);
    node->save(dy, saved);
    detail::set_history(dx, node, 0);
  }
  return dx;
}

void detail::pointwise_into(const detail::PointwiseOp& op, detail::PointwiseInputs inputs, const Tensor& y) {
  const ProfileRange range(op.name, RangeKind::kOp);
  const DType dtype = common_type(op, inputs);
  TERN_CHECK(is_floating(y.dtype()) || !is_floating(dtype), op.name, ": the result is ", dtype,
             " and cannot be written into a tensor of ", y.dtype(), "; use the op that returns a new tensor");
  run_kernel(op, {}, inputs, compute_type(op, dtype), y);
  if (!range.recording()) return;
  double bytes = static_cast<double>(y.nbytes());  // y may be an input too, and is then read and written
  for (const Tensor* x : inputs) bytes += static_cast<double>(x->nbytes());
  profile_bytes(bytes);
}

namespace {
/// The call of an op, recorded.
Tensor record_pointwise(detail::TraceSink& sink, const detail::PointwiseOp& op, detail::PointwiseInputs inputs) {
  const auto run = [](const detail::PointwiseOp& recorded, const auto&... tensors) {
    const Tensor* const addresses[] = {&tensors...};
    return detail::apply_pointwise(recorded, addresses);
  };
  switch (inputs.size()) {
    case 1:
      return detail::record_call(sink, op.name, run, op, *inputs[0]);
    case 2:
      return detail::record_call(sink, op.name, run, op, *inputs[0], *inputs[1]);
    default:
      return detail::record_call(sink, op.name, run, op, *inputs[0], *inputs[1], *inputs[2]);
  }
}
}  // namespace

Tensor detail::apply_pointwise(const detail::PointwiseOp& op, detail::PointwiseInputs inputs) {
  if (detail::TraceSink* const sink = detail::active_trace()) {
    TERN_CHECK(static_cast<int>(inputs.size()) == op.arity, op.name, ": expected ", op.arity, " inputs, got ",
               inputs.size());
    return record_pointwise(*sink, op, inputs);
  }
  const Shape shape = result_shape(op, inputs);
  if (const Device device = op_device(inputs); !all_on(device, inputs)) {
    Operands moved;
    std::array<Tensor, 3> values;
    for (size_t i = 0; i < inputs.size(); ++i) moved.add(values[i] = inputs[i]->to(device));
    return detail::apply_pointwise(op, moved);
  }
  if (!autocast_enabled(inputs[0]->device())) return apply_in_dtype(op, inputs, shape);
  Tensor converted[3];
  Operands operands;
  std::vector<Tensor*> addresses;
  for (size_t i = 0; i < inputs.size(); ++i) {
    converted[i] = *inputs[i];
    operands.add(converted[i]);
    addresses.push_back(&converted[i]);
  }
  detail::autocast_inputs(op.name, addresses);
  return apply_in_dtype(op, operands, shape);
}

}  // namespace tern
