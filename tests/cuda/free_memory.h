#pragma once
// For tests of memory limits.

#include "tern/core/memory/allocator.h"
#include "tern/tests/cuda/device_test.h"

namespace tern {

/// Live tensors in the free space of segments, where an op would otherwise allocate its small tensors whatever the
/// limit.
inline Tensors fill_free_memory(Device device) {
  Tensors filler;
  CachingAllocator& memory = allocator(device);
  memory.set_limit(memory.statistics().reserved_bytes);
  for (int64_t bytes = int64_t{1} << 20; bytes >= 512;) {
    try {
      filler.push_back(empty({bytes}, {.dtype = uint8, .device = device}));
    } catch (const OutOfMemoryError&) {
      bytes /= 2;
    }
  }
  memory.set_limit(0);
  return filler;
}

}  // namespace tern
