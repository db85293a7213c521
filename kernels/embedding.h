#pragma once
// Row gathers and their deterministic scatters: embedding look-up, index_select on rows, gather along a dimension.

#include "tern/kernels/index_fault.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// y[i, :] = weight[ids[i], :]. weight: contiguous [count, cols] of any dtype; ids: contiguous int64 or int32 [rows];
/// y: contiguous [rows, cols]. An id outside [0, count) is added to *fault and gives a row of zeros.
TERN_KERNEL(void, embedding_forward, Stream stream, ConstView weight, ConstView ids, View y, IndexFault* fault);

/// Bytes of workspace for embedding_backward.
TERN_KERNEL(int64_t, embedding_backward_workspace, Stream stream, int64_t rows, int64_t count, int64_t cols);
/// dweight[v, :] = sum of dy[i, :] over the i with ids[i] == v and v != padding_index, in order of i with fp32 (fp64)
/// accumulation: no atomics. dweight is written whole (rows nobody asked for are 0). padding_index -1: none.
TERN_KERNEL(void, embedding_backward, Stream stream, ConstView dy, ConstView ids, int64_t padding_index,
            void* workspace, View dweight);

/// y = x gathered along dim by int64 index (equal number of dimensions; PyTorch's gather). An index outside
/// the dimension is added to *fault and gives 0. Any strides.
TERN_KERNEL(void, gather, Stream stream, ConstView x, int dim, ConstView index, View y, IndexFault* fault);
/// dx (zero-filled by the kernel) = scatter-add of dy at index along dim, in index order. Indices outside the
/// dimension are left out.
TERN_KERNEL(void, gather_backward, Stream stream, ConstView dy, int dim, ConstView index, View dx);

}  // namespace tern::kernels
