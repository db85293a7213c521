#include "tern/nn/layers/recurrent.h"

#include <algorithm>
#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/core/ops/recurrent/packed.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Initializer recurrent_init(int64_t hidden) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  return init::uniform(-bound, bound);
}

int64_t checked_hidden(const char* type, int64_t input, int64_t hidden) {
  TERN_CHECK(input > 0 && hidden > 0, "nn::", type, ": sizes must be > 0, got input ", input, " and hidden ", hidden);
  return hidden;
}

RecurrentKind kind_of(RecurrentActivation nonlinearity) {
  return nonlinearity == RecurrentActivation::kRelu ? RecurrentKind::kRelu : RecurrentKind::kTanh;
}

/// The members that all kinds have.
template <class Options>
RecurrentOptions common(const Options& o) {
  return {.layers = o.layers,
          .bidirectional = o.bidirectional,
          .dropout = o.dropout,
          .batch_first = o.batch_first,
          .bias = o.bias};
}

void check_lengths(const std::string& name, const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first) {
  TERN_CHECK(x.dim() >= 2, name, ": expected padded sequences ",
             batch_first ? "[batch, steps, ...]" : "[steps, batch, ...]", ", got ", x.shape());
  const int64_t batch = x.size(batch_first ? 0 : 1), steps = x.size(batch_first ? 1 : 0);
  TERN_CHECK(static_cast<int64_t>(lengths.size()) == batch, name, ": expected ", batch,
             " lengths, one for each sequence of x ", x.shape(), ", got ", lengths.size());
  for (size_t b = 0; b < lengths.size(); ++b)
    TERN_CHECK(lengths[b] >= 1 && lengths[b] <= steps, name, ": length ", b, " must be in [1, ", steps, "], got ",
               lengths[b]);
}

/// int64 [tokens]: the rows that packed tokens have in a padded batch as a matrix.
Tensor padded_rows(const std::vector<int64_t>& lengths, int64_t steps, bool batch_first, Device device) {
  const auto batch = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < lengths[b]; ++t) rows.push_back(batch_first ? b * steps + t : t * batch + b);
  return from_vector(rows, {static_cast<int64_t>(rows.size())}).to(device);
}

Tensor packed_rows(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first) {
  const int64_t steps = x.size(batch_first ? 1 : 0);
  return index_select(x.flatten(0, 1), 0, padded_rows(lengths, steps, batch_first, x.device()));
}

Tensor padded_from(const Tensor& data, const std::vector<int64_t>& lengths, int64_t steps, bool batch_first,
                   double value) {
  const auto batch = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> sizes = data.shape().vec();
  sizes[0] = tern::detail::checked_product("nn::pad_packed_sequence", batch, steps);
  const Tensor filled = index_copy(full(Shape(sizes), value, data.options()), 0,
                                   padded_rows(lengths, steps, batch_first, data.device()), data);
  return filled.unflatten(0, batch_first ? std::vector{batch, steps} : std::vector{steps, batch});
}

}  // namespace

// ---- layers ----

RecurrentLayers::Direction::Direction(RecurrentLayers* owner, const std::string& suffix, int64_t in, bool bias,
                                      bool projects)
    : input(owner, "weight_ih" + suffix, Shape{gates_of(owner->kind_) * owner->hidden_, in},
            recurrent_init(owner->hidden_)),
      state(owner, "weight_hh" + suffix, Shape{gates_of(owner->kind_) * owner->hidden_, owner->state_},
            recurrent_init(owner->hidden_)) {
  const Initializer initializer = recurrent_init(owner->hidden_);
  const Shape gates = {state.shape()[0]};
  if (bias) input_bias.emplace(owner, "bias_ih" + suffix, gates, initializer);
  if (bias) state_bias.emplace(owner, "bias_hh" + suffix, gates, initializer);
  if (projects) projection.emplace(owner, "weight_hr" + suffix, Shape{owner->state_, owner->hidden_}, initializer);
}

RecurrentWeights RecurrentLayers::Direction::weights() const {
  const auto optional = [](const std::optional<Parameter>& p) { return p ? p->tensor() : Tensor(); };
  return {input, state, optional(input_bias), optional(state_bias), optional(projection)};
}

