#pragma once

#include "tern/core/tensor.h"
#include "tern/kernels/fixed_threads.h"

namespace tern {

/// Scratch memory for one kernel call, from the caching allocator. bytes() says how much: what it and the kernel see
/// of num_threads() is one number as long as the workspace lives.
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
