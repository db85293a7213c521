#pragma once
// One layer and direction of a recurrent network by a library that takes whole sequences, with the products of the
// inputs: cuDNN on CUDA, none on the CPU. What it does not take is computed by kernels/recurrent/recurrent.h.
// Definitions are those of that header.

#include "tern/kernels/recurrent/recurrent.h"

namespace tern::kernels {

/// Where step t of sequence i is: row i * steps + t, row t * batch + i, or row (sequences of all steps before t) + i.
enum class SequenceRows : uint8_t { kBatchFirst, kStepsFirst, kByStep };

/// All views are contiguous and of one floating dtype T.
struct RecurrentSequence {
  RecurrentKind kind = RecurrentKind::kLstm;
  SequenceRows rows = SequenceRows::kByStep;
  const int64_t* lengths =
      nullptr;  // [batch] in host memory, positive; not ascending with kByStep, otherwise all equal
  int64_t batch = 0;
  ConstView x;                       // [rows, in]
  ConstView input, state;            // the weights: [gates * hidden, in], [gates * hidden, state]
  ConstView input_bias, state_bias;  // [gates * hidden] or absent
  ConstView projection;              // [state, hidden] or absent; LSTM only
  ConstView initial, initial_cell;   // [batch, state], [batch, hidden] of LSTM; or absent: 0
  int64_t width() const { return input.size(0); }
  int64_t hidden() const { return width() / gates_of(kind); }
};

struct RecurrentSequenceSizes {
  bool taken = false;                 // by a library; otherwise the sizes are 0
  int64_t forward = 0, backward = 0;  // bytes of workspace
  int64_t kept = 0;                   // bytes that the forward pass of training keeps for backward, aligned to 16
};
/// Whether a library computes the layer, and the memory that it takes. training: a backward pass follows.
TERN_KERNEL(RecurrentSequenceSizes, recurrent_sequence_sizes, Stream stream, const RecurrentSequence& sequence,
            bool training);

/// output: [rows, state]; last: [batch, state] and last_cell (LSTM): [batch, hidden], after each sequence's end; kept:
/// null without training. Only where recurrent_sequence_sizes() says `taken`; false, without a result, when the library
/// refuses the call all the same.
TERN_KERNEL(bool, recurrent_sequence_forward, Stream stream, const RecurrentSequence& sequence, View output, View last,
            View last_cell, void* kept, void* workspace);

/// Gradients that come in (absent: 0) are of T and aligned to 16 bytes, and so are those of x and of the states; those
/// of weights are of any floating dtypes. A result that is absent is not wanted.
struct RecurrentSequenceGradients {
  ConstView output, last, last_cell;
  View x, initial, initial_cell;
  View input, state, input_bias, state_bias, projection;
};
/// output: the result of forward, aligned to 16 bytes. What `kept` holds is changed and serves no second pass.
TERN_KERNEL(void, recurrent_sequence_backward, Stream stream, const RecurrentSequence& sequence, ConstView output,
            const RecurrentSequenceGradients& gradients, void* kept, void* workspace);

}  // namespace tern::kernels
