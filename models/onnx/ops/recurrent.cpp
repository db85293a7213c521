// Recurrent layers. ONNX orders gates otherwise than Tern: LSTM input, output, forget, cell; GRU update, reset, new.

#include <algorithm>
#include <cmath>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

/// A function of a gate by its ONNX name, with its numbers.
struct GateFunction {
  std::string name;
  double alpha = 0, beta = 0;

  Tensor operator()(const Tensor& x) const {
    if (name == "Sigmoid") return sigmoid(x);
    if (name == "Tanh") return tanh(x);
    if (name == "Relu") return relu(x);
    if (name == "Affine") return x * alpha + beta;
    if (name == "LeakyRelu") return leaky_relu(x, alpha);
    if (name == "ThresholdedRelu") return threshold(x, alpha, 0);
    if (name == "ScaledTanh") return tanh(x * beta) * alpha;
    if (name == "HardSigmoid") return clamp(x * alpha + beta, 0, 1);
    if (name == "Elu") return elu(x, alpha);
    if (name == "Softsign") return softsign(x);
    TERN_CHECK(name == "Softplus", "the function '", name, "' of gates is not supported");
    return softplus(x);
  }
};

std::vector<GateFunction> functions_of(const Call& c, const std::vector<std::string>& defaults, size_t directions) {
  std::vector<std::string> names;
  if (const Attribute* given = c.attribute("activations"))
    names = given->strings;
  else
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  TERN_CHECK(names.size() == defaults.size() * directions, "it has ", names.size(), " activations for ", directions,
             " directions");
  static const std::map<std::string, std::pair<double, double>> numbers = {
      {"Affine", {1, 0}},     {"LeakyRelu", {0.01, 0}},    {"ThresholdedRelu", {1, 0}},
      {"ScaledTanh", {1, 1}}, {"HardSigmoid", {0.2, 0.5}}, {"Elu", {1, 0}}};
  const std::vector<double> alphas = c.reals("activation_alpha"), betas = c.reals("activation_beta");
  std::vector<GateFunction> result;
  for (size_t i = 0; i < names.size(); ++i) {
    GateFunction f{names[i]};
    const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const auto& entry) {
      return entry.first.size() == f.name.size() &&
             std::equal(f.name.begin(), f.name.end(), entry.first.begin(),
                        [](char a, char b) { return std::tolower(a) == std::tolower(b); });
    });
    if (found != numbers.end()) {
      f.name = found->first;
      f.alpha = found->second.first;
      f.beta = found->second.second;
    }
    for (const char* known : {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"})
      if (strcasecmp(known, f.name.c_str()) == 0) f.name = known;
    if (i < alphas.size()) f.alpha = alphas[i];
    if (i < betas.size()) f.beta = betas[i];
    result.push_back(f);
  }
  return result;
}

/// Parts of equal size along dimension 0 in another order.
Tensor reordered(const Tensor& x, const std::vector<size_t>& order) {
  if (!x.defined()) return x;
  const std::vector<Tensor> parts = x.split(x.size(0) / static_cast<int64_t>(order.size()), 0);
  Tensors result;
  for (const size_t i : order) result.push_back(parts[i]);
  return cat(result, 0);
}

/// One direction: its inputs, and what comes out.
struct Direction {
  Tensor x;                                  // [steps, batch, in]
  Tensor w, r, wb = {}, rb = {}, peep = {};  // [gates hidden, in], [gates hidden, hidden], ...
  Tensor h, c = {};                          // [batch, hidden]
  Tensor lengths = {};                       // int64 [batch] or undefined
  bool reverse = false;
  const GateFunction* functions = nullptr;
  double limit = 0;  // of what enters a function; 0: none
};
struct DirectionResult {
  Tensor y, h, c;  // [steps, batch, hidden], [batch, hidden]
};

Tensor limited(const Tensor& x, double limit) { return limit > 0 ? clamp(x, -limit, limit) : x; }

