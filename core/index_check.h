#pragma once
// What ops do about indices outside their range. On the CPU the op itself throws. On a GPU the kernel counts them in
// memory that the host reads too, and Error is thrown by whatever waits for the device next: no step waits for it.

#include <string>

#include "tern/core/device.h"
#include "tern/kernels/index_fault.h"

namespace tern {

/// The record of one call of an op: give data() to the kernel, then look at passed(). `op` must be a literal.
class IndexCheck {
 public:
  IndexCheck(const char* op, Device device);
  kernels::IndexFault* data() { return record_; }
  /// True on the CPU when there was no bad index or the device will report it later.
  bool passed() const { return record_ != &host_ || host_.count == 0; }
  const kernels::IndexFault& found() const { return host_; }

 private:
  kernels::IndexFault host_;
  kernels::IndexFault* record_;
};

/// Throws Error that names the ops which met bad indices on the device since the last call, and forgets them. The host
/// must have waited for those ops.
void check_index_faults(Device device);

}  // namespace tern
