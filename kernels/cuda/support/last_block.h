#pragma once
// Work that is left to the last of several blocks to arrive, so that it needs no launch of its own. Which block that is
// differs from run to run; what it does must not depend on it.

#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda {

/// All threads of a block call it; true for the block that is the last of `count` blocks to do so, which then sees what
/// the others wrote before. *ticket is 0 before the first, and 0 again after the last: a replayed launch finds it so.
__device__ inline bool arrives_last(unsigned* ticket, unsigned count, CallSite where = CallSite::current()) {
  TERN_SHARED(bool, last);
  __threadfence();  // what this thread wrote is seen before its block's ticket
  block_barrier(where);
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == count - 1;
    if (last) *ticket = 0;
  }
  block_barrier(where);
  const bool result = last;
  __threadfence();  // and what the others wrote after it
  return result;
}

}  // namespace tern::kernels::cuda
