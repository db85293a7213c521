#include "tern/core/ops/recurrent/recurrent.h"

#include <array>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/autograd/kept_graph.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/matmul/linear.h"
#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/matmul/linear_passes.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/recurrent/packed.h"
#include "tern/core/ops/recurrent/sequence.h"
#include "tern/core/ops/workspace.h"

namespace tern {

namespace {

// ---- the layer made of ops ----

/// The tensor arguments, in this order.
enum RecurrentInput { kX, kInput, kState, kInputBias, kStateBias, kProjection, kInitial, kInitialCell, kInputs };
using RecurrentInputs = std::array<Tensor, kInputs>;

/// The new state before projection; `cell` becomes the new one.
Tensor recurrent_step(RecurrentKind kind, const Tensor& of_input, const Tensor& of_state, const Tensor& state,
                      Tensor& cell) {
  if (kind == RecurrentKind::kLstm) {
    const std::vector<Tensor> gates = add(of_input, of_state).chunk(4, 1);
    cell = add(mul(sigmoid(gates[1]), cell), mul(sigmoid(gates[0]), tanh(gates[2])));
    return mul(sigmoid(gates[3]), tanh(cell));
  }
  if (kind == RecurrentKind::kGru) {
    const std::vector<Tensor> x = of_input.chunk(3, 1), h = of_state.chunk(3, 1);
    const Tensor update = sigmoid(add(x[1], h[1]));
    const Tensor candidate = tanh(add(x[2], mul(sigmoid(add(x[0], h[0])), h[2])));
    return add(candidate, mul(update, sub(state, candidate)));
  }
  const Tensor sum = add(of_input, of_state);
  return kind == RecurrentKind::kTanh ? tanh(sum) : relu(sum);
}

/// What recurrent() computes, differentiable any number of times.
std::vector<Tensor> recurrent_by_ops(RecurrentKind kind, const RecurrentLayout& layout, bool reverse,
                                     const RecurrentInputs& in) {
  const Tensor& x = in[kX];
  const auto cast = [&](RecurrentInput i) { return in[i].defined() ? in[i].to(x.dtype()) : in[i]; };
  const auto start = [&](RecurrentInput i, int64_t width) {
    return in[i].defined() ? index_select(in[i], 0, layout.order()) : zeros({layout.batch(), width}, x.options());
  };
  const Tensor weight = cast(kState), bias = cast(kStateBias), projection = cast(kProjection);
  const Tensor gates = linear(x, cast(kInput), cast(kInputBias));
  Tensor state = start(kInitial, weight.size(1)), cell = start(kInitialCell, weight.size(0) / gates_of(kind));
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < layout.steps(reverse).steps; ++t) {
    const Tensor rows = layout.rows_of_step(t, reverse);
    const int64_t running = rows.numel();
    const Tensor before = state.slice(0, 0, running);
    Tensor now = cell.slice(0, 0, running);
    Tensor after = recurrent_step(kind, index_select(gates, 0, rows), linear(before, weight, bias), before, now);
    if (projection.defined()) after = linear(after, projection);
    outputs.push_back(after);
    state = running < layout.batch() ? cat({after, state.slice(0, running)}) : after;
    cell = running < layout.batch() ? cat({now, cell.slice(0, running)}) : now;
  }
  const Tensor back = layout.places();
  std::vector<Tensor> results = {index_select(cat(outputs), 0, layout.by_step(reverse).places),
                                 index_select(state, 0, back)};
  if (kind == RecurrentKind::kLstm) results.push_back(index_select(cell, 0, back));
  return results;
}

// ---- by kernels ----

struct Recurrent final : TwiceDifferentiable<Recurrent> {
  static constexpr const char* kName = "recurrent";
  RecurrentKind kind_ = RecurrentKind::kLstm;
  RecurrentLayout layout_;
  bool reverse_ = false;
  Saved inputs_[kInputs];
  Saved input_, state_, projection_;  // the weights in x's type: autocast's copies
  Saved gates_, cells_, hidden_;
  Saved input_bias_, state_bias_, kept_;  // where a library computes the layer
  bool kept_is_used_ = false;
  SavedOutput output_;
  DType types_[kInputs] = {};
  std::shared_ptr<detail::PackedRecurrentWeight> packed_;

