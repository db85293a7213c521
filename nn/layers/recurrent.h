#pragma once

#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/ops/recurrent/recurrent.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// torch.nn's arguments of GRU, and those that LSTM and RNN have too. LSTMOptions and RNNOptions repeat them instead of
/// deriving from this: C++ has no designated initialisers ({.layers = 2}) for members of a base.
struct RecurrentOptions {
  int64_t layers = 1;
  bool bidirectional = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool batch_first = false;
  bool bias = true;
};

/// [layers * directions, batch, width], forward before backward in each layer. cell: of LSTM. Undefined: 0.
struct RecurrentState {
  RecurrentState(Tensor hidden_state = {},
                 Tensor cell_state = {})  // NOLINT(google-explicit-constructor): gru.forward(x, h)
      : hidden(std::move(hidden_state)), cell(std::move(cell_state)) {}
  Tensor hidden, cell;
};
struct RecurrentOutput {
  Tensor output;         // of the last layer, directions side by side
  RecurrentState state;  // after each sequence's last step, in its direction
};

/// What nn::LSTM, nn::GRU and nn::RNN have in common. Parameter names and the order of gates are PyTorch's
/// ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0", "..._reverse"); initial values are
/// uniform within 1 / sqrt(hidden), as there. state: `hidden`, or proj_size of an LSTM with projections.
class RecurrentLayers : public Module {
 public:
  /// Sequences of one length. x: [steps, batch, in], [batch, steps, in] with batch_first, or [steps, in] without a
  /// batch, whose state then has no batch either. output: like x with directions * state columns.
  RecurrentOutput forward(const Tensor& x, const RecurrentState& initial = {}) const;
  /// What braces mean, which a layout could be made of as well: the initial state {h0} or {h0, c0}; {}: zeros.
  RecurrentOutput forward(const Tensor& x, std::initializer_list<Tensor> initial) const;
  /// Padded sequences of these lengths, as PyTorch's pack_padded_sequence and pad_packed_sequence around the layer:
  /// padding is not computed, and output is 0 there. Lengths are in [1, steps], in any order.
  RecurrentOutput forward(const Tensor& x, const std::vector<int64_t>& lengths,
                          const RecurrentState& initial = {}) const;
  /// Packed sequences, as Tern's text batches are. x: [tokens, in]; output: [tokens, directions * state].
  RecurrentOutput forward(const Tensor& x, const SequenceLayout& layout, const RecurrentState& initial = {}) const;
  /// The same, where the layout serves several modules. row_keys: int64 [tokens] or undefined, of the masks of dropout
  /// between layers (DropoutOptions::row_keys); a SequenceLayout has its own.
  RecurrentOutput forward(const Tensor& x, const RecurrentLayout& layout, const RecurrentState& initial = {},
                          const Tensor& row_keys = {}) const;

  int64_t input_size() const { return input_; }
  /// Columns of the output.
  int64_t output_size() const { return directions_ * state_; }

 protected:
  /// projected: 0 for none.
  RecurrentLayers(const Scope& s, const char* type, RecurrentKind kind, int64_t input, int64_t hidden,
                  const RecurrentOptions& options, int64_t projected = 0);

 private:
  struct Direction {
    Direction(RecurrentLayers* owner, const std::string& suffix, int64_t in, bool bias, bool projects);
    RecurrentWeights weights() const;
    Parameter input, state;
    std::optional<Parameter> input_bias, state_bias, projection;
  };
  RecurrentOutput run(const Tensor& x, const RecurrentLayout& layout, const RecurrentState& initial,
                      const Tensor& row_keys = {}) const;
  /// Without batch: of an x that has none.
  void check_state(const RecurrentState& initial, std::optional<int64_t> batch) const;

  const char* type_;
  RecurrentKind kind_;
  int64_t input_, hidden_, state_, layers_, directions_;
  double dropout_;
  bool batch_first_;
  std::deque<Direction> weights_;  // of layer l and direction d: [l * directions + d]
};

