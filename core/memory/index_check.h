#pragma once
// How ops report indices out of range. On the CPU the op throws. On a GPU the kernel counts them in memory that the
// host can read, and the next call that waits for the device throws Error, so that checking needs no wait.

#include "tern/core/device/device.h"
#include "tern/kernels/index_fault.h"

namespace tern {

/// The record of one call of an op: pass data() to the kernel, then check passed(). `op` must be a literal.
class IndexCheck {
 public:
  IndexCheck(const char* op, Device device);
  kernels::IndexFault* data() { return record_; }
  /// True when no index was bad, and on a GPU always, which reports later.
  bool passed() const { return record_ != &host_ || host_.count == 0; }
  const kernels::IndexFault& found() const { return host_; }

 private:
  kernels::IndexFault host_;
  kernels::IndexFault* record_;
};

/// Throws Error naming the ops that found bad indices on the device since the last call, and clears the records. The
/// host must have waited for those ops.
void check_index_faults(Device device);

}  // namespace tern
