#pragma once
// The built-in ops' kernels, found by index. They are compiled in several files, side by side.

#include "tern/kernels/cuda/pointwise/kernel.h"

namespace tern::kernels::cuda {

/// Every other op of one input, so that the two files take the same time; or the ops of two and three.
enum class PointwiseGroup { kUnaryEven, kUnaryOdd, kOthers };
template <class Op>
constexpr PointwiseGroup group_of() {
  if (arity_of<Op>() > 1) return PointwiseGroup::kOthers;
  return index_of<Op>() % 2 == 0 ? PointwiseGroup::kUnaryEven : PointwiseGroup::kUnaryOdd;
}

namespace detail {

template <class F, PointwiseGroup kGroup, class Op>
constexpr PointwiseFunction* function_in_group() {
  constexpr bool kComputes = std::is_floating_point_v<F> || is_integral_op<Op>();
  if constexpr (group_of<Op>() == kGroup && kComputes)
    return &pointwise_in<Op, F>;
  else
    return nullptr;
}
template <class F, PointwiseGroup kGroup, class... Ops>
PointwiseFunction* find_builtin(int index, TypeList<Ops...>) {
  static constexpr PointwiseFunction* kFunctions[] = {function_in_group<F, kGroup, Ops>()...};
  return kFunctions[index];
}

}  // namespace detail

/// pointwise_in<Op, F> of the op with this index in BuiltinOps; null when it is of another group or does not compute in
/// F.
template <class F, PointwiseGroup kGroup>
PointwiseFunction* builtin_pointwise(int index) {
  return detail::find_builtin<F, kGroup>(index, BuiltinOps());
}
extern template PointwiseFunction* builtin_pointwise<float, PointwiseGroup::kUnaryEven>(int);
extern template PointwiseFunction* builtin_pointwise<float, PointwiseGroup::kUnaryOdd>(int);
extern template PointwiseFunction* builtin_pointwise<float, PointwiseGroup::kOthers>(int);
extern template PointwiseFunction* builtin_pointwise<double, PointwiseGroup::kUnaryEven>(int);
extern template PointwiseFunction* builtin_pointwise<double, PointwiseGroup::kUnaryOdd>(int);
extern template PointwiseFunction* builtin_pointwise<double, PointwiseGroup::kOthers>(int);
extern template PointwiseFunction* builtin_pointwise<int64_t, PointwiseGroup::kUnaryEven>(int);
extern template PointwiseFunction* builtin_pointwise<int64_t, PointwiseGroup::kUnaryOdd>(int);
extern template PointwiseFunction* builtin_pointwise<int64_t, PointwiseGroup::kOthers>(int);

}  // namespace tern::kernels::cuda
