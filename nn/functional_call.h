#pragma once
// A module computed with other tensors in place of its parameters and buffers (torch.func.functional_call): weights
// that are results of ops, as in meta-learning (Finn et al., arXiv:1703.03400) and hypernetworks.
//
//   StateView fast = net.parameters();
//   const auto slopes = grad({loss(net.forward(x), y)}, tensors_of(fast), {.create_graph = true});
//   for (size_t i = 0; i < fast.size(); ++i) fast[i].tensor = fast[i].tensor - 0.01 * slopes[i];
//   nn::functional_call(net, fast, [&] { return loss(net.forward(x2), y2); }).backward();  // through the step above

#include <utility>

#include "tern/core/autograd/replaced_handles.h"
#include "tern/nn/module.h"

namespace tern::detail {
/// The handles that forward() reads, with the tensors to read instead. Throws Error as functional_call() does.
ReplacedHandles::List handles_of(const nn::Module& module, const StateView& tensors);
}  // namespace tern::detail

namespace tern::nn {

/// fn(), during which the parameters and buffers of the module that `tensors` names are these tensors; the others stay.
/// Gradients reach the given tensors, and what they were made of. A tensor that several modules share is replaced in
/// all of them, under any of its names. Calls nest; backward() may come later.
///
/// parameters(), state_dict() and optimizers see the module's own tensors all the time. Another thread must not use the
/// module meanwhile. Throws Error, and calls nothing, for names that the module does not have, a tensor that is given
/// twice, and one of another shape, dtype or device than the module's own.
template <class F>
decltype(auto) functional_call(const Module& module, const StateView& tensors, F&& fn) {
  const tern::detail::ReplacedHandles others(tern::detail::handles_of(module, tensors));
  return std::forward<F>(fn)();
}

}  // namespace tern::nn