  std::vector<Tensor> forward(RecurrentKind kind, const RecurrentLayout& layout, bool reverse,
                              const std::shared_ptr<detail::PackedRecurrentWeight>& packed, const Tensor& x,
                              const Tensor& input, const Tensor& state, const Tensor& input_bias,
                              const Tensor& state_bias, const Tensor& projection, const Tensor& initial,
                              const Tensor& initial_cell) {
    kind_ = kind;
    layout_ = layout;
    reverse_ = reverse;
    packed_ = packed;
    const Tensor* const all[] = {&x, &input, &state, &input_bias, &state_bias, &projection, &initial, &initial_cell};
    for (int i = 0; i < kInputs; ++i) {
      inputs_[i] = *all[i];
      if (all[i]->defined()) types_[i] = all[i]->dtype();
    }
    const auto cast = [&](const Tensor& t) { return t.defined() ? detail::autocast_copy(t, x.dtype()) : t; };
    const Tensor used = cast(input), state_used = cast(state), projection_used = cast(projection);
    input_ = used;
    state_ = state_used;
    projection_ = projection_used;
    const detail::SequenceInputs whole{
        x, used, state_used, cast(input_bias), cast(state_bias), projection_used, initial, initial_cell};
    if (const auto found = detail::sequence_forward(kind, layout, reverse, whole, recorded())) {
      input_bias_ = whole.input_bias;
      state_bias_ = whole.state_bias;
      kept_ = found->kept;
      output_ = found->output;
      if (kind == RecurrentKind::kLstm) return {found->output, found->last, found->last_cell};
      return {found->output, found->last};
    }
    const Tensor gates = detail::linear_product(x, used, detail::bias_for(x, input, input_bias), Activation::kNone, {});
    return run(gates, state, state_used, cast(state_bias), projection_used, initial, initial_cell);
  }

  /// given: the state's weight as it lives on, state: in the dtype of the product.
  std::vector<Tensor> run(const Tensor& gates, const Tensor& given, const Tensor& state, const Tensor& bias,
                          const Tensor& projection, const Tensor& initial, const Tensor& initial_cell) {
    const TensorOptions options = gates.options();
    const int64_t hidden = state.size(0) / gates_of(kind_);
    kernels::RecurrentLayer layer = describe(state, projection, initial, initial_cell);
    layer.bias = bias.view();
    const Tensor memory = set_packed(layer, given, false);
    const Tensor output = empty({layout_.rows(), state.size(1)}, options);
    const Tensor last = empty({layout_.batch(), state.size(1)}, options);
    Tensor last_cell, cells, kept;
    if (kind_ == RecurrentKind::kLstm) last_cell = empty({layout_.batch(), hidden}, options);
    if (recorded() && kind_ == RecurrentKind::kLstm)
      cells = empty({layout_.rows(), hidden}, {options.dtype == float64 ? float64 : float32, options.device});
    if (recorded() && kind_ == RecurrentKind::kGru) kept = empty({layout_.rows(), hidden}, options);
    const kernels::Stream stream = current_stream(options.device);
    const Workspace workspace(options.device, [&] { return kernels::recurrent_forward_workspace(stream, layer); });
    kernels::recurrent_forward(stream, layer, {gates.view(), cells.view(), kept.view()}, output.view(), last.view(),
                               last_cell.view(), workspace.data());
    detail::count_product(layout_.rows(), state.size(0), state.size(1), options.dtype);
    if (kind_ == RecurrentKind::kLstm || kind_ == RecurrentKind::kGru) gates_ = gates;
    cells_ = cells;
    hidden_ = kept;
    output_ = output;
    if (kind_ == RecurrentKind::kLstm) return {output, last, last_cell};
    return {output, last};
  }

  kernels::RecurrentLayer describe(const Tensor& state, const Tensor& projection, const Tensor& initial,
                                   const Tensor& initial_cell) const {
    kernels::RecurrentLayer layer;
    layer.kind = kind_;
    layer.steps = layout_.steps(reverse_);
    layer.weight = state.view();
    layer.projection = projection.view();
    layer.initial = initial.view();
    layer.initial_cell = initial_cell.view();
    return layer;
  }

