#pragma once

#include <vector>

#include "tern/core/tensor.h"
#include "tern/kernels/reduce.h"

namespace tern::optim {

/// A kernels::GradientNorm on the device, found in one pass over contiguous gradients that all lie there. `ticket`: an
/// int32 0 on the device that the caller keeps for later calls, which saves the launch that makes one.
Tensor gradient_norm(const std::vector<Tensor>& gradients, Device device, const Tensor& ticket = {});
/// Copies one to the host (waits for the device).
kernels::GradientNorm read_norm(const Tensor& norm);

}  // namespace tern::optim