RecurrentLayers::RecurrentLayers(const Scope& s, const char* type, RecurrentKind kind, int64_t input, int64_t hidden,
                                 const RecurrentOptions& options, int64_t projected)
    : Module(s),
      type_(type),
      kind_(kind),
      input_(input),
      hidden_(checked_hidden(type, input, hidden)),
      state_(projected == 0 ? hidden : projected),
      layers_(options.layers),
      directions_(options.bidirectional ? 2 : 1),
      dropout_(options.dropout),
      batch_first_(options.batch_first) {
  TERN_CHECK(layers_ > 0, "nn::", type, ": layers must be > 0, got ", layers_);
  TERN_CHECK(dropout_ >= 0 && dropout_ <= 1, "nn::", type, ": dropout must be in [0, 1], got ", dropout_);
  TERN_CHECK(projected >= 0 && projected < hidden, "nn::", type, ": proj_size must be in [0, ", hidden,
             "), below hidden, got ", projected);
  constexpr int64_t kBytes = 2048;  // of a layer's modules and names, without its weights
  tern::detail::check_host_list((std::string("nn::") + type).c_str(), layers_, directions_ * kBytes);
  for (int64_t l = 0; l < layers_; ++l)
    for (int64_t d = 0; d < directions_; ++d)
      weights_.emplace_back(this, "_l" + std::to_string(l) + (d == 1 ? "_reverse" : ""),
                            l == 0 ? input : directions_ * state_, options.bias, projected > 0);
}

void RecurrentLayers::check_state(const RecurrentState& initial, std::optional<int64_t> batch) const {
  const auto check = [&](const char* name, const Tensor& state, int64_t width) {
    const int64_t rows = layers_ * directions_;
    const Shape expected = batch ? Shape{rows, *batch, width} : Shape{rows, width};
    TERN_CHECK(!state.defined() || state.shape() == expected, "nn::", type_, ": the initial ", name, " must be ",
               expected,
               batch ? " (layers * directions, batch, width)" : " (layers * directions, width; x has no batch)",
               ", got ", state.defined() ? state.shape() : Shape());
  };
  check("state", initial.hidden, state_);
  check("cell", initial.cell, hidden_);
  TERN_CHECK(kind_ == RecurrentKind::kLstm || !initial.cell.defined(), "nn::", type_, ": only nn::LSTM has cells");
}

RecurrentOutput RecurrentLayers::run(const Tensor& x, const RecurrentLayout& layout, const RecurrentState& initial,
                                     const Tensor& row_keys) const {
  TERN_CHECK(x.dim() == 2 && x.size(1) == input_, "nn::", type_, ": expected ", input_, " columns of x, got ",
             x.shape());
  check_state(initial, layout.batch());
  std::vector<Tensor> hidden, cells;
  Tensor y = x;
  for (int64_t l = 0; l < layers_; ++l) {
    if (l > 0 && is_training() && dropout_ > 0)
      y = dropout(y, {.p = dropout_, .generator = &generator(), .row_keys = row_keys});
    std::vector<Tensor> outputs;
    for (int64_t d = 0; d < directions_; ++d) {
      const int64_t i = l * directions_ + d;
      const auto start = [&](const Tensor& state) { return state.defined() ? state.select(0, i) : state; };
      const RecurrentResult result = recurrent(kind_, y, layout, weights_[static_cast<size_t>(i)].weights(),
                                               start(initial.hidden), start(initial.cell), d == 1);
      outputs.push_back(result.output);
      hidden.push_back(result.last);
      if (kind_ == RecurrentKind::kLstm) cells.push_back(result.last_cell);
    }
    y = directions_ == 1 ? outputs[0] : cat(outputs, 1);
  }
  return {y, {stack(hidden), cells.empty() ? Tensor() : stack(cells)}};
}

