#pragma once
// Copies between devices.

#include "tern/core/tensor.h"

namespace tern::detail {

/// Copies contiguous `from` into contiguous `to`, of equal dtype and size on different devices, in the order of the
/// GPU's current stream. A copy to the CPU waits for it; throws like synchronize().
void copy_between_devices(const Tensor& from, const Tensor& to);

}  // namespace tern::detail
