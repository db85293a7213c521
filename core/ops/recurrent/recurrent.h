#pragma once
// Recurrent layers over whole sequences. nn::LSTM, nn::GRU and nn::RNN are made of these.

#include <memory>

#include "tern/core/ops/recurrent/layout.h"
#include "tern/core/tensor.h"
#include "tern/kernels/recurrent/recurrent.h"

namespace tern {

namespace detail {
class PackedRecurrentWeight;
}

using kernels::RecurrentKind;

/// PyTorch's weights of one layer and direction. gates: 4 of LSTM (input, forget, cell, output), 3 of GRU (reset,
/// update, new), else 1. state: `projected` with a projection, which LSTM alone may have, otherwise `hidden`.
struct RecurrentWeights {
  Tensor input;            // weight_ih: [gates * hidden, in]
  Tensor state;            // weight_hh: [gates * hidden, state]
  Tensor input_bias = {};  // bias_ih: [gates * hidden] or undefined
  Tensor state_bias = {};  // bias_hh: the same
  Tensor projection = {};  // weight_hr: [projected, hidden] or undefined
  /// Where `state` is kept as the kernels read it, for calls of a few steps each (core/ops/recurrent/packed.h); or
  /// null.
  std::shared_ptr<detail::PackedRecurrentWeight> packed = {};
};

struct RecurrentResult {
  Tensor output;     // [rows, state]: the state after each step
  Tensor last;       // [batch, state]: after each sequence's last step (its first one, if reversed)
  Tensor last_cell;  // [batch, hidden]: of LSTM
};

/// One layer in one direction. x: [rows, in]; initial: [batch, state], initial_cell (LSTM): [batch, hidden], or
/// undefined: 0. reverse: from the end of each sequence to its beginning. Sums and the cells of LSTM are fp32 (fp64 for
/// fp64); cuDNN, which computes the layer on CUDA where it can (docs/cuda.md), may round cells to x's type.
/// Differentiable any number of times; the second derivative is that of the same layer made of ops. Autocast: low
/// precision. Errors: shapes and dtypes that do not fit.
RecurrentResult recurrent(RecurrentKind kind, const Tensor& x, const RecurrentLayout& layout,
                          const RecurrentWeights& weights, const Tensor& initial = {}, const Tensor& initial_cell = {},
                          bool reverse = false);

}  // namespace tern
