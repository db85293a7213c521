#pragma once
// The current device of a thread. It is CUDA's device 0 by default, and the first call that needs a device initialises
// it: a context of hundreds of MB, also in a process that works on another GPU. Code that calls CUDA therefore calls
// these functions first.

#include <cuda_runtime_api.h>

namespace tern::cuda {

/// Makes the device current in this thread and initialises it if necessary.
cudaError_t set_device(int index) noexcept;

/// For calls that need any device, such as those on events and pinned memory: if the thread's current device is not
/// initialised, makes the one current that this process initialised first. Does nothing when no device is initialised.
void adopt_device() noexcept;

/// Makes a device current while memory is allocated or freed, then restores the previous one if that was initialised.
class DeviceScope {
 public:
  explicit DeviceScope(int index) noexcept;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int previous_ = -1;  // device to restore; -1: none
  cudaError_t error_;
};

}  // namespace tern::cuda