RecurrentOutput RecurrentLayers::forward(const Tensor& x, const RecurrentLayout& layout, const RecurrentState& initial,
                                         const Tensor& row_keys) const {
  const ProfileRange range(name());
  RecurrentOutput found;
  const Tensor output = hooked(x, [&](const Tensor& given) {
    found = run(given, layout, initial, row_keys);
    return found.output;
  });
  return {output, found.state};
}

RecurrentOutput RecurrentLayers::forward(const Tensor& x, const SequenceLayout& layout,
                                         const RecurrentState& initial) const {
  return forward(x, RecurrentLayout::packed(layout), initial, layout.row_keys);
}

RecurrentOutput RecurrentLayers::forward(const Tensor& x, const RecurrentState& initial) const {
  const ProfileRange range(name());
  RecurrentOutput found;
  const Tensor output = hooked(x, [&](const Tensor& given) {
    TERN_CHECK((given.dim() == 2 || given.dim() == 3) && given.size(-1) == input_, "nn::", type_, ": expected x ",
               batch_first_ ? "[batch, steps, " : "[steps, batch, ", input_, "] or [steps, ", input_, "], got ",
               given.shape());
    if (given.dim() == 2) {
      check_state(initial, {});
      const auto batched = [](const Tensor& state) { return state.defined() ? state.unsqueeze(1) : state; };
      const auto layout = RecurrentLayout::padded(1, given.size(0), true, given.device());
      found = run(given, layout, {batched(initial.hidden), batched(initial.cell)});
      found.state.hidden = found.state.hidden.select(1, 0);
      if (found.state.cell.defined()) found.state.cell = found.state.cell.select(1, 0);
      return found.output;
    }
    const int64_t batch = given.size(batch_first_ ? 0 : 1), steps = given.size(batch_first_ ? 1 : 0);
    const auto layout = RecurrentLayout::padded(batch, steps, batch_first_, given.device());
    found = run(given.flatten(0, 1), layout, initial);
    return found.output.unflatten(0, {given.size(0), given.size(1)});
  });
  return {output, found.state};
}

RecurrentOutput RecurrentLayers::forward(const Tensor& x, std::initializer_list<Tensor> initial) const {
  TERN_CHECK(initial.size() <= 2, "nn::", type_, ": the initial state is {state} or, of nn::LSTM, {state, cell}, got ",
             initial.size(), " tensors");
  const auto at = [&](size_t i) { return i < initial.size() ? initial.begin()[i] : Tensor(); };
  return forward(x, RecurrentState(at(0), at(1)));
}

RecurrentOutput RecurrentLayers::forward(const Tensor& x, const std::vector<int64_t>& lengths,
                                         const RecurrentState& initial) const {
  const ProfileRange range(name());
  RecurrentOutput found;
  const Tensor output = hooked(x, [&](const Tensor& given) {
    TERN_CHECK(given.dim() == 3 && given.size(2) == input_, "nn::", type_, ": expected padded sequences ",
               batch_first_ ? "[batch, steps, " : "[steps, batch, ", input_, "], got ", given.shape());
    check_lengths(std::string("nn::") + type_, given, lengths, batch_first_);
    found = run(packed_rows(given, lengths, batch_first_), RecurrentLayout::packed(lengths, given.device()), initial);
    return padded_from(found.output, lengths, given.size(batch_first_ ? 1 : 0), batch_first_, 0);
  });
  return {output, found.state};
}

LSTM::LSTM(const Scope& s, int64_t input, int64_t hidden, const LSTMOptions& options)
    : RecurrentLayers(s, "LSTM", RecurrentKind::kLstm, input, hidden, common(options), options.proj_size) {}
GRU::GRU(const Scope& s, int64_t input, int64_t hidden, const RecurrentOptions& options)
    : RecurrentLayers(s, "GRU", RecurrentKind::kGru, input, hidden, options) {}
RNN::RNN(const Scope& s, int64_t input, int64_t hidden, const RNNOptions& options)
    : RecurrentLayers(s, "RNN", kind_of(options.nonlinearity), input, hidden, common(options)) {}

// ---- cells ----

