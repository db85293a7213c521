#pragma once
// Ops and losses of the C API by their numbers.

#include "tern/core/tensor.h"
#include "tern/tern_c.h"

namespace tern::models::c_api {

/// An op of tern_unary. Throws Refusal for a number that is none.
Tensor unary_result(int32_t op, const Tensor& x);
/// A loss of tern_loss; options: checked.
Tensor loss_result(int32_t loss, const Tensor& prediction, const Tensor& target, const tern_loss_options& options);

}  // namespace tern::models::c_api