DirectionResult lstm_steps(Direction d, bool coupled) {
  const int64_t steps = d.x.size(0);
  std::vector<Tensor> peep(3);
  if (d.peep.defined()) peep = d.peep.split(d.peep.size(0) / 3, 0);
  Tensors outputs(static_cast<size_t>(steps));
  const Tensor entered = linear(d.x, d.w, d.wb);
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = d.reverse ? steps - 1 - i : i;
    const std::vector<Tensor> gates = (entered[t] + linear(d.h, d.r, d.rb)).chunk(4, 1);
    const auto with = [&](const Tensor& gate, const Tensor& weight, const Tensor& cell) {
      return weight.defined() ? gate + weight * cell : gate;
    };
    const auto& [f, g, h] = std::tie(d.functions[0], d.functions[1], d.functions[2]);
    const Tensor in = f(limited(with(gates[0], peep[0], d.c), d.limit));
    const Tensor forget = coupled ? 1.0 - in : f(limited(with(gates[2], peep[2], d.c), d.limit));
    const Tensor cell = forget * d.c + in * g(limited(gates[3], d.limit));
    const Tensor state = f(limited(with(gates[1], peep[1], cell), d.limit)) * h(cell);
    Tensor seen;
    if (d.lengths.defined()) seen = (d.lengths > static_cast<double>(t)).unsqueeze(1);
    d.c = seen.defined() ? where(seen, cell, d.c) : cell;
    d.h = seen.defined() ? where(seen, state, d.h) : state;
    outputs[static_cast<size_t>(t)] = seen.defined() ? where(seen, state, 0.0) : state;
  }
  return {stack(outputs), d.h, d.c};
}

DirectionResult gru_steps(Direction d, bool linear_before_reset) {
  const int64_t steps = d.x.size(0), hidden = d.r.size(1);
  Tensors outputs(static_cast<size_t>(steps));
  const Tensor entered = linear(d.x, d.w, d.wb);
  const auto rows = [&](const Tensor& x, int64_t begin, int64_t count) {
    return x.defined() ? x.narrow(0, begin * hidden, count * hidden) : x;
  };
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = d.reverse ? steps - 1 - i : i;
    const std::vector<Tensor> in = entered[t].chunk(3, 1);
    const std::vector<Tensor> kept = linear(d.h, rows(d.r, 0, 2), rows(d.rb, 0, 2)).chunk(2, 1);
    const GateFunction &f = d.functions[0], &g = d.functions[1];
    const Tensor update = f(limited(in[0] + kept[0], d.limit)), reset = f(limited(in[1] + kept[1], d.limit));
    const Tensor own = linear_before_reset ? reset * linear(d.h, rows(d.r, 2, 1), rows(d.rb, 2, 1))
                                           : linear(reset * d.h, rows(d.r, 2, 1), rows(d.rb, 2, 1));
    const Tensor fresh = g(limited(in[2] + own, d.limit));
    const Tensor state = (1.0 - update) * fresh + update * d.h;
    Tensor seen;
    if (d.lengths.defined()) seen = (d.lengths > static_cast<double>(t)).unsqueeze(1);
    d.h = seen.defined() ? where(seen, state, d.h) : state;
    outputs[static_cast<size_t>(t)] = seen.defined() ? where(seen, state, 0.0) : state;
  }
  return {stack(outputs), d.h, {}};
}

DirectionResult rnn_steps(Direction d) {
  const int64_t steps = d.x.size(0);
  Tensors outputs(static_cast<size_t>(steps));
  const Tensor entered = linear(d.x, d.w, d.wb);
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = d.reverse ? steps - 1 - i : i;
    const Tensor state = d.functions[0](limited(entered[t] + linear(d.h, d.r, d.rb), d.limit));
    Tensor seen;
    if (d.lengths.defined()) seen = (d.lengths > static_cast<double>(t)).unsqueeze(1);
    d.h = seen.defined() ? where(seen, state, d.h) : state;
    outputs[static_cast<size_t>(t)] = seen.defined() ? where(seen, state, 0.0) : state;
  }
  return {stack(outputs), d.h, {}};
}

/// Tern's op, for layers as PyTorch has them.
DirectionResult whole_sequence(const Direction& d, RecurrentKind kind, const std::vector<size_t>& order) {
  const int64_t steps = d.x.size(0), batch = d.x.size(1);
  const auto layout = RecurrentLayout::padded(batch, steps, false, d.x.device());
  const RecurrentWeights weights{.input = reordered(d.w, order),
                                 .state = reordered(d.r, order),
                                 .input_bias = reordered(d.wb, order),
                                 .state_bias = reordered(d.rb, order)};
  const RecurrentResult result =
      recurrent(kind, d.x.contiguous().reshape({steps * batch, d.x.size(2)}), layout, weights, d.h, d.c, d.reverse);
  return {result.output.reshape({steps, batch, -1}), result.last, result.last_cell};
}

enum class RecurrentOp { kLstm, kGru, kRnn };