RecurrentCell::RecurrentCell(const Scope& s, const char* type, RecurrentKind kind, int64_t input, int64_t hidden,
                             bool bias)
    : Module(s),
      type_(type),
      kind_(kind),
      input_(input),
      hidden_(checked_hidden(type, input, hidden)),
      weight_ih_(this, "weight_ih", Shape{gates_of(kind) * hidden, input}, recurrent_init(hidden)),
      weight_hh_(this, "weight_hh", Shape{gates_of(kind) * hidden, hidden}, recurrent_init(hidden)),
      packed_(std::make_shared<tern::detail::PackedRecurrentWeight>()) {
  if (bias) bias_ih_.emplace(this, "bias_ih", Shape{gates_of(kind) * hidden}, recurrent_init(hidden));
  if (bias) bias_hh_.emplace(this, "bias_hh", Shape{gates_of(kind) * hidden}, recurrent_init(hidden));
}

RecurrentState RecurrentCell::step(const Tensor& first, const RecurrentState& state) const {
  const ProfileRange range(name());
  RecurrentState after;
  after.hidden = hooked(first, [&](const Tensor& x) {
    TERN_CHECK((x.dim() == 1 || x.dim() == 2) && x.size(-1) == input_, "nn::", type_, ": expected x [batch, ", input_,
               "] or [", input_, "], got ", x.shape());
    const Shape expected = x.shape().with(x.dim() - 1, hidden_);
    for (const Tensor* given : {&state.hidden, &state.cell})
      TERN_CHECK(!given->defined() || given->shape() == expected, "nn::", type_, ": the state must be ", expected,
                 ", got ", given->defined() ? given->shape() : Shape());
    const auto rows = [&](const Tensor& t) { return t.defined() && x.dim() == 1 ? t.unsqueeze(0) : t; };
    const auto optional = [](const std::optional<Parameter>& p) { return p ? p->tensor() : Tensor(); };
    const auto layout = RecurrentLayout::padded(x.dim() == 1 ? 1 : x.size(0), 1, true, x.device());
    const RecurrentResult result =
        recurrent(kind_, rows(x), layout, {weight_ih_, weight_hh_, optional(bias_ih_), optional(bias_hh_), {}, packed_},
                  rows(state.hidden), rows(state.cell));
    if (result.last_cell.defined()) after.cell = x.dim() == 1 ? result.last_cell.squeeze(0) : result.last_cell;
    return x.dim() == 1 ? result.last.squeeze(0) : result.last;
  });
  return after;
}

LSTMCell::LSTMCell(const Scope& s, int64_t input, int64_t hidden, bool bias)
    : RecurrentCell(s, "LSTMCell", RecurrentKind::kLstm, input, hidden, bias) {}
GRUCell::GRUCell(const Scope& s, int64_t input, int64_t hidden, bool bias)
    : RecurrentCell(s, "GRUCell", RecurrentKind::kGru, input, hidden, bias) {}
RNNCell::RNNCell(const Scope& s, int64_t input, int64_t hidden, bool bias, RecurrentActivation nonlinearity)
    : RecurrentCell(s, "RNNCell", kind_of(nonlinearity), input, hidden, bias) {}

// ---- packing ----

PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first) {
  check_lengths("nn::pack_padded_sequence", x, lengths, batch_first);
  return {packed_rows(x, lengths, batch_first), packed_layout(lengths, x.device())};
}

Tensor pad_packed_sequence(const PackedSequence& packed, bool batch_first, double padding_value, int64_t steps) {
  const RecurrentLayout layout = RecurrentLayout::packed(packed.layout);
  TERN_CHECK(packed.data.dim() >= 1 && packed.data.size(0) == layout.rows(), "nn::pad_packed_sequence: data ",
             packed.data.shape(), " must have ", layout.rows(), " rows, the last of the offsets");
  const std::vector<int64_t>& lengths = layout.lengths();
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  TERN_CHECK(steps < 0 || steps >= longest, "nn::pad_packed_sequence: steps must be at least ", longest,
             ", the longest length, got ", steps);
  return padded_from(packed.data, lengths, steps < 0 ? longest : steps, batch_first, padding_value);
}

}  // namespace tern::nn
