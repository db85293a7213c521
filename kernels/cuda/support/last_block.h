#pragma once
// Work done by the last of several blocks to finish, which saves a launch. The last block differs from run to run; its
// result must not depend on which block it is.

#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda {

/// All threads of a block call it. Returns true in the last of `count` blocks, which then sees what the others wrote
/// before the call. *ticket must be 0 before the first call and is 0 again after the last, so launches can be replayed.
__device__ inline bool is_last_block(unsigned* ticket, unsigned count, CallSite where = CallSite::current()) {
  TERN_SHARED(bool, last);
  __threadfence();  // this thread's writes are visible before its block's ticket
  block_barrier(where);
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == count - 1;
    if (last) *ticket = 0;
  }
  block_barrier(where);
  const bool result = last;
  __threadfence();  // the other blocks' writes are visible after the ticket
  return result;
}

}  // namespace tern::kernels::cuda