  /// Gives the layer the packed weight. The result must live as long as the layer is used.
  Tensor set_packed(kernels::RecurrentLayer& layer, const Tensor& given, bool backward) const {
    const Tensor memory = packed_ ? packed_->find(layer, given, backward) : Tensor();
    if (memory.defined()) layer.packed_weight = memory.raw_data();
    return memory;
  }

  Grads backward_all(const Grads& gradients) override {
    return grad_enabled() ? by_ops(gradients) : kept_.defined() ? by_library(gradients) : by_kernels(gradients);
  }

  /// What the library's forward pass kept, which its backward pass changes.
  Tensor take_kept() {
    TERN_CHECK(!kept_is_used_, "recurrent: backward was already run; pass retain_graph = true to run it again");
    if (detail::graph_is_kept()) return kept_.get().clone();
    kept_is_used_ = true;
    return kept_.get();
  }

  Grads by_library(const Grads& gradients) {
    const auto gradient = [&](size_t i) {
      return i < gradients.size() && gradients[i].defined() ? gradients[i].contiguous() : Tensor();
    };
    const auto of = [&](RecurrentInput i) { return inputs_[i].get_or_none(); };
    const detail::SequenceInputs in{of(kX),
                                    input_.get(),
                                    state_.get(),
                                    input_bias_.get_or_none(),
                                    state_bias_.get_or_none(),
                                    projection_.get_or_none(),
                                    of(kInitial),
                                    of(kInitialCell)};
    const auto wanted = [&](RecurrentInput i, const Tensor& like) {
      if (!needs_grad(i)) return Tensor();
      return i >= kInput && i < kInitial ? empty(like.shape(), {types_[i], like.device()}) : like;
    };
    const detail::SequenceInputs found = detail::sequence_backward(
        kind_, layout_, reverse_, in, output_.get(), take_kept(), {gradient(0), gradient(1), gradient(2)},
        {wanted(kX, in.x), wanted(kInput, in.input), wanted(kState, in.state), wanted(kInputBias, in.input_bias),
         wanted(kStateBias, in.state_bias), wanted(kProjection, in.projection), wanted(kInitial, in.initial),
         wanted(kInitialCell, in.initial_cell)});
    return {found.x,          found.input,      found.state,   found.input_bias,
            found.state_bias, found.projection, found.initial, found.initial_cell};
  }

  /// The gradients of the same layer made of ops.
  Grads by_ops(const Grads& gradients) {
    RecurrentInputs in;
    std::vector<Tensor> wanted;
    for (int i = 0; i < kInputs; ++i) {
      in[i] = inputs_[i].get_or_none();
      if (!needs_grad(i)) continue;
      wanted.push_back(in[i].unsqueeze(0));  // another handle: a tensor may be two of the inputs
      in[i] = wanted.back().squeeze(0);
    }
    const std::vector<Tensor> results = recurrent_by_ops(kind_, layout_, reverse_, in);
    std::vector<Tensor> outputs, from;
    for (size_t i = 0; i < results.size(); ++i) {
      if (i >= gradients.size() || !gradients[i].defined()) continue;
      outputs.push_back(results[i]);
      from.push_back(gradients[i]);
    }
    const std::vector<Tensor> found =
        grad(outputs, wanted, {.gradients = from, .create_graph = true, .allow_unused = true});
    Grads grads(kInputs);
    size_t next = 0;
    for (int i = 0; i < kInputs; ++i)
      if (needs_grad(i)) {
        const Tensor& g = found[next++];
        if (g.defined()) grads[i] = g.squeeze(0);
      }
    return grads;
  }

