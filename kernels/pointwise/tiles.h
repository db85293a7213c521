#pragma once
// From an op struct to its loops: traits, the tile functions of every pass, and PointwiseCall. Header-only, so that an
// op defined outside the project gets the same loops, compiled in its own translation unit.

#include <algorithm>
#include <utility>

#include "tern/kernels/math/near.h"
#include "tern/kernels/pointwise/ops.h"

namespace tern::kernels {

/// Number of inputs of forward: 1, 2 or 3.
template <class Op>
constexpr int arity_of() {
  if constexpr (requires(const Op& op, double x) { op.forward(x); })
    return 1;
  else if constexpr (requires(const Op& op, double x) { op.forward(x, x); })
    return 2;
  else {
    static_assert(
        requires(const Op& op, double x) { op.forward(x, x, x); }, "an op needs forward() of 1 to 3 inputs");
    return 3;
  }
}

/// How many tensors derivative takes: the inputs, the output, both or none.
template <class Op>
constexpr int saved_count() {
  const int inputs = Op::saves == Saves::kInputs || Op::saves == Saves::kBoth ? arity_of<Op>() : 0;
  const int outputs = Op::saves == Saves::kOutput || Op::saves == Saves::kBoth ? 1 : 0;
  return inputs + outputs;
}

template <class Op>
constexpr bool is_integral_op() {
  if constexpr (requires { Op::integral; })
    return Op::integral;
  else
    return false;
}

/// True when the op computes elements of T, BFloat16 or Float16, by their bits.
template <class Op, class T>
constexpr bool has_bits() {
  const auto provides = []<size_t... I>(std::index_sequence<I...>) {
    return requires { Op::template on_bits<T>(uint16_t(I)...); };
  };
  return provides(std::make_index_sequence<arity_of<Op>()>());
}

template <class Op>
constexpr bool masks_gradient() {
  if constexpr (requires { Op::masks; })
    return Op::masks;
  else
    return false;
}

namespace detail {

/// derivative, derivative0, derivative1 or derivative2 at the saved values.
template <class F, int kInput, class Op, class... S>
TERN_HD F derivative_by(const Op& op, S... saved) {
  constexpr bool kNothingSaved = sizeof...(S) == 0;
  if constexpr (arity_of<Op>() == 1) {
    if constexpr (kNothingSaved)
      return op.template derivative<F>();
    else
      return op.derivative(saved...);
  } else if constexpr (kInput == 0) {
    if constexpr (kNothingSaved)
      return op.template derivative0<F>();
    else
      return op.derivative0(saved...);
  } else if constexpr (kInput == 1) {
    if constexpr (kNothingSaved)
      return op.template derivative1<F>();
    else
      return op.derivative1(saved...);
  } else {
    if constexpr (kNothingSaved)
      return op.template derivative2<F>();
    else
      return op.derivative2(saved...);
  }
}

template <class Op, int kInput, size_t... I>
constexpr bool provides_derivative(std::index_sequence<I...>) {
  const auto value = [](size_t) { return 0.0; };
  if constexpr (sizeof...(I) == 0) {
    if constexpr (arity_of<Op>() == 1) return requires(const Op& op) {
        op.template derivative<double>();
      };
    else if constexpr (kInput == 0)
      return requires(const Op& op) { op.template derivative0<double>(); };
    else if constexpr (kInput == 1)
      return requires(const Op& op) { op.template derivative1<double>(); };
    else
      return requires(const Op& op) { op.template derivative2<double>(); };
  } else {
    if constexpr (arity_of<Op>() == 1) return requires(const Op& op) {
        op.derivative(value(I)...);
      };
    else if constexpr (kInput == 0)
      return requires(const Op& op) { op.derivative0(value(I)...); };
    else if constexpr (kInput == 1)
      return requires(const Op& op) { op.derivative1(value(I)...); };
    else
      return requires(const Op& op) { op.derivative2(value(I)...); };
  }
}

}  // namespace detail

/// True when the op has a derivative by this input.
template <class Op, int kInput>
constexpr bool has_derivative() {
  return detail::provides_derivative<Op, kInput>(std::make_index_sequence<saved_count<Op>()>());
}

/// Bit s is set when the derivative by `input` reads saved tensor s. The view of another may be absent in the call.
template <class Op>
constexpr uint32_t needed_saves(int input) {
  if constexpr (requires { Op::needs; })
    return Op::needs[input];
  else
    return (1u << saved_count<Op>()) - 1;
}

/// True when forward gives bool.
template <class Op>
constexpr bool has_bool_result() {
  constexpr int n = arity_of<Op>();
  if constexpr (n == 1)
    return std::is_same_v<decltype(std::declval<const Op&>().forward(0.0)), bool>;
  else if constexpr (n == 2)
    return std::is_same_v<decltype(std::declval<const Op&>().forward(0.0, 0.0)), bool>;
  else
    return std::is_same_v<decltype(std::declval<const Op&>().forward(0.0, 0.0, 0.0)), bool>;
}

namespace detail {

// The arithmetic type in which a tile of F is computed.
template <class F>
using Scalar = std::conditional_t<std::is_same_v<F, int64_t>, math::Integer, F>;

// Pragma ivdep: an output tile is an input tile itself or apart from it, never shifted against it.

/// A result of forward as an element of the tile; the selection of constants for bool vectorises, a conversion does
/// not.
template <class F, class Result>
TERN_HD F to_element(Result result) {
  if constexpr (std::is_same_v<Result, bool>)
    return result ? F(1) : F(0);
  else
    return static_cast<F>(result);
}

template <class Op, class S, class F>
void forward_loop(const Op& op, const F* const* in, F* out, int64_t n) {
  const F* const a = in[0];
  if constexpr (arity_of<Op>() == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = to_element<F>(op.forward(S(a[i])));
  } else if constexpr (arity_of<Op>() == 2) {
    const F* const b = in[1];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = to_element<F>(op.forward(S(a[i]), S(b[i])));
  } else {
    const F* const b = in[1];
    const F* const c = in[2];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = to_element<F>(op.forward(S(a[i]), S(b[i]), S(c[i])));
  }
}

/// near(in, out, n) for all elements, then ordinary(element of each input) for those that are not near. `is_near` has
/// the same arguments as `ordinary`. The result of an element depends on that element alone.
template <size_t... I, class IsNear, class NearLoop, class Ordinary>
void near_tile(const float* const* in, float* out, int64_t n, std::index_sequence<I...>, IsNear is_near, NearLoop near,
               Ordinary ordinary) {
  constexpr int64_t kPart = 256;
  for (int64_t begin = 0; begin < n; begin += kPart) {
    const int64_t count = n - begin < kPart ? n - begin : kPart;
    const float* const part[] = {in[I] + begin...};
    int32_t far = 0;
    for (int64_t i = 0; i < count; ++i) far |= is_near(part[I][i]...) ? 0 : 1;
    if (far == 0) {
      near(part, out + begin, count);
      continue;
    }
    float inputs[sizeof...(I)][kPart];  // the output may be an input
    (std::copy_n(part[I], count, inputs[I]), ...);
    near(part, out + begin, count);
    for (int64_t i = 0; i < count; ++i)
      if (!is_near(inputs[I][i]...)) out[begin + i] = ordinary(inputs[I][i]...);
  }
}

/// True when the op has faster functions of math::Near: is_near(inputs...) says for which inputs.
template <class Op, class F>
constexpr bool has_near_loop() {
  return std::is_same_v<F, float> && requires { &Op::is_near; };
}

template <class Op, class F>
void forward_tile(const void* raw, const F* const* in, F* out, int64_t n) {
  const Op op = *static_cast<const Op*>(raw);
  if constexpr (has_near_loop<Op, F>()) {
    near_tile(
        in, out, n, std::make_index_sequence<arity_of<Op>()>(), [](auto... x) { return Op::is_near(x...); },
        [&](const float* const* part, float* y, int64_t m) { forward_loop<Op, math::Near>(op, part, y, m); },
        [&](auto... x) { return op.forward(x...); });
  } else {
    forward_loop<Op, Scalar<F>>(op, in, out, n);
  }
}

/// dy * derivative; for an op that masks, 0 where the derivative is 0, whatever dy is. The mask is one of bits: a
/// selection would become a branch around the load of dy, which SSE cannot vectorise.
template <bool kMasks, class F>
TERN_HD F chain(F dy, F derivative) {
  if constexpr (!kMasks) {
    return dy * derivative;
  } else {
    using Bits = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;
    const Bits keep = Bits(0) - static_cast<Bits>(derivative != F(0));
    return std::bit_cast<F>(std::bit_cast<Bits>(dy * derivative) & keep);
  }
}

template <class Op, int kInput, class S, class F, size_t... I>
void backward_loop(const Op& op, const F* const* in, F* out, int64_t n, std::index_sequence<I...>) {
  constexpr uint32_t kNeeds = needed_saves<Op>(kInput);
  const F* const dy = in[0];
  [[maybe_unused]] const F* const saved[] = {in[I + 1]..., nullptr};
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const S slope = derivative_by<S, kInput>(op, S(kNeeds >> I & 1 ? saved[I][i] : F(0))...);
    out[i] = chain<masks_gradient<Op>()>(dy[i], static_cast<F>(slope));
  }
}

/// True when the derivative of a unary op that saves its input has functions of math::Near too.
template <class Op>
constexpr bool has_near_derivative() {
  if constexpr (requires { Op::near_derivative; })
    return Op::near_derivative;
  else
    return false;
}

template <class Op, int kInput, size_t kSaved, class F, size_t... I>
void second_loop(const void* raw, const F* const* in, F* out, int64_t n, std::index_sequence<I...>) {
  const Op op = *static_cast<const Op*>(raw);
  constexpr uint32_t kNeeds = needed_saves<Op>(kInput);
  using D = math::Dual<F>;
  const F* const g = in[0];
  const F* const dy = in[1];
  const F* const saved[] = {in[I + 2]..., nullptr};
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const D slope = derivative_by<D, kInput>(op, D(kNeeds >> I & 1 ? saved[I][i] : F(0), F(I == kSaved ? 1 : 0))...);
    out[i] = chain<masks_gradient<Op>()>(g[i] * dy[i], slope.tangent);
  }
}

