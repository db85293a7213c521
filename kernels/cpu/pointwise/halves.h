#pragma once
// The loops of the built-in ops on 16-bit elements: conversion and op are one loop over vectors in registers. Each
// format has its own source file, so that the compiler works on both at a time.

#include <utility>

#include "tern/kernels/cpu/simd/halves.h"
#include "tern/kernels/pointwise/tiles.h"

namespace tern::kernels::TERN_CPU {

/// The loop of forward of the op with this index in BuiltinOps, on elements of T (BFloat16 or Float16); null when the
/// op has none, and before AVX2: then elements are computed as tiles of floats.
template <class T>
TileFunction<T> half_loop(int index);
extern template TileFunction<BFloat16> half_loop<BFloat16>(int);
extern template TileFunction<Float16> half_loop<Float16>(int);

namespace detail {

#if defined(__AVX2__)
template <class T, class Op, size_t... I>
void bits_tile(const T* const* in, T* out, int64_t n, std::index_sequence<I...>) {
  const T* const x[] = {in[I]...};
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i].bits = Op::template on_bits<T>(x[I][i].bits...);
}

inline constexpr int64_t kHalves = 2 * kHalfWidth;  // elements in registers

/// y[i] = op(x[0][i], ...) for kHalves floats.
template <class Op, size_t... I>
inline void forward_floats(const Op& op, const float (*__restrict x)[kHalves], float* __restrict y,
                           std::index_sequence<I...>) {
  for (int64_t i = 0; i < kHalves; ++i) y[i] = kernels::detail::to_element<float>(op.forward(x[I][i]...));
}

template <class T, class Op, size_t... I>
void half_tile(const void* raw, const T* const* in, T* out, int64_t n, std::index_sequence<I...> inputs) {
  const Op op = *static_cast<const Op*>(raw);
  const T* const x[] = {in[I]...};
  alignas(64) float values[sizeof...(I)][kHalves], results[kHalves];
  int64_t i = 0;
  for (; i + kHalves <= n; i += kHalves) {
    (widen_halves(x[I] + i, values[I], kHalves), ...);
    forward_floats(op, values, results, inputs);
    narrow_pair(results, out + i);
  }
  if (i == n) return;
  alignas(64) float rest[sizeof...(I)][kHalves] = {};
  (widen_halves(x[I] + i, rest[I], n - i), ...);
  forward_floats(op, rest, results, inputs);
  narrow_to_halves(results, out + i, n - i);
}

template <class T, class Op>
void half_function(const void* op, const T* const* in, T* out, int64_t n) {
  constexpr auto kInputs = std::make_index_sequence<arity_of<Op>()>();
  if constexpr (has_bits<Op, T>())
    bits_tile<T, Op>(in, out, n, kInputs);
  else
    half_tile<T, Op>(op, in, out, n, kInputs);
}
#endif

template <class T, class Op>
constexpr TileFunction<T> half_function_of() {
#if defined(__AVX2__)
  if constexpr (!kernels::detail::has_near_loop<Op, float>()) return half_function<T, Op>;
#endif
  return nullptr;
}

template <class T, class... Ops>
TileFunction<T> find_half_loop(int index, TypeList<Ops...>) {
  static constexpr TileFunction<T> kLoops[] = {half_function_of<T, Ops>()...};
  return kLoops[index];
}

}  // namespace detail

template <class T>
TileFunction<T> half_loop(int index) {
  return detail::find_half_loop<T>(index, BuiltinOps());
}

}  // namespace tern::kernels::TERN_CPU
