#include "tern/core/ops/pointwise/bitwise.h"

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/tensor/in_place.h"
#include "tern/kernels/pointwise/bitwise.h"

namespace tern {
namespace {

template <class Op>
Tensor of_bits(const Op& op, const Tensor& a, const Tensor& b, bool takes_bool = true) {
  for (const Tensor* x : {&a, &b})
    TERN_CHECK(!is_floating(x->dtype()), Op::name, ": expected integer or bool tensors, got ", x->describe(),
               "; convert with to(int64), or compare first");
  TERN_CHECK(takes_bool || promote(a, b) != DType::kBool, Op::name,
             ": expected integers, got bool tensors; convert with to(int64)");
  return pointwise(op, a, b);
}

Tensor& bits_in_place(const char* name, Tensor& a, const Tensor& b, Tensor (*op)(const Tensor&, const Tensor&)) {
  TERN_CHECK(promote(a, b) == a.dtype(), name, ": the result would be ", promote(a, b), ", but the tensor is ",
             a.dtype());
  return detail::replace_contents(name, a, {b}, [&](const Tensor& x) { return op(x, b); });
}

}  // namespace

Tensor detail::integer_beside(const Tensor& a, int64_t value) {
  return from_vector(std::vector<int64_t>{value}, Shape{}).to(a.device());
}

Tensor bitwise_and(const Tensor& a, const Tensor& b) { return of_bits(kernels::BitwiseAnd{}, a, b); }
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return of_bits(kernels::BitwiseOr{}, a, b); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) { return of_bits(kernels::BitwiseXor{}, a, b); }
Tensor bitwise_not(const Tensor& x) {
  if (x.dtype() == DType::kBool) return logical_not(x);
  // Of x's dtype, which an x without dimensions would lose to int64.
  return of_bits(kernels::BitwiseXor{}, x, detail::integer_beside(x, -1).to(x.dtype()));
}
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) { return of_bits(kernels::ShiftLeft{}, a, b, false); }
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) { return of_bits(kernels::ShiftRight{}, a, b, false); }

Tensor& operator&=(Tensor& a, const Tensor& b) { return bits_in_place("operator&=", a, b, bitwise_and); }
Tensor& operator|=(Tensor& a, const Tensor& b) { return bits_in_place("operator|=", a, b, bitwise_or); }
Tensor& operator^=(Tensor& a, const Tensor& b) { return bits_in_place("operator^=", a, b, bitwise_xor); }

}  // namespace tern