template <class Op, int kInput, class F>
void backward_tile(const void* raw, const F* const* in, F* out, int64_t n) {
  const Op op = *static_cast<const Op*>(raw);
  if constexpr (has_near_loop<Op, F>() && has_near_derivative<Op>()) {
    const auto saved = std::make_index_sequence<1>();
    near_tile(
        in, out, n, std::make_index_sequence<2>(), [](float, float x) { return Op::is_near(x); },
        [&](const float* const* part, float* dx, int64_t m) {
          backward_loop<Op, kInput, math::Near>(op, part, dx, m, saved);
        },
        [&](float dy, float x) { return chain<masks_gradient<Op>()>(dy, op.derivative(x)); });
  } else {
    backward_loop<Op, kInput, F>(op, in, out, n, std::make_index_sequence<saved_count<Op>()>());
  }
}
template <class Op, int kInput, size_t kSaved, class F>
void second_tile(const void* op, const F* const* in, F* out, int64_t n) {
  second_loop<Op, kInput, kSaved>(op, in, out, n, std::make_index_sequence<saved_count<Op>()>());
}

template <class Op, int kInput, class F, size_t... I>
TileFunction<F> second_function(int saved, std::index_sequence<I...>) {
  TileFunction<F> result = nullptr;
  (void)((saved == static_cast<int>(I) ? (result = second_tile<Op, kInput, I, F>, true) : false) || ...);
  return result;
}

