#pragma once
// Loss functions have PyTorch's names, formulas and defaults. All are twice differentiable; inside an autocast region
// they are computed in fp32.

#include <cstdint>

#include "tern/core/tensor.h"

namespace tern {

/// Where a reduction is given, kNone returns the losses one by one.
enum class LossReduction : uint8_t { kMean, kSum, kNone };

}  // namespace tern
