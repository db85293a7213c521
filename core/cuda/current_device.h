#pragma once
// Which device is current in a thread. A thread that has chosen none has CUDA's device 0, and its first call that needs
// a device starts it: a context of hundreds of MB in every process that works on another GPU. So whoever calls CUDA
// goes through here first.

#include <cuda_runtime_api.h>

namespace tern::cuda {

/// Makes the device current in this thread, and starts it if need be.
cudaError_t set_device(int index) noexcept;

/// For calls that need any device, such as those on events and on pinned memory: a thread whose current device is not
/// started gets the one that this process started first. Without any started device nothing changes.
void adopt_device() noexcept;

/// Makes a device current while it gives or takes memory. The one before comes back if that does not start it.
class DeviceScope {
 public:
  explicit DeviceScope(int index) noexcept;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int previous_ = -1;  // to come back; -1: none
  cudaError_t error_;
};

}  // namespace tern::cuda
