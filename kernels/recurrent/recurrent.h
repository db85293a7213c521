#pragma once
// One layer and direction of a recurrent network over whole sequences: the elementary RNN, LSTM (Hochreiter &
// Schmidhuber 1997, with forget gates; projections of Sak et al., arXiv:1402.1128) and GRU (Cho et al.,
// arXiv:1406.1078), in PyTorch's form and order of gates. The products of the inputs come from the caller.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

enum class RecurrentKind : uint8_t { kLstm, kGru, kTanh, kRelu };

/// Blocks of `hidden` rows in the weights: input, forget, cell and output gate; reset, update and new gate; or one.
constexpr int64_t gates_of(RecurrentKind kind) {
  return kind == RecurrentKind::kLstm ? 4 : kind == RecurrentKind::kGru ? 3 : 1;
}

/// Which rows of the inputs belong to which step. Sequences are sorted, the longest first, and sequence i runs in step
/// t when i < counts[t]; its row is then first[i] + t * stride. A stride below 0 goes back in time.
struct RecurrentSteps {
  const int64_t* counts = nullptr;  // in host memory; positive, not ascending
  int64_t steps = 0;
  int64_t stride = 1;
  ConstView first;  // int64 [batch]
  ConstView order;  // int64 [batch]: the rows of the sequences in the first and last states
};

/// State: the output's width, `projected` with a projection (LSTM only) and `hidden` otherwise. All views are
/// contiguous and of one floating dtype T; those of cells are of its compute type.
struct RecurrentLayer {
  RecurrentKind kind = RecurrentKind::kLstm;
  RecurrentSteps steps;
  ConstView weight;        // [gates * hidden, state]
  ConstView bias;          // [gates * hidden], added to the product with the state; or absent
  ConstView projection;    // [projected, hidden] or absent
  ConstView initial;       // T [batch, state] or absent: 0
  ConstView initial_cell;  // T [batch, hidden] or absent: 0; LSTM only
  /// The weight as recurrent_pack() wrote it for the pass that is called, or null.
  const void* packed_weight = nullptr;
  int64_t batch() const { return steps.first.size(0); }
  int64_t state() const { return weight.size(1); }
  int64_t hidden() const { return weight.size(0) / gates_of(kind); }
};

/// What forward keeps for backward.
struct RecurrentKept {
  View gates;   // T [rows, gates * hidden]
  View cells;   // compute type [rows, hidden]: the cells of LSTM
  View hidden;  // T [rows, hidden]: of GRU, the new gate's product with the state
};

/// Where a weight stays the same for many calls of few steps: `packed` becomes what forward or backward reads of the
/// weight in its place. It depends on the layer's kind, weight and nothing else. 0 bytes where that would be the weight
/// itself; then nothing is packed.
TERN_KERNEL(int64_t, recurrent_packed_bytes, Stream stream, RecurrentLayer layer, bool backward);
TERN_KERNEL(void, recurrent_pack, Stream stream, RecurrentLayer layer, bool backward, void* packed);

/// Bytes of workspace for recurrent_forward, aligned to 16. The number of threads must not change until the kernel
/// ends.
TERN_KERNEL(int64_t, recurrent_forward_workspace, Stream stream, RecurrentLayer layer);
/// kept.gates: in, the inputs' products with their bias; out, the values of the gates, if kept.cells (LSTM) or
/// kept.hidden (GRU) is present. They are absent when no gradient is needed. output: [rows, state]; rows of no sequence
/// are not written. last: [batch, state] and last_cell (LSTM): [batch, hidden], the state after each sequence's end.
TERN_KERNEL(void, recurrent_forward, Stream stream, RecurrentLayer layer, RecurrentKept kept, View output, View last,
            View last_cell, void* workspace);

/// Gradients that come in (absent: 0), and results, of which initial, initial_cell and previous may be absent.
struct RecurrentGradients {
  ConstView output;            // [rows, state]
  ConstView last, last_cell;   // [batch, state], [batch, hidden]
  View gates;                  // [rows, gates * hidden]: before the activation, of the inputs' products
  View state_gates;            // GRU: the same of the states' products; absent otherwise, where they are equal
  View projected;              // with a projection, [rows, state]: of the projected state
  View unprojected;            // with a projection, [rows, hidden]: no gradient, but the state before it
  View previous;               // [rows, state]: no gradient, but the state before each step
  View initial, initial_cell;  // [batch, state], [batch, hidden]; initial_cell of LSTM only
};
/// Gradients from what recurrent_forward kept and its output. Rows of no sequence are not written.
TERN_KERNEL(int64_t, recurrent_backward_workspace, Stream stream, RecurrentLayer layer);
TERN_KERNEL(void, recurrent_backward, Stream stream, RecurrentLayer layer, RecurrentKept kept, ConstView output,
            RecurrentGradients gradients, void* workspace);

}  // namespace tern::kernels