  Grads by_kernels(const Grads& gradients) {
    const Tensor state = state_.get(), output = output_.get(), projection = projection_.get_or_none();
    const TensorOptions options = output.options();
    const auto gradient = [&](size_t i) {
      return i < gradients.size() && gradients[i].defined() ? gradients[i].contiguous() : Tensor();
    };
    const Tensor doutput = gradient(0), dlast = gradient(1), dlast_cell = gradient(2);
    const int64_t rows = layout_.rows(), width = state.size(0), hidden = width / gates_of(kind_);
    const Tensor dgates = empty({rows, width}, options);
    Tensor dstate_gates, dprojected, unprojected, previous;
    if (kind_ == RecurrentKind::kGru) dstate_gates = empty({rows, width}, options);
    if (projection.defined()) dprojected = empty(output.shape(), options);
    if (projection.defined()) unprojected = empty({rows, hidden}, options);
    if (needs_grad(kState)) previous = empty(output.shape(), options);
    Grads grads(kInputs);
    if (needs_grad(kInitial)) grads[kInitial] = empty({layout_.batch(), state.size(1)}, options);
    if (needs_grad(kInitialCell)) grads[kInitialCell] = empty({layout_.batch(), hidden}, options);
    kernels::RecurrentLayer layer =
        describe(state, projection, inputs_[kInitial].get_or_none(), inputs_[kInitialCell].get_or_none());
    const Tensor memory = set_packed(layer, inputs_[kState].get(), true);
    const Tensor gates = gates_.get_or_none(), cells = cells_.get_or_none(), kept = hidden_.get_or_none();
    kernels::RecurrentGradients g;
    g.output = doutput.view();
    g.last = dlast.view();
    g.last_cell = dlast_cell.view();
    g.gates = dgates.view();
    g.state_gates = dstate_gates.view();
    g.projected = dprojected.view();
    g.unprojected = unprojected.view();
    g.previous = previous.view();
    g.initial = grads[kInitial].view();
    g.initial_cell = grads[kInitialCell].view();
    const kernels::Stream stream = current_stream(options.device);
    {
      const Workspace workspace(options.device, [&] { return kernels::recurrent_backward_workspace(stream, layer); });
      kernels::recurrent_backward(stream, layer, {gates.view(), cells.view(), kept.view()}, output.view(), g,
                                  workspace.data());
    }
    detail::count_product(rows, width, state.size(1), options.dtype);
    if (needs_grad(kX)) grads[kX] = detail::linear_input_gradient(dgates, input_.get());
    add_weights(grads, kInput, kInputBias, dgates, inputs_[kX].get_or_none());
    add_weights(grads, kState, kStateBias, dstate_gates.defined() ? dstate_gates : dgates, previous);
    if (projection.defined()) add_weights(grads, kProjection, kInputs, dprojected, unprojected);
    return grads;
  }

  /// The gradients of the weight and the bias (kInputs: none) that gave something whose gradient is dy, from x.
  void add_weights(Grads& grads, RecurrentInput weight, RecurrentInput bias, const Tensor& dy, const Tensor& x) {
    Tensor dbias;
    if (bias != kInputs && needs_grad(bias)) dbias = grads[bias] = empty({dy.size(1)}, {types_[bias], dy.device()});
    if (needs_grad(weight)) {
      grads[weight] = empty({dy.size(1), x.size(1)}, {types_[weight], dy.device()});
      detail::linear_weight_gradients(dy, x, grads[weight], dbias);
    } else if (dbias.defined()) {
      detail::linear_activation_gradients(dy, {}, Activation::kNone, {}, dbias);
    }
  }
};

void check_weights(RecurrentKind kind, const Tensor& x, const RecurrentWeights& w) {
  const int64_t gates = gates_of(kind);
  TERN_CHECK(w.input.defined() && w.input.dim() == 2 && w.input.size(0) > 0 && w.input.size(0) % gates == 0,
             "recurrent: the input's weight must be [", gates, " * hidden, in], got ",
             w.input.defined() ? w.input.describe() : "an undefined tensor");
  TERN_CHECK(x.dim() == 2 && x.size(1) == w.input.size(1), "recurrent: x must be [rows, ", w.input.size(1),
             "] for weight ", w.input.shape(), ", got ", x.shape());
  const int64_t width = w.input.size(0), hidden = width / gates;
  TERN_CHECK(kind == RecurrentKind::kLstm || !w.projection.defined(), "recurrent: only LSTM may have a projection");
  TERN_CHECK(!w.projection.defined() || (w.projection.dim() == 2 && w.projection.size(1) == hidden &&
                                         w.projection.size(0) > 0 && w.projection.size(0) < hidden),
             "recurrent: the projection must be [projected, ", hidden, "] with fewer rows than columns, got ",
             w.projection.defined() ? w.projection.shape() : Shape());
  const int64_t state = w.projection.defined() ? w.projection.size(0) : hidden;
  TERN_CHECK(w.state.defined() && w.state.shape() == Shape({width, state}), "recurrent: the state's weight must be [",
             width, ", ", state, "], got ", w.state.defined() ? w.state.describe() : "an undefined tensor");
  for (const Tensor& bias : {w.input_bias, w.state_bias})
    TERN_CHECK(!bias.defined() || bias.shape() == Shape({width}), "recurrent: a bias must be [", width, "], got ",
               bias.defined() ? bias.shape() : Shape());
}

void check_state(const char* name, const Tensor& state, int64_t batch, int64_t width) {
  TERN_CHECK(!state.defined() || state.shape() == Shape({batch, width}), "recurrent: ", name, " must be [", batch, ", ",
             width, "], got ", state.defined() ? state.shape() : Shape());
}

}  // namespace

