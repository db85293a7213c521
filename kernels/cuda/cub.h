#pragma once
// Algorithms over whole arrays of device memory, by CUB (https://nvidia.github.io/cccl/cub), which is part of the CUDA
// toolkit. The emulated build has a host implementation of the same functions, queued on the stream as a kernel of one
// thread (tests/emulator/twins). They neither allocate nor wait, so all can be captured in a graph. A workspace is
// aligned to 8 bytes; its content afterwards is undefined.
//
// CUB's device-wide sums of floats differ from run to run (blocks look back at the results that are ready), so only
// integers are scanned here. CUB has no top-k with a fixed order of equal keys; sort.cu has a kernel for it.

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// n pairs and equal space for the result: the sort alternates between the two.
template <class Key>
struct SortBuffers {
  Key* keys[2];
  uint32_t* values[2];
};

/// Bytes of workspace for sort_pairs in addition to the buffers. Key is uint32_t or uint64_t.
template <class Key>
int64_t sort_pairs_workspace(Stream stream, int64_t n);
/// Sorts the pairs in buffers 0 by the lower `bits` bits of their keys, ascending and stable. n < 2^32. Returns the
/// number (0 or 1) of the buffers with the result; the content of the others is undefined.
template <class Key>
int sort_pairs(Stream stream, const SortBuffers<Key>& buffers, int64_t n, int bits, void* workspace);

/// Bytes of workspace for scan_rows.
int64_t scan_rows_workspace(Stream stream, int64_t rows, int64_t cols);
/// In place: values[r, c] = values[r, 0] + ... + values[r, c], wrapping. values: contiguous [rows, cols].
void scan_rows(Stream stream, int64_t* values, int64_t rows, int64_t cols, void* workspace);

/// Bytes of workspace for select_flagged.
int64_t select_flagged_workspace(Stream stream, int64_t n);
/// positions = the i in [0, n) with flags[i] != 0, ascending; it must have space for all of them.
void select_flagged(Stream stream, const uint8_t* flags, int64_t n, int64_t* positions, void* workspace);

}  // namespace tern::kernels::cuda
