#pragma once
// What the choices of --autotune have in common: the kind of a device, and the time of a call.

#include <compare>
#include <functional>

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// Devices of the same kind share choices.
struct DeviceKind {
  int major = 0, minor = 0, multiprocessors = 0;
  auto operator<=>(const DeviceKind&) const = default;
};
DeviceKind device_kind(int index);

/// True while the stream's work is recorded as a graph and not run.
bool is_capturing(Stream stream);

/// The device's time of ten runs after two others, in milliseconds; infinity when a run returns false. Waits for the
/// stream.
float time_of(Stream stream, const std::function<bool()>& run);

}  // namespace tern::kernels::cuda
