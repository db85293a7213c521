#pragma once
// Code shared by the attention kernels: the call with derived values, sequences, and the visibility of keys.
//
// There are two paths. 16-bit tensors with aligned rows, a head_dim that is a multiple of 8 and at most 128, and no
// bias use the tensor cores: with mma.sync (attention/forward.cu, attention/backward.cu), or with wgmma where the
// device has it and head_dim is above 32 (attention/forward_sm90.cu, attention/backward_sm90.cu). All other calls use
// plain blocks (attention/block.cu). No path writes scores to memory, and every output element has one writer.

#include <algorithm>
#include <limits>

#include "tern/kernels/attention.h"
#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda::attention {

/// A tensor [tokens, heads, head_dim] with a contiguous last dimension.
template <class T>
struct Rows {
  T* data;
  int64_t token_stride, head_stride, tokens;
  template <class AnyView>
  explicit Rows(const AnyView& view)
      : data(static_cast<T*>(view.data)),
        token_stride(view.strides[0]),
        head_stride(view.strides[1]),
        tokens(view.shape[0]) {}
  __device__ T* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

/// log_sum_exp [heads, query tokens].
template <class F>
struct LogSumExp {
  F* data;
  int64_t head_stride, token_stride;
  template <class AnyView>
  explicit LogSumExp(const AnyView& view)
      : data(static_cast<F*>(view.data)), head_stride(view.strides[0]), token_stride(view.strides[1]) {}
  __device__ F& at(int64_t token, int64_t head) const { return data[head * head_stride + token * token_stride]; }
};

/// The additive bias; broadcast dimensions have stride 0.
struct Bias {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t strides[4] = {};

  template <class F>
  __device__ F at(int64_t sequence, int64_t head, int64_t query, int64_t key) const {
    const int64_t i = sequence * strides[0] + head * strides[1] + query * strides[2] + key * strides[3];
    switch (dtype) {
      case DType::kFloat64:
        return static_cast<F>(static_cast<const double*>(data)[i]);
      case DType::kBFloat16:
        return static_cast<F>(static_cast<float>(static_cast<const BFloat16*>(data)[i]));
      case DType::kFloat16:
        return static_cast<F>(static_cast<float>(static_cast<const Float16*>(data)[i]));
      default:
        return static_cast<F>(static_cast<const float*>(data)[i]);
    }
  }
};

/// AttentionParams and values derived from it.
struct Call {
  const int32_t *query_offsets, *key_offsets;
  const uint8_t* key_mask;
  const int64_t* row_keys;
  int64_t sequences, max_queries, max_keys;
  int heads, kv_heads, group, head_dim;
  int window;  // limited so that sums do not overflow; -1: none
  bool causal, drops;
  uint32_t threshold;  // dropout threshold; at p = 1 above every 16-bit number
  RandomKey random;
  double scale, keep_scale;
  Bias bias;

  explicit Call(const AttentionParams& p)
      : query_offsets(p.query_offsets),
        key_offsets(p.key_offsets),
        key_mask(p.key_mask),
        row_keys(p.row_keys),
        sequences(p.sequences),
        max_queries(p.max_query_length),
        max_keys(p.max_key_length),
        heads(static_cast<int>(p.heads)),
        kv_heads(static_cast<int>(p.kv_heads)),
        group(static_cast<int>(p.heads / std::max<int64_t>(p.kv_heads, 1))),
        head_dim(static_cast<int>(p.head_dim)),
        window(static_cast<int>(std::min({p.window, max_queries + max_keys, int64_t{1} << 29}))),
        causal(p.causal),
        drops(p.dropout.p > 0),
        threshold(dropout_threshold(p.dropout.p)),
        random(p.dropout.key),
        scale(p.scale),
        keep_scale(p.dropout.p < 1 ? 1 / (1 - p.dropout.p) : 0) {
    if (!p.bias) return;
    bias.data = p.bias.data;
    bias.dtype = p.bias.dtype;
    for (int d = 0; d < 4; ++d) bias.strides[d] = d < 2 && p.bias.shape[d] == 1 ? 0 : p.bias.strides[d];
  }
};

/// Keys (or queries) [begin, end) of a sequence; may be empty.
struct Range {
  int begin, end;
};

/// One sequence. Query i has key position i + shift: queries and keys are aligned at their ends.
struct Sequence {
  int64_t index;
  int query_begin, queries, key_begin, keys, shift;
  __device__ Sequence(const Call& call, int64_t number)
      : index(number),
        query_begin(call.query_offsets[number]),
        queries(call.query_offsets[number + 1] - query_begin),
        key_begin(call.key_offsets[number]),
        keys(call.key_offsets[number + 1] - key_begin),
        shift(keys - queries) {}

