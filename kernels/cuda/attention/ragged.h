#pragma once
// Conversions between Tern's packed sequences and those of libraries: cuDNN's attention takes lengths, offsets in
// elements and log_sum_exp by tokens, and does not write results after the last sequence.

#include "tern/kernels/kernel.h"

namespace tern::kernels::cuda {

/// Distances of neighbouring tokens in several tensors, in elements.
struct TokenStrides {
  static constexpr int kMax = 9;
  int64_t values[kMax] = {};
  int count = 0;
};

/// Pitch of arrays of sequences + 1 offsets: each array begins at a multiple of 16 bytes.
inline int64_t offsets_pitch(int64_t sequences) { return (sequences + 2) / 2 * 2; }

/// Computes lengths [sequences] and, for each stride, offsets * stride [sequences + 1], offsets_pitch() apart.
void ragged_offsets(Stream stream, const int32_t* offsets, int64_t sequences, const TokenStrides& strides,
                    int32_t* lengths, int64_t* elements);

/// log_sum_exp [heads, tokens] from by_token [tokens in sequences, heads]; -infinity after the last sequence.
void heads_first(Stream stream, const int32_t* offsets, int64_t sequences, const float* by_token, View log_sum_exp);
/// The reverse of heads_first, for the tokens in sequences.
void tokens_first(Stream stream, const int32_t* offsets, int64_t sequences, ConstView log_sum_exp, float* by_token);
/// Zeroes a 16-bit tensor [tokens, heads, head_dim] after the last sequence.
void clear_unused(Stream stream, const int32_t* offsets, int64_t sequences, View tensor);

}  // namespace tern::kernels::cuda
