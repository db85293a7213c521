#pragma once
// Activation recomputation (Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174).
//
//   Tensor y = checkpoint([&](const Tensor& x) { return layer.forward(x); }, x);
//
// What the ops in fn would save for backward is not saved; the first access in backward runs fn a second time.

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

namespace detail {
/// True while backward runs such a function again: what a forward pass changes besides its results (running statistics)
/// is not to be changed a second time.
bool is_recomputing();
}  // namespace detail

/// Runs fn(inputs) with the usual recording, so that everything fn uses gets its gradient; only the memory held between
/// forward and backward differs. The second run draws the same random numbers, and has the same autocast regions and
/// the same replaced parameters (nn::functional_call): gradients are bit-equal to those of a plain call. Calls nest. fn
/// may return several tensors, take inputs without gradient and capture tensors and modules; references that it
/// captures must stay valid, and their values unchanged, until backward. Throws Error in backward when the second run
/// of fn differs from the first or when an input or a parameter that it used was changed in place since; also for a
/// second derivative (create_graph).
std::vector<Tensor> checkpoint_all(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                                   const std::vector<Tensor>& inputs);

/// As checkpoint_all, for fn(const Tensor&...) that returns a Tensor or a std::vector<Tensor>.
template <class F, class... Inputs>
auto checkpoint(F fn, const Inputs&... inputs) {
  static_assert((std::is_convertible_v<const Inputs&, const Tensor&> && ...), "checkpoint: capture what is no tensor");
  const auto call = [fn = std::move(fn)](const std::vector<Tensor>& in) {
    return [&]<size_t... I>(std::index_sequence<I...>) { return fn(in[I]...); }
    (std::index_sequence_for<Inputs...>());
  };
  const std::vector<Tensor> all = {static_cast<const Tensor&>(inputs)...};
  if constexpr (std::is_convertible_v<decltype(call(all)), Tensor>)
    return checkpoint_all([call](const std::vector<Tensor>& in) { return std::vector<Tensor>{call(in)}; }, all)[0];
  else
    return checkpoint_all(call, all);
}

}  // namespace tern