RecurrentResult recurrent(RecurrentKind kind, const Tensor& input, const RecurrentLayout& layout,
                          const RecurrentWeights& weights, const Tensor& initial, const Tensor& initial_cell,
                          bool reverse) {
  if (detail::TraceSink* const sink = detail::active_trace()) {
    RecurrentWeights kept = weights;
    kept.packed = nullptr;
    const auto again = [](const auto&... all) -> std::vector<Tensor> {
      const RecurrentResult result = recurrent(all...);
      if (!result.last_cell.defined()) return {result.output, result.last};
      return {result.output, result.last, result.last_cell};
    };
    const std::vector<Tensor> results =
        detail::record_call(*sink, "recurrent", again, kind, input, layout, kept, initial, initial_cell, reverse);
    return {results[0], results[1], results.size() > 2 ? results[2] : Tensor()};
  }
  check_weights(kind, input, weights);
  const int64_t hidden = weights.input.size(0) / gates_of(kind);
  TERN_CHECK(input.size(0) == layout.rows(), "recurrent: x has ", input.size(0), " rows, and the layout's sequences ",
             layout.rows(), "; the last offset must be the number of rows");
  check_state("the initial state", initial, layout.batch(), weights.state.size(1));
  check_state("the initial cell", initial_cell, layout.batch(), hidden);
  TERN_CHECK(kind == RecurrentKind::kLstm || !initial_cell.defined(), "recurrent: only LSTM has cells");
  TERN_CHECK(input.device() == layout.device(), "recurrent: x is on ", input.device(), " and the layout on ",
             layout.device(), "; make the layout for x's device");
  RecurrentInputs all = {
      input,   weights.input, weights.state, weights.input_bias, weights.state_bias, weights.projection,
      initial, initial_cell};
  detail::autocast_inputs("recurrent", {&all[kX], &all[kInitial], &all[kInitialCell]});
  const DType dtype = all[kX].dtype();
  TERN_CHECK(is_floating(dtype), "recurrent: x must be of a floating dtype, got ", dtype);
  for (int i = kInput; i < kInitial; ++i)  // others are cast by the op, whose gradient then has their type
    if (all[i].defined() && (all[i].dtype() != float32 || !is_low_precision(dtype)))
      detail::autocast_inputs("recurrent", {&all[i]});
  for (int i = 0; i < kInputs; ++i) {
    if (!all[i].defined()) continue;
    const bool cast =
        i >= kInput && i < kInitial && all[i].dtype() == float32 && dtype == autocast_active_dtype(input.device());
    TERN_CHECK(all[i].dtype() == dtype || cast, "recurrent: x is ", dtype, " and a weight or state ", all[i].dtype(),
               "; they must be of one dtype", detail::dtype_hint({all[kX], all[i]}));
    all[i] = all[i].contiguous();
  }
  const std::vector<Tensor> results =
      Recurrent::apply(kind, layout, reverse, weights.packed, all[kX], all[kInput], all[kState], all[kInputBias],
                       all[kStateBias], all[kProjection], all[kInitial], all[kInitialCell]);
  return {results[0], results[1], results.size() > 2 ? results[2] : Tensor()};
}

}  // namespace tern