template <class Op, int kInput, class F>
TileFunction<F> derivative_function(PointwisePass pass) {
  if constexpr (kInput >= arity_of<Op>()) {
    return nullptr;
  } else {
    if (pass.input != kInput) return derivative_function<Op, kInput + 1, F>(pass);
    if constexpr (kernels::has_derivative<Op, kInput>()) {
      if (pass.kind == PointwisePass::kBackward) return backward_tile<Op, kInput, F>;
      return second_function<Op, kInput, F>(pass.saved, std::make_index_sequence<saved_count<Op>()>());
    } else {
      return nullptr;
    }
  }
}

}  // namespace detail

/// The loop of an op's pass in this compute type; null when the op lacks it.
template <class Op, class F>
TileFunction<F> tile_function(PointwisePass pass) {
  if constexpr (std::is_floating_point_v<F>)
    return pass.kind == PointwisePass::kForward ? detail::forward_tile<Op, F>
                                                : detail::derivative_function<Op, 0, F>(pass);
  else if constexpr (is_integral_op<Op>())
    return pass.kind == PointwisePass::kForward ? detail::forward_tile<Op, F> : nullptr;
  else
    return nullptr;
}
template <class Op>
TileFunctions tile_functions(PointwisePass pass) {
  return {tile_function<Op, float>(pass), tile_function<Op, double>(pass), tile_function<Op, int64_t>(pass)};
}

/// The op's index in BuiltinOps, or -1.
template <class Op>
constexpr int index_of() {
  return index_in<Op>(BuiltinOps());
}

/// Number of tensors that a pass takes.
template <class Op>
constexpr int input_count(PointwisePass::Kind kind) {
  if (kind == PointwisePass::kForward) return arity_of<Op>();
  return saved_count<Op>() + (kind == PointwisePass::kBackward ? 1 : 2);
}

/// The argument of kernels::pointwise. `op` must outlive the call. compute: float32, float64, or int64 (integral ops).
template <class Op>
PointwiseCall make_call(const Op& op, PointwisePass pass, DType compute) {
  PointwiseCall call;
  call.builtin = index_of<Op>();
  call.pass = pass;
  call.op = &op;
  call.compute = compute;
  if constexpr (index_of<Op>() < 0) call.custom = tile_functions<Op>(pass);
#ifdef TERN_CUDA  // else an op's file of kernels, which nvcc compiles, is not there
  if constexpr (requires { &Op::on_cuda; }) call.on_cuda = &Op::on_cuda;
#endif
  return call;
}

}  // namespace tern::kernels
