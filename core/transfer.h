#pragma once
// Copies between devices.

#include "tern/core/tensor.h"

namespace tern::detail {

/// Copies contiguous `from` to contiguous `to`, of equal dtype and size on different devices, in the order of the GPU's
/// current stream. A copy to the CPU waits until it is complete; throws like synchronize().
void copy_between_devices(const Tensor& from, const Tensor& to);

}  // namespace tern::detail
