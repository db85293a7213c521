#pragma once
// Layers applied one after another to the rows of one matrix: the inference pass of a transformer's sub-layer. The CPU
// takes a block of rows through several layers while it is in cache; CUDA runs the layers in turn.

#include <span>
#include <variant>

#include "tern/kernels/attention.h"
#include "tern/kernels/gemm.h"

namespace tern::kernels {

/// rows [n, in] -> activation(rows weight^T + bias) [n, out], see linear_forward. weight and bias may be fp32 with
/// 16-bit rows only as they may be there. packed: the weight as linear_pack() wrote it for as many rows of this dtype,
/// or null; with it only the weight's shape is read.
struct LinearStep {
  ConstView weight, bias;
  Activation activation = Activation::kNone;
  const void* packed = nullptr;
};

/// Queries, keys and values [tokens, 3 * heads * head_dim] -> [tokens, heads * head_dim], see attention_forward.
/// params: self-attention, so both offsets are the same and kv_heads = heads.
struct SelfAttentionStep {
  AttentionParams params;
};

/// rows -> layer norm of residual + rows, see layer_norm_forward. residual, sum: contiguous, of the rows' shape and
/// dtype. sum: where residual + rows is stored, or absent.
struct AddNormStep {
  ConstView residual, gamma, beta;
  double eps = 0;
  View sum;
};

using RowStep = std::variant<LinearStep, SelfAttentionStep, AddNormStep>;

/// out = the last step's rows. The bits are those of the steps' kernels called in turn. x: [n, in], out: [n, width of
/// the last step], contiguous and of one dtype. At least one step. Keeps nothing for backward.
TERN_KERNEL(int64_t, row_chain_workspace, Stream stream, ConstView x, std::span<const RowStep> steps);
TERN_KERNEL(void, row_chain, Stream stream, ConstView x, std::span<const RowStep> steps, View out, void* workspace);

/// Where the weight [out, in] of a linear step stays the same for many calls, `packed` becomes what the step reads for
/// that many rows of a dtype. linear_packing() is 0 where the step reads the weight itself; equal numbers say that the
/// same copy serves. weight: of the rows' dtype, contiguous or a transposed contiguous matrix. At level v3 the step's
/// sums may then differ in rounding from those of linear_forward.
TERN_KERNEL(int64_t, linear_packing, Stream stream, DType dtype, int64_t rows, int64_t out, int64_t in);
TERN_KERNEL(int64_t, linear_packed_bytes, Stream stream, DType dtype, int64_t rows, int64_t out, int64_t in);
TERN_KERNEL(void, linear_pack, Stream stream, int64_t rows, ConstView weight, void* packed);

}  // namespace tern::kernels
