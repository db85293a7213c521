#pragma once
// Row gathers and their deterministic scatters: embedding lookup, index_select on rows, gather along a dimension.

#include "tern/kernels/index_fault.h"
#include "tern/kernels/kernel.h"

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
/// dimension is recorded in *fault and gives 0. Any strides.
TERN_KERNEL(void, gather, Stream stream, ConstView x, int dim, ConstView index, View y, IndexFault* fault);
/// dx = scatter-add of dy at index along dim, in index order. The kernel first sets dx to 0. Indices outside the
/// dimension are skipped.
TERN_KERNEL(void, gather_backward, Stream stream, ConstView dy, int dim, ConstView index, View dx);

}  // namespace tern::kernels
