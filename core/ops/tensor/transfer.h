#pragma once
// Copies between host and devices.

#include <vector>

#include "tern/core/memory/stream.h"
#include "tern/core/tensor.h"

namespace tern {

/// An asynchronous copy to the host: it is queued at once and read when it is complete, so that nothing waits.
class HostCopy {
 public:
  /// Copies the tensor, made contiguous, as of this point of the current stream.
  explicit HostCopy(const Tensor& tensor);
  bool ready() const { return event_.done(); }
  /// Waits until the copy is complete; throws like synchronize().
  void wait() const;
  /// The copy on the CPU; valid after wait().
  const Tensor& tensor() const { return host_; }
  /// The values converted to double, in row-major order; valid after wait().
  std::vector<double> values() const;

 private:
  Tensor host_;  // pinned memory when the tensor is on a GPU
  Device device_;
  Event event_;
};

namespace detail {

/// Copies contiguous `from` to contiguous `to`, of equal dtype and size on different devices, in the order of the GPU's
/// current stream. A copy to the CPU waits until it is complete; throws like synchronize().
void copy_between_devices(const Tensor& from, const Tensor& to);

}  // namespace detail

}  // namespace tern