  /// Keys that a query sees according to its position.
  __device__ Range keys_of(const Call& call, int query) const {
    const int position = query + shift;
    Range range{0, keys};
    if (call.window >= 0) range = {max(0, position - call.window), min(keys, position + call.window + 1)};
    if (call.causal) range.end = min(range.end, position + 1);
    return range;
  }
  /// The union of the keys that the queries first .. last see.
  __device__ Range keys_of(const Call& call, int first, int last) const {
    return {keys_of(call, first).begin, keys_of(call, last).end};
  }
  /// All queries that see any of the keys first .. last.
  __device__ Range queries_of(const Call& call, int first, int last) const {
    Range range{0, queries};
    if (call.window >= 0) range = {max(0, first - call.window - shift), min(queries, last + call.window - shift + 1)};
    if (call.causal) range.begin = max(range.begin, first - shift);
    return range;
  }
  /// True when every one of the queries first .. last sees every key of `range` by position.
  __device__ bool all_seen(const Call& call, int first, int last, Range range) const {
    return keys_of(call, last).begin <= range.begin && range.end <= keys_of(call, first).end;
  }
  /// True when the key is inside the sequence and not masked.
  __device__ bool is_valid(const Call& call, int key) const {
    return key < keys && (call.key_mask == nullptr || call.key_mask[key_begin + key] != 0);
  }
  /// The row index for dropout's random numbers.
  __device__ uint64_t row_key(const Call& call, int query) const {
    const int64_t token = query_begin + query;
    return static_cast<uint64_t>(call.row_keys != nullptr && query < queries ? call.row_keys[token] : token);
  }
};

/// A grid has one block for each tile of each head of each sequence, and a further block for each tile of each head to
/// clear the tokens after the last sequence in the same launch.
inline int64_t tile_count(int64_t length, int64_t tile) { return std::max<int64_t>(1, (length + tile - 1) / tile); }
inline dim3 task_grid(const Call& call, int64_t heads, int64_t tiles) {
  return dim3(grid_blocks((call.sequences + 1) * heads * tiles));
}
struct Task {
  int tile, head;
  int64_t sequence;
  /// The task of this block. The last tiles come first: with causal masks they take longest.
  __device__ Task(int heads, int tiles)
      : tile(tiles - 1 - static_cast<int>(blockIdx.x % tiles)),
        head(static_cast<int>(blockIdx.x / tiles % heads)),
        sequence(blockIdx.x / tiles / heads) {}
};

/// Zeroes one head of the tokens after the last sequence; `tiles` blocks take them in turn.
template <class T>
__device__ void clear_unused(const Rows<T>& rows, int64_t used, const Task& task, int tiles, int head_dim) {
  for (int64_t token = used + task.tile; token < rows.tokens; token += tiles) {
    for (int c = threadIdx.x; c < head_dim; c += blockDim.x) rows.at(token, task.head)[c] = T(0.0f);
  }
}

/// rowsum(dout * out), [heads][sequences][max_queries]. Written by the pass for dq, read by the others.
template <class F>
struct Delta {
  F* data;
  __device__ F& at(const Call& call, int head, int64_t sequence, int query) const {
    return data[(head * call.sequences + sequence) * call.max_queries + query];
  }
};

// attention/block.cu
void block_forward(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                   const View& out, const View& log_sum_exp);
void block_backward(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                    const ConstView& out, const ConstView& dout, const ConstView& log_sum_exp, const View& dq,
                    const View& dk, const View& dv, const View& dbias, void* workspace);

/// True when rows can be read and written 16 bytes at a time.
template <class AnyView>
bool has_aligned_rows(const AnyView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.strides[0] % 8 == 0 && view.strides[1] % 8 == 0;
}
/// True when the tensor-core path supports the call, provided that all tensors are aligned.
inline bool takes_tensor_cores(const Call& call, DType dtype) {
  return is_low_precision(dtype) && call.head_dim % 8 == 0 && call.head_dim <= 128 && call.bias.data == nullptr;
}

/// Calls f.template operator()<T, kDim, kDropout>() with the first of kDims that is at least head_dim.
template <int... kDims, class F>
void dispatch_tensor_cores(const Call& call, DType dtype, const F& f) {
  const auto by_dropout = [&]<class T, int kDim>() {
    if (call.drops)
      f.template operator()<T, kDim, true>();
    else
      f.template operator()<T, kDim, false>();
  };
  const auto by_dim = [&]<class T>() {
    (void)((call.head_dim <= kDims && (by_dropout.template operator()<T, kDims>(), true)) || ...);
  };
  if (dtype == DType::kBFloat16)
    by_dim.template operator()<BFloat16>();
  else
    by_dim.template operator()<Float16>();
}

}  // namespace tern::kernels::cuda::attention
