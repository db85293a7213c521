#pragma once
// What losses made of element-wise ops share.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/loss/reduction.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern::detail {

/// The mean, the sum or the losses themselves.
inline Tensor reduce_losses(const Tensor& losses, LossReduction reduction) {
  if (reduction == LossReduction::kNone) return losses;
  return reduction == LossReduction::kSum ? sum(losses) : mean(losses);
}

/// A loss's two inputs, in the type in which it is computed. Throws Error unless the first is floating and their shapes
/// are equal.
struct LossInputs {
  Tensor x, target;
};
inline LossInputs checked_pair(const char* op, const Tensor& x, const Tensor& target) {
  TERN_CHECK(is_floating(x.dtype()), op, ": expected a floating prediction, got ", x.describe());
  TERN_CHECK(x.shape() == target.shape(), op, ": prediction is ", x.shape(), ", target ", target.shape(),
             "; they must have one shape: reshape or expand one of them");
  check_one_device(op, {&x, &target});
  LossInputs pair{x, is_floating(target.dtype()) ? target : target.to(x.dtype())};
  autocast_inputs("loss", {&pair.x, &pair.target});
  return pair;
}

}  // namespace tern::detail
