#pragma once
// Row gathers and deterministic scatters: embedding lookup, index_select on rows, gather and scatter along a dimension.

#include "tern/kernels/index_fault.h"
#include "tern/kernels/kernel.h"
#include "tern/kernels/scatter_mode.h"

namespace tern::kernels {

/// y[i, :] = weight[ids[i], :]. weight: contiguous [count, cols] of any dtype; ids: contiguous int64 or int32 [rows];
/// y: contiguous [rows, cols]. An id outside [0, count) is recorded in *fault and its row of y is 0.
TERN_KERNEL(void, embedding_forward, Stream stream, ConstView weight, ConstView ids, View y, IndexFault* fault);

/// Bytes of workspace for embedding_backward.
TERN_KERNEL(int64_t, embedding_backward_workspace, Stream stream, int64_t rows, int64_t count, int64_t cols);
/// dweight[v, :] = sum of dy[i, :] over all i with ids[i] == v and v != padding_index, added in order of i in fp32
/// (fp64 for fp64) without atomics. All of dweight is written; rows without an id are 0. padding_index -1: none.
TERN_KERNEL(void, embedding_backward, Stream stream, ConstView dy, ConstView ids, int64_t padding_index,
            void* workspace, View dweight);

/// y = x gathered along dim by an int64 index with x's number of dimensions (PyTorch's gather). An index outside the
/// dimension is recorded in *fault (null: not recorded) and gives 0. Any strides.
TERN_KERNEL(void, gather, Stream stream, ConstView x, int dim, ConstView index, View y, IndexFault* fault);
/// Bytes of workspace for scatter: 0 unless sums or products of 16-bit floats are kept in fp32.
TERN_KERNEL(int64_t, scatter_workspace, Stream stream, ScatterMode mode, int dim, ConstView index, ConstView y);
/// Combines elements of y, named by an index along dim as in gather, with those of source, which has the index's shape
/// and y's dtype. Indices that name the same element follow each other in the order of their positions along dim; with
/// kAssign the last wins. Sums and products of 16-bit floats are fp32 and are rounded once, after the last of them. An
/// index outside the dimension is recorded in *fault (null: not recorded) and skipped. Any strides.
TERN_KERNEL(void, scatter, Stream stream, ScatterMode mode, ConstView source, int dim, ConstView index, void* workspace,
            View y, IndexFault* fault);

/// offsets[i] = stride * index[i], added to what offsets[i] is already unless `first`. A negative index counts from
/// `size`. An index outside [-size, size) is recorded in *fault and makes offsets[i] -1, as it then stays. Both
/// contiguous int64; stride >= 0.
TERN_KERNEL(void, add_offsets, Stream stream, ConstView index, int64_t size, int64_t stride, bool first, View offsets,
            IndexFault* fault);

}  // namespace tern::kernels
