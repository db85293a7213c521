#pragma once
// Row gathers and their deterministic scatters: embedding look-up, index_select on rows, gather along a dimension.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// y[i, :] = weight[ids[i], :]. weight: contiguous [count, cols] of any dtype; ids: contiguous int64 or int32 [rows];
/// y: contiguous [rows, cols]. An id outside [0, count) is counted in *bad_ids (device int64, set to 0 first; the
/// smallest bad position goes to bad_ids[1]) and gives a row of zeros.
TERN_KERNEL(void, embedding_forward, Stream stream, ConstView weight, ConstView ids, View y, int64_t* bad_ids);

/// Bytes of workspace for embedding_backward.
TERN_KERNEL(int64_t, embedding_backward_workspace, Stream stream, int64_t rows, int64_t count, int64_t cols);
/// dweight[v, :] = sum of dy[i, :] over the i with ids[i] == v and v != padding_index, in order of i with fp32 (fp64)
/// accumulation: no atomics. dweight is written whole (rows nobody asked for are 0). padding_index -1: none.
TERN_KERNEL(void, embedding_backward, Stream stream, ConstView dy, ConstView ids, int64_t padding_index,
            void* workspace, View dweight);

/// y = x gathered along dim by int64 index (equal number of dimensions; PyTorch's gather). Indices are checked by the
/// caller's validate pass (index_range). Any strides.
TERN_KERNEL(void, gather, Stream stream, ConstView x, int dim, ConstView index, View y);
/// dx (zero-filled by the kernel) = scatter-add of dy at index along dim, in index order.
TERN_KERNEL(void, gather_backward, Stream stream, ConstView dy, int dim, ConstView index, View dx);
/// range[0], range[1] (host-visible int64) = smallest and largest value of an int64 or int32 index; 0, -1 when empty.
TERN_KERNEL(void, index_range, Stream stream, ConstView index, int64_t* range);

}  // namespace tern::kernels
