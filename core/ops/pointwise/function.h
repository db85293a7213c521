#pragma once
// Autograd for element-wise ops: one node type serves every op struct of kernels/pointwise/ops.h and of users.

#include <cstring>
#include <span>

#include "tern/core/tensor.h"
#include "tern/core/tensor/recorded_call.h"
#include "tern/kernels/pointwise/tiles.h"

namespace tern {

namespace detail {

/// A type-erased op struct: the properties that autograd needs and a copy of its parameters.
struct PointwiseOp {
  const char* name = nullptr;
  int arity = 1;
  kernels::Saves saves = kernels::Saves::kNone;
  bool integral = false;  // computes in int64 for integer inputs; otherwise integers are computed in float32
  bool bool_result = false;
  bool differentiable[3] = {};  // indexed by input
  uint32_t needs[3] = {};       // by input: bits of the saved tensors that its derivative reads
  double slope[3] = {};         // by input: the constant derivative, when nothing is saved
  kernels::PointwiseCall (*make_call)(const void* op, kernels::PointwisePass pass, DType compute) = nullptr;
  void (*visit)(void* op, ArgumentVisitor& visitor) = nullptr;  // its parameters
  alignas(8) unsigned char parameters[32] = {};

  kernels::PointwiseCall call(kernels::PointwisePass pass, DType compute) const {
    return make_call(parameters, pass, compute);
  }
};

// For record_call().
inline void visit_arguments(kernels::Hardtanh& op, ArgumentVisitor& visitor) {
  visitor.number(op.low);
  visitor.number(op.high);
}
inline void visit_arguments(PointwiseOp& op, ArgumentVisitor& visitor) { op.visit(op.parameters, visitor); }

template <class Op>
PointwiseOp describe_pointwise(const Op& op) {
  static_assert(sizeof(Op) <= 32 && std::is_trivially_copyable_v<Op>, "the parameters of an op must fit 32 bytes");
  PointwiseOp result;
  result.name = Op::name;
  result.arity = kernels::arity_of<Op>();
  result.saves = Op::saves;
  result.integral = kernels::is_integral_op<Op>();
  result.bool_result = kernels::has_bool_result<Op>();
  const auto by_input = [&]<int kInput>() {
    if constexpr (kInput < kernels::arity_of<Op>()) {
      if constexpr (kernels::has_derivative<Op, kInput>()) {
        result.differentiable[kInput] = true;
        result.needs[kInput] = kernels::needed_saves<Op>(kInput);
        if constexpr (kernels::saved_count<Op>() == 0)
          result.slope[kInput] = kernels::detail::derivative_by<double, kInput>(op);
      }
    }
  };
  by_input.template operator()<0>();
  by_input.template operator()<1>();
  by_input.template operator()<2>();
  result.make_call = [](const void* raw, kernels::PointwisePass pass, DType compute) {
    return kernels::make_call(*static_cast<const Op*>(raw), pass, compute);
  };
  result.visit = [](void* raw, ArgumentVisitor& visitor) { visit_argument(*static_cast<Op*>(raw), visitor); };
  std::memcpy(result.parameters, &op, sizeof(Op));
  return result;
}

/// Pointers to the inputs of one call: no reference counts, no heap.
using PointwiseInputs = std::span<const Tensor* const>;

/// op(inputs) with broadcasting and type promotion, recorded when needed.
Tensor apply_pointwise(const PointwiseOp& op, PointwiseInputs inputs);

}  // namespace detail

/// The same for an op struct, of Tern or of the user: pointwise(LeakyRelu{0.1}, x).
template <class Op, class... Tensors>
Tensor pointwise(const Op& op, const Tensors&... inputs) {
  static_assert(sizeof...(Tensors) == kernels::arity_of<Op>(), "the op takes another number of inputs");
  const Tensor* const addresses[] = {&static_cast<const Tensor&>(inputs)...};
  return detail::apply_pointwise(detail::describe_pointwise(op), addresses);
}

namespace detail {
/// dy * the derivative of op by input `input`, at the tensors that the op saves (see Saves in
/// kernels/pointwise/pointwise.h); recorded when needed, for a built-in op so that it can be differentiated any number
/// of times.
Tensor pointwise_derivative(const PointwiseOp& op, int input, const Tensor& dy, std::span<const Tensor> saved);

/// For in-place ops: writes op(inputs) to an existing tensor of the result's shape, without recording. Throws Error
/// when the result is floating and y an integer tensor.
void pointwise_into(const PointwiseOp& op, PointwiseInputs inputs, const Tensor& y);
}  // namespace detail

}  // namespace tern
