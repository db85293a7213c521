// Kernels that prepare the arguments of a library's attention and complete its results.

#include "tern/kernels/cuda/attention/ragged.h"

#include <algorithm>

#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// Number of blocks for a loop over `work` elements.
dim3 blocks_for(int64_t work) {
  return dim3(static_cast<unsigned>(std::clamp<int64_t>((work + kThreads - 1) / kThreads, 1, 4096)));
}
__device__ int64_t first_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t index_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void ragged_offsets_kernel(const int32_t* offsets, int64_t sequences, TokenStrides strides, int64_t pitch,
                                      int32_t* lengths, int64_t* elements) {
  for (int64_t i = first_index(); i <= sequences; i += index_step()) {
    if (i < sequences) lengths[i] = offsets[i + 1] - offsets[i];
    for (int s = 0; s < strides.count; ++s) elements[s * pitch + i] = offsets[i] * strides.values[s];
  }
}

struct HeadRows {
  float* data;
  int64_t heads, tokens, head_stride, token_stride;
};
HeadRows head_rows(const ConstView& v) {
  return {const_cast<float*>(static_cast<const float*>(v.data)), v.shape[0], v.shape[1], v.strides[0], v.strides[1]};
}

__global__ void heads_first_kernel(const int32_t* used, const float* by_token, HeadRows rows) {
  for (int64_t i = first_index(); i < rows.heads * rows.tokens; i += index_step()) {
    const int64_t head = i / rows.tokens, token = i % rows.tokens;
    rows.data[head * rows.head_stride + token * rows.token_stride] =
        token < *used ? by_token[token * rows.heads + head] : -INFINITY;
  }
}

__global__ void tokens_first_kernel(const int32_t* used, HeadRows rows, float* by_token) {
  for (int64_t i = first_index(); i < rows.heads * *used; i += index_step()) {
    const int64_t head = i % rows.heads, token = i / rows.heads;
    by_token[i] = rows.data[head * rows.head_stride + token * rows.token_stride];
  }
}

__global__ void clear_behind_kernel(const int32_t* used, uint16_t* data, int64_t tokens, int64_t token_stride,
                                    int64_t heads, int64_t head_stride, int64_t head_dim) {
  const int64_t row = heads * head_dim, end = (tokens - *used) * row;
  for (int64_t i = first_index(); i < end; i += index_step())
    data[(*used + i / row) * token_stride + i % row / head_dim * head_stride + i % head_dim] = 0;
}

}  // namespace

void ragged_offsets(Stream stream, const int32_t* offsets, int64_t sequences, const TokenStrides& strides,
                    int32_t* lengths, int64_t* elements) {
  launch(ragged_offsets_kernel, blocks_for(sequences + 1), dim3(kThreads), 0, stream, offsets, sequences, strides,
         offsets_pitch(sequences), lengths, elements);
}

void heads_first(Stream stream, const int32_t* offsets, int64_t sequences, const float* by_token, View log_sum_exp) {
  launch(heads_first_kernel, blocks_for(log_sum_exp.numel()), dim3(kThreads), 0, stream, offsets + sequences, by_token,
         head_rows(log_sum_exp));
}

void tokens_first(Stream stream, const int32_t* offsets, int64_t sequences, ConstView log_sum_exp, float* by_token) {
  launch(tokens_first_kernel, blocks_for(log_sum_exp.numel()), dim3(kThreads), 0, stream, offsets + sequences,
         head_rows(log_sum_exp), by_token);
}

void clear_unused(Stream stream, const int32_t* offsets, int64_t sequences, View tensor) {
  launch(clear_behind_kernel, dim3(32), dim3(kThreads), 0, stream, offsets + sequences,
         static_cast<uint16_t*>(tensor.data), tensor.shape[0], tensor.strides[0], tensor.shape[1], tensor.strides[1],
         tensor.shape[2]);
}

}  // namespace tern::kernels::cuda
