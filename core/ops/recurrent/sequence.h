#pragma once
// A recurrent layer by a library that takes whole sequences (kernels/recurrent/sequence.h), whatever the order of rows.

#include <optional>

#include "tern/core/ops/recurrent/recurrent.h"

namespace tern::detail {

/// The tensors of a layer, contiguous and of x's type; those that it lacks are undefined.
struct SequenceInputs {
  Tensor x, input, state, input_bias, state_bias, projection, initial, initial_cell;
};
struct SequenceResults {
  Tensor output, last, last_cell;
  Tensor kept;  // bytes, for sequence_backward(); of training
};
/// nullopt where no library computes the layer.
std::optional<SequenceResults> sequence_forward(RecurrentKind kind, const RecurrentLayout& layout, bool reverse,
                                                const SequenceInputs& in, bool training);

/// What comes in; undefined: 0.
struct SequenceGradients {
  Tensor output, last, last_cell;
};
/// The gradients of what is defined in `wanted`: weights' are written into its tensors, contiguous and of any floating
/// dtypes; those of x and of the states are new tensors, and what `wanted` has there says only that they are wanted.
/// The contents of `kept` are used up.
SequenceInputs sequence_backward(RecurrentKind kind, const RecurrentLayout& layout, bool reverse,
                                 const SequenceInputs& in, const Tensor& output, const Tensor& kept,
                                 const SequenceGradients& gradients, const SequenceInputs& wanted);

}  // namespace tern::detail
