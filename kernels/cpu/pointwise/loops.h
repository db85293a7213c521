#pragma once
// The loops of the built-in ops, found by index. Each compute type has its own source file, so that the compiler works
// on several at a time.

#include "tern/kernels/pointwise/tiles.h"

namespace tern::kernels::TERN_CPU {

namespace detail {

template <class F, class... Ops>
TileFunction<F> find_builtin(int index, PointwisePass pass, TypeList<Ops...>) {
  using Getter = TileFunction<F> (*)(PointwisePass);
  static constexpr Getter kGetters[] = {&tile_function<Ops, F>...};
  return kGetters[index](pass);
}

}  // namespace detail

/// The loop of the op with this index in BuiltinOps; null when the op lacks it.
template <class F>
TileFunction<F> builtin_loop(int index, PointwisePass pass) {
  return detail::find_builtin<F>(index, pass, BuiltinOps());
}
extern template TileFunction<float> builtin_loop<float>(int, PointwisePass);
extern template TileFunction<double> builtin_loop<double>(int, PointwisePass);
extern template TileFunction<int64_t> builtin_loop<int64_t>(int, PointwisePass);

}  // namespace tern::kernels::TERN_CPU
