#pragma once
// What the in-place forms of ops have in common: checks, and how they are recorded.

#include <functional>
#include <vector>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/function.h"

namespace tern::detail {

/// Checks that x may be written; true when the write must be recorded.
bool check_in_place(const char* op, const Tensor& x, const Tensor& other);
/// Throws Error when several elements of x have one address.
void check_distinct(const char* op, const Tensor& x);
/// Replaces x's contents by `result`, a recorded function of the old contents.
void rebase(Tensor& x, const Tensor& result);

/// x = op(x).
template <class Op>
Tensor& in_place(const char* name, Tensor& x, const Op& op) {
  check_distinct(name, x);
  if (check_in_place(name, x, {}) || active_trace()) {
    rebase(x, pointwise(op, x.clone()).to(x.dtype()));  // backward may need the old contents
    return x;
  }
  const NoGrad off;
  const Tensor* const inputs[] = {&x};
  pointwise_into(describe_pointwise(op), inputs, x);
  x.bump_version();
  return x;
}

/// x = op(x), an op that returns a tensor, which is copied. `others`: its other tensors. Throws Error when the result
/// has another shape, or is floating and x is not.
Tensor& replace_contents(const char* name, Tensor& x, const std::vector<Tensor>& others,
                         const std::function<Tensor(const Tensor&)>& op);

}  // namespace tern::detail
