#pragma once

#include "tern/core/tensor.h"

namespace tern {

/// Scratch memory for one kernel call, from the caching allocator.
class Workspace {
 public:
  Workspace(int64_t bytes, Device device) : storage_(bytes, device) {}
  void* data() const { return storage_.data(); }

 private:
  Storage storage_;
};

}  // namespace tern
