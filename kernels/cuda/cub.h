#pragma once
// Algorithms over whole arrays of device memory, by CUB (https://nvidia.github.io/cccl/cub), which comes with the CUDA
// toolkit. The emulated build has a host implementation of the same functions, queued on the stream as a kernel of one
// thread (tests/simt/twins). None allocates or waits, so all can be captured in a graph. A workspace is aligned to 8
// bytes; what it holds afterwards is undefined.
//
// CUB's device-wide sums of floats differ from run to run (its blocks look back at whatever is ready): only integers
// are scanned here. It has no top-k in which equal keys are taken in a fixed order: that is a kernel of ours.

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// n pairs and as much room again: the sort goes back and forth between the two.
template <class Key>
struct SortBuffers {
  Key* keys[2];
  uint32_t* values[2];
};

/// Bytes of workspace for sort_pairs, beside the buffers. Key is uint32_t or uint64_t.
template <class Key>
int64_t sort_pairs_workspace(Stream stream, int64_t n);
/// Sorts the pairs in buffers 0 by the lower `bits` bits of their keys, ascending; pairs of equal keys keep their
/// order. n < 2^32. Returns the number (0 or 1) of the buffers that hold the result; what the others hold is undefined.
template <class Key>
int sort_pairs(Stream stream, const SortBuffers<Key>& buffers, int64_t n, int bits, void* workspace);

/// Bytes of workspace for scan_rows.
int64_t scan_rows_workspace(Stream stream, int64_t rows, int64_t cols);
/// In place: values[r, c] = values[r, 0] + ... + values[r, c], which wraps around. values: contiguous [rows, cols].
void scan_rows(Stream stream, int64_t* values, int64_t rows, int64_t cols, void* workspace);

/// Bytes of workspace for select_flagged.
int64_t select_flagged_workspace(Stream stream, int64_t n);
/// positions = the i in [0, n) with flags[i] != 0, ascending; there must be room for all of them.
void select_flagged(Stream stream, const uint8_t* flags, int64_t n, int64_t* positions, void* workspace);

}  // namespace tern::kernels::cuda