template <RecurrentOp kOp>
void recurrent_of(Call& c) {
  constexpr bool lstm = kOp == RecurrentOp::kLstm, gru = kOp == RecurrentOp::kGru;
  const bool batch_first = c.flag("layout");
  const Tensor x = batch_first ? c.in(0).transpose(0, 1) : c.in(0);
  const Tensor w = c.in(1), r = c.in(2), b = c.in_or_none(3);
  const std::string direction = c.text("direction", "forward");
  TERN_CHECK(direction == "forward" || direction == "reverse" || direction == "bidirectional", "the direction '",
             direction, "'");
  const size_t directions = direction == "bidirectional" ? 2 : 1;
  TERN_CHECK(x.dim() == 3 && x.size(0) > 0 && w.dim() == 3 && r.dim() == 3 &&
                 w.size(0) == static_cast<int64_t>(directions) && r.size(0) == w.size(0) &&
                 r.size(1) == (lstm  ? 4
                               : gru ? 3
                                     : 1) *
                                  r.size(2) &&
                 w.size(1) == r.size(1),
             "x ", x.describe(), ", W ", w.describe(), " and R ", r.describe(), " do not fit");
  const int64_t steps = x.size(0), batch = x.size(1), hidden = r.size(2);
  const std::vector<std::string> defaults = lstm  ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                            : gru ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                                  : std::vector<std::string>{"Tanh"};
  const std::vector<GateFunction> functions = functions_of(c, defaults, directions);
  Tensor lengths;
  if (c.has(4)) {
    const Numbers list = c.list(4);
    if (std::any_of(list.begin(), list.end(), [&](int64_t n) { return n != steps; })) lengths = c.in(4).to(int64);
  }
  const double limit = c.number("clip", 0);
  const bool coupled = c.flag("input_forget"), after = c.flag("linear_before_reset");
  const auto initial = [&](size_t input, size_t d) {
    if (!c.has(input)) return zeros({batch, hidden}, x.options());
    return c.in(input).select(batch_first ? 1 : 0, static_cast<int64_t>(d));
  };
  std::vector<DirectionResult> results;
  for (size_t d = 0; d < directions; ++d) {
    const auto at = static_cast<int64_t>(d);
    Direction one{.x = x,
                  .w = w[at],
                  .r = r[at],
                  .h = initial(5, d),
                  .lengths = lengths,
                  .reverse = direction == "reverse" || d == 1,
                  .functions = functions.data() + d * defaults.size(),
                  .limit = limit};
    if (b.defined()) {
      one.wb = b[at].narrow(0, 0, b.size(1) / 2);
      one.rb = b[at].narrow(0, b.size(1) / 2, b.size(1) / 2);
    }
    if (lstm) one.c = initial(6, d);
    if (lstm && c.has(7)) one.peep = c.in(7)[at];
    bool usual = limit == 0 && !coupled && !one.peep.defined() && !lengths.defined() && (!gru || after);
    for (size_t i = 0; i < defaults.size(); ++i)
      usual = usual && (one.functions[i].name == defaults[i] || (!lstm && !gru && one.functions[i].name == "Relu"));
    if (usual)
      results.push_back(
          lstm  ? whole_sequence(one, RecurrentKind::kLstm, {0, 2, 3, 1})
          : gru ? whole_sequence(one, RecurrentKind::kGru, {1, 0, 2})
                : whole_sequence(one, one.functions[0].name == "Relu" ? RecurrentKind::kRelu : RecurrentKind::kTanh,
                                 {0}));
    else
      results.push_back(lstm ? lstm_steps(one, coupled) : gru ? gru_steps(one, after) : rnn_steps(one));
  }
  Tensors y, h, cells;
  for (const DirectionResult& result : results) {
    y.push_back(result.y);
    h.push_back(result.h);
    cells.push_back(result.c);
  }
  const Tensor all = stack(y, 1);  // [steps, directions, batch, hidden]
  if (c.wants(0)) c.set(0, batch_first ? all.permute({2, 0, 1, 3}) : all);
  if (c.wants(1)) c.set(1, stack(h, batch_first ? 1 : 0));
  if (lstm && c.wants(2)) c.set(2, stack(cells, batch_first ? 1 : 0));
}

}  // namespace

void add_recurrent_ops(Rows& rows) {
  const Rows own = {
      {"LSTM", 7, recurrent_of<RecurrentOp::kLstm>},
      {"GRU", 7, recurrent_of<RecurrentOp::kGru>},
      {"RNN", 7, recurrent_of<RecurrentOp::kRnn>},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
