#pragma once
// Sorting on the device, behind one small function.

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// n pairs and as much room again: the sort goes back and forth between the two.
struct SortBuffers {
  uint32_t* keys[2];
  uint32_t* values[2];
};

/// Bytes of workspace for sort_pairs, beside the buffers.
int64_t sort_pairs_workspace(int64_t n);

/// Sorts the pairs in buffers 0 by the lower `bits` bits of their keys, ascending; pairs of equal keys keep their
/// order. n < 2^32. Returns the number (0 or 1) of the buffers that hold the result.
int sort_pairs(Stream stream, const SortBuffers& buffers, int64_t n, int bits, void* workspace);

}  // namespace tern::kernels::cuda
