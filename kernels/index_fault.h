#pragma once
// Records of indices outside their range (token ids, class targets). A kernel counts such an index and continues, so
// that it never reads outside its memory and no step waits for the host; the caller checks the record later.

#include <atomic>

#include "tern/kernels/types.h"

namespace tern::kernels {

/// In memory that the kernel's device can write and, on CUDA, the host can read. Kernels only add to it.
struct IndexFault {
  int64_t count = 0;
  int64_t first = -1;  // the smallest reported position; -1: none

  /// May be called from several threads at once.
  TERN_HD void report(int64_t position) {
    // As an unsigned number, the initial -1 is greater than every position.
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
