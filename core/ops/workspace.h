#pragma once

#include "tern/core/tensor.h"
#include "tern/kernels/fixed_threads.h"

namespace tern {

/// Scratch memory for one kernel call, from the caching allocator. bytes() returns its size; num_threads() is fixed
/// while the workspace exists, so that bytes() and the kernel use the same number.
class Workspace {
 public:
  template <class Bytes>
  Workspace(Device device, const Bytes& bytes) : storage_(bytes(), device) {}
  void* data() const { return storage_.data(); }

 private:
  const kernels::FixedThreads threads_;  // before storage_
  Storage storage_;
};

}  // namespace tern
