#pragma once
// Clipping outside an optimizer. Optimizer::step({.max_norm = ...}) clips in the same pass as the update.

#include "tern/core/autograd/parameter.h"

namespace tern::optim {

struct ClipOptions {
  double norm_type = 2;              // 2, or infinity for the largest absolute value
  bool error_if_non_finite = false;  // otherwise a non-finite norm scales the gradients too
};
/// Scales all gradients by min(1, max_norm / (norm + 1e-6)) in place and returns their previous total norm (0 without
/// gradients), like torch.nn.utils.clip_grad_norm_. Waits for the device.
double clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm, const ClipOptions& options = {});

/// Limits every gradient element to [-value, value] in place.
void clip_grad_value(const std::vector<NamedTensor>& parameters, double value);

}  // namespace tern::optim
