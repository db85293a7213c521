#pragma once
// Indices that lie outside their range (token ids, class targets): kernels count them and go on, so that nothing reads
// wild memory and no step waits for the host; the caller looks at the record when it is there.

#include <atomic>

#include "tern/kernels/types.h"

namespace tern::kernels {

/// Lies where the kernel's device can write: on CUDA in memory that the host reads as well. Kernels add to it.
struct IndexFault {
  int64_t count = 0;
  int64_t first = -1;  // the smallest position that a kernel named; -1: none

  /// May be called from many threads.
  TERN_HD void report(int64_t position) {
    // Unsigned, the -1 of "none" is the largest number.
#if defined(__CUDA_ARCH__) || defined(TERN_SIMT)
    atomicAdd(reinterpret_cast<unsigned long long*>(&count), 1ull);
    atomicMin(reinterpret_cast<unsigned long long*>(&first), static_cast<unsigned long long>(position));
#else
    std::atomic_ref<int64_t>(count).fetch_add(1, std::memory_order_relaxed);
    std::atomic_ref<int64_t> smallest(first);
    int64_t seen = smallest.load(std::memory_order_relaxed);
    while (static_cast<uint64_t>(position) < static_cast<uint64_t>(seen) &&
           !smallest.compare_exchange_weak(seen, position, std::memory_order_relaxed)) {
    }
#endif
  }
};

}  // namespace tern::kernels