struct LSTMOptions {
  int64_t layers = 1;
  bool bidirectional = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool batch_first = false;
  bool bias = true;
  int64_t proj_size = 0;  // width of the projected state (Sak et al., arXiv:1402.1128), below hidden; 0: none
};
/// torch.nn.LSTM (Hochreiter & Schmidhuber, Neural Computation 1997).
class LSTM final : public RecurrentLayers {
 public:
  LSTM(const Scope& s, int64_t input, int64_t hidden, const LSTMOptions& options = {});
};

/// torch.nn.GRU (Cho et al., arXiv:1406.1078).
class GRU final : public RecurrentLayers {
 public:
  GRU(const Scope& s, int64_t input, int64_t hidden, const RecurrentOptions& options = {});
};

enum class RecurrentActivation { kTanh, kRelu };
struct RNNOptions {
  int64_t layers = 1;
  bool bidirectional = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool batch_first = false;
  bool bias = true;
  RecurrentActivation nonlinearity = RecurrentActivation::kTanh;
};
/// torch.nn.RNN (Elman, Cognitive Science 1990).
class RNN final : public RecurrentLayers {
 public:
  RNN(const Scope& s, int64_t input, int64_t hidden, const RNNOptions& options = {});
};

/// One step, for loops written by hand. Parameter names: "weight_ih", "weight_hh", "bias_ih", "bias_hh". x: [batch, in]
/// or [in], states: [batch, hidden] or [hidden], undefined: 0. On the CPU copies of weight_hh in the kernels' layouts
/// are kept, until it is changed by an op or an optimizer. After a write through Tensor::data() call bump_version().
class RecurrentCell : public Module {
 protected:
  RecurrentCell(const Scope& s, const char* type, RecurrentKind kind, int64_t input, int64_t hidden, bool bias);
  RecurrentState step(const Tensor& x, const RecurrentState& state) const;

 private:
  const char* type_;
  RecurrentKind kind_;
  int64_t input_, hidden_;
  Parameter weight_ih_, weight_hh_;
  std::optional<Parameter> bias_ih_, bias_hh_;
  std::shared_ptr<tern::detail::PackedRecurrentWeight> packed_;
};
/// torch.nn.LSTMCell.
class LSTMCell final : public RecurrentCell {
 public:
  LSTMCell(const Scope& s, int64_t input, int64_t hidden, bool bias = true);
  RecurrentState forward(const Tensor& x, const RecurrentState& state = {}) const { return step(x, state); }
};
/// torch.nn.GRUCell.
class GRUCell final : public RecurrentCell {
 public:
  GRUCell(const Scope& s, int64_t input, int64_t hidden, bool bias = true);
  Tensor forward(const Tensor& x, const Tensor& hidden = {}) const { return step(x, hidden).hidden; }
};
/// torch.nn.RNNCell.
class RNNCell final : public RecurrentCell {
 public:
  RNNCell(const Scope& s, int64_t input, int64_t hidden, bool bias = true,
          RecurrentActivation nonlinearity = RecurrentActivation::kTanh);
  Tensor forward(const Tensor& x, const Tensor& hidden = {}) const { return step(x, hidden).hidden; }
};

/// Sequences one after another, as the layers above, attention and Tern's text batches take them: what PyTorch calls a
/// PackedSequence, but in the order of sequences and not of steps.
struct PackedSequence {
  Tensor data;            // [tokens, ...]
  SequenceLayout layout;  // with offsets
};
/// x: [steps, batch, ...] or, with batch_first, [batch, steps, ...]. Lengths are in [1, steps] (Error), in any order.
PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first = false);
/// The inverse; steps below 0: those of the longest sequence.
Tensor pad_packed_sequence(const PackedSequence& packed, bool batch_first = false, double padding_value = 0,
                           int64_t steps = -1);

}  // namespace tern::nn
