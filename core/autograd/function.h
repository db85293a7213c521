#pragma once
// A differentiable op is one struct that is also its graph node:
//
//   struct Scale final : Function<Scale> {
//     static constexpr const char* kName = "scale";
//     double factor_;                                   // what backward needs is a member; tensors are Saved
//     Tensor forward(const Tensor& x, double factor) { factor_ = factor; return ...; }
//     Grads backward(const Tensor& dy) override { return {mul(dy, factor_)}; }
//   };
//   Tensor scale(const Tensor& x, double factor) { return Scale::apply(x, factor); }
//
// backward returns one gradient per *tensor* argument of forward, in order (undefined: none). A tensor argument that
// never has a gradient may be passed as Constant{x}: forward takes a Constant, and backward returns nothing for it.
// forward runs without recording. In both, needs_grad(i) is true when the gradient of tensor argument i is needed. An
// op with several outputs returns std::vector<Tensor> from forward and overrides backward_all; plain backward, which
// gets only the gradient of the first output, is an Error when another output is floating. The gradient of an output
// that nothing depends on is undefined in backward_all (PyTorch gives zeros): check defined(). An output that backward
// needs is a SavedOutput member; a Saved is an Error, because op and output would hold each other and never be freed.
// apply rejects tensor arguments on different devices; the engine sums a gradient over broadcast dimensions and checks
// its shape, dtype and device. An op whose backward consists of differentiable ops derives from TwiceDifferentiable
// instead.

#include <initializer_list>
#include <type_traits>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/saved.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/recorded_call.h"

namespace tern {

namespace detail {
template <class T>
inline constexpr bool kIsTensor = std::is_convertible_v<const T&, const Tensor&>;

/// Ends the period in which Saved members attach themselves to the node under construction.
void end_construction();
/// True when any defined input requires a gradient and recording is on.
bool requires_record(const Tensor* const* inputs, int count);
/// The same for the op that begins now; a recomputation records it.
bool should_record(const Tensor* const* inputs, int count);
/// Throws Error when a view's base was changed in place after the view was made.
void check_input(const char* op, const Tensor& input);
/// Returns the output, or a new handle to it when forward returned an input or a tensor that is referenced elsewhere.
/// Throws Error when one of the node's Saved holds the output.
Tensor fresh_output(const Node& node, const Tensor* const* inputs, int count, const Tensor& output);
/// Throws Error when an output after the first is floating: its gradient would be lost.
void check_one_gradient(const char* op, const Tensor* outputs, size_t count);
void check_anomaly_forward(const char* op, const Tensor* const* inputs, int count, const Tensor& output);
/// Throws Error unless the defined tensors are all on one device: a kernel cannot read the memory of another.
void check_one_device(const char* op, const Tensor* const* inputs, int count);
inline void check_one_device(const char* op, std::initializer_list<const Tensor*> inputs) {
  check_one_device(op, inputs.begin(), static_cast<int>(inputs.size()));
}
}  // namespace detail

/// An argument of Function::apply that has no gradient, whether or not its tensor requires one. It may be undefined.
struct Constant {
  Tensor tensor;
};

template <class Derived>
class Function;

namespace detail {
/// True for an op that overrides backward, which gets only the gradient of the first output, and not backward_all. Its
/// further outputs must have no gradients: indices.
template <class Op>
inline constexpr bool kSeesFirstGradientOnly = requires {
  requires std::is_same_v<decltype(&Op::backward_all), Grads (Function<Op>::*)(const Grads&)>;
}
&&!requires { requires std::is_same_v<decltype(&Op::backward), Grads (Function<Op>::*)(const Tensor&)>; };
}  // namespace detail

template <class Derived>
class Function : public detail::Node {
 public:
  template <class... Args, class Op = Derived>
  static auto apply(const Args&... args) -> decltype(std::declval<Op&>().forward(args...)) {
    static_assert((detail::kIsTensor<Args> || ...), "a differentiable op takes at least one tensor");
    if (detail::TraceSink* const sink = detail::active_trace())
      return detail::record_call(
          *sink, Derived::kName, [](const auto&... all) { return apply(all...); }, args...);
    const Tensor* inputs[sizeof...(Args)];
    const Tensor* tensors[sizeof...(Args)];  // inputs and constants
    int count = 0, tensor_count = 0;
    const auto collect = [&](const auto& arg) {
      using Arg = std::decay_t<decltype(arg)>;
      if constexpr (detail::kIsTensor<Arg>)
        tensors[tensor_count++] = inputs[count++] = &static_cast<const Tensor&>(arg);
      else if constexpr (std::is_same_v<Arg, Constant>)
        tensors[tensor_count++] = &arg.tensor;
    };
    (collect(args), ...);

    detail::check_one_device(Derived::kName, tensors, tensor_count);
    const ProfileRange range(Derived::kName, RangeKind::kOp);
    AllocationTag tag(Derived::kName);
    auto node = std::make_shared<Derived>();
    detail::end_construction();
    const bool record = detail::should_record(inputs, count);
    for (int i = 0; record && i < count; ++i) detail::check_input(Derived::kName, *inputs[i]);
    node->add_inputs(inputs, count, record);
    auto result = [&] {
      NoGrad off;
      return node->forward(args...);
    }();
    const auto finish = [&](Tensor& output, int index) {
      if (anomaly_mode() != Anomaly::kOff) detail::check_anomaly_forward(Derived::kName, inputs, count, output);
      if (!record) return;
      output = detail::fresh_output(*node, inputs, count, output);
      if (is_floating(output.dtype()))
        detail::set_history(output, node, index);
      else
        node->add_output(output);
    };
    if constexpr (std::is_same_v<decltype(result), Tensor>) {
      if (range.recording()) range.count_tensors(inputs, count, &result, 1);
      finish(result, 0);
    } else {
      if constexpr (detail::kSeesFirstGradientOnly<Derived>)
        detail::check_one_gradient(Derived::kName, result.data(), result.size());
      if (range.recording()) range.count_tensors(inputs, count, result.data(), result.size());
      for (size_t i = 0; i < result.size(); ++i) finish(result[i], static_cast<int>(i));
    }
    return result;
  }

  const char* name() const final { return Derived::kName; }

  /// For an op with one output.
  virtual Grads backward(const Tensor& dy) { fail(name(), ": backward is not defined"); }
  /// For an op with several outputs.
  virtual Grads backward_all(const Grads& dys) { return backward(dys[0]); }
  Grads run(const Grads& output_grads) final { return backward_all(output_grads); }
};

/// The base of an op whose backward consists of differentiable ops.
template <class Derived>
class TwiceDifferentiable : public Function<Derived> {
 public:
  bool twice_differentiable() const final { return true; }
};

}  // namespace tern
