#pragma once
// The contract of recurrent layers: loops in double precision, and gradients by central differences of these loops.

#include <algorithm>
#include <numeric>

#include "tern/kernels/recurrent/recurrent.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::recurrent_test {

using Numbers = std::vector<double>;

/// Where the rows of the sequences are.
enum class Layout { kPacked, kReversed, kPadded };

struct Sizes {
  int64_t batch, longest, hidden, projected;  // projected 0: none
  bool with_state = false, with_bias = false;
  Layout layout = Layout::kPacked;
};

/// The rows of each sequence of the batch, in the order of its steps.
struct Sequences {
  std::vector<std::vector<int64_t>> rows;
  int64_t total = 0;

  Sequences(const Sizes& of, std::mt19937_64& random) {
    for (int64_t i = 0; i < of.batch; ++i) {
      const int64_t length = i == 0 ? of.longest : 1 + static_cast<int64_t>(random() % of.longest);
      std::vector<int64_t> own(length);
      for (int64_t t = 0; t < length; ++t) own[t] = of.layout == Layout::kPadded ? t * of.batch + i : total + t;
      total = of.layout == Layout::kPadded ? of.longest * of.batch : total + length;
      if (of.layout == Layout::kReversed) std::reverse(own.begin(), own.end());
      rows.push_back(own);
    }
  }
};

/// All that the loss depends on, which is the sum of the results, weighted by doutput, dlast and dlast_cell.
struct Inputs {
  Numbers gates, weight, bias, projection, initial, initial_cell;
};
struct Results {
  Numbers output, last, last_cell;
};

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

struct Definition {
  RecurrentKind kind;
  Sizes sizes;
  const Sequences& sequences;
  mutable double nearest = INFINITY;  // to 0, of what went into a ReLU: there slopes jump
  int64_t state() const { return sizes.projected > 0 ? sizes.projected : sizes.hidden; }

  /// The state before projection, from sums of input and state for each gate; `cell` changes.
  Numbers cell_step(const Numbers& of_input, const Numbers& of_state, const Numbers& previous, Numbers& cell) const {
    const int64_t h = sizes.hidden;
    Numbers result(h);
    for (int64_t u = 0; u < h; ++u) {
      const auto sum = [&](int64_t gate) { return of_input[gate * h + u] + of_state[gate * h + u]; };
      if (kind == RecurrentKind::kLstm) {
        cell[u] = sigmoid_of(sum(1)) * cell[u] + sigmoid_of(sum(0)) * std::tanh(sum(2));
        result[u] = sigmoid_of(sum(3)) * std::tanh(cell[u]);
      } else if (kind == RecurrentKind::kGru) {
        const double n = std::tanh(of_input[2 * h + u] + sigmoid_of(sum(0)) * of_state[2 * h + u]);
        result[u] = (1 - sigmoid_of(sum(1))) * n + sigmoid_of(sum(1)) * previous[u];
      } else {
        result[u] = kind == RecurrentKind::kTanh ? std::tanh(sum(0)) : std::max(sum(0), 0.0);
        if (kind == RecurrentKind::kRelu) nearest = std::min(nearest, std::fabs(sum(0)));
      }
    }
    return result;
  }

  Results operator()(const Inputs& in) const {
    const int64_t h = sizes.hidden, s = state(), gates = gates_of(kind) * h;
    Results result{Numbers(sequences.total * s), Numbers(sizes.batch * s), Numbers(sizes.batch * h)};
    for (int64_t b = 0; b < sizes.batch; ++b) {
      Numbers state(in.initial.begin() + b * s, in.initial.begin() + (b + 1) * s);
      Numbers cell(in.initial_cell.begin() + b * h, in.initial_cell.begin() + (b + 1) * h);
      for (const int64_t row : sequences.rows[b]) {
        Numbers of_state(in.bias), of_input(in.gates.begin() + row * gates, in.gates.begin() + (row + 1) * gates);
        for (int64_t g = 0; g < gates; ++g)
          for (int64_t k = 0; k < s; ++k) of_state[g] += in.weight[g * s + k] * state[k];
        const Numbers whole = cell_step(of_input, of_state, state, cell);
        if (sizes.projected > 0) {
          std::fill(state.begin(), state.end(), 0);
          for (int64_t p = 0; p < s; ++p)
            for (int64_t u = 0; u < h; ++u) state[p] += in.projection[p * h + u] * whole[u];
        } else {
          state = whole;
        }
        std::copy(state.begin(), state.end(), result.output.begin() + row * s);
      }
      std::copy(state.begin(), state.end(), result.last.begin() + b * s);
      std::copy(cell.begin(), cell.end(), result.last_cell.begin() + b * h);
    }
    return result;
  }
};

/// Arrays of one case.
struct Case {
  RecurrentKind kind;
  Sizes sizes;
  Sequences sequences;
  Definition definition;
  DType dtype, wide;
  bool packs = false;
  std::vector<int64_t> counts;
  Array first, order, weight, bias, projection, initial, initial_cell, inputs, gates, cells, hidden;
  Array output, last, last_cell, doutput, dlast, dlast_cell;
  Array dgates, dstate_gates, dprojected, unprojected, previous, dinitial, dinitial_cell;

  Case(DType type, RecurrentKind of, const Sizes& s, std::mt19937_64& random)
      : kind(of),
        sizes(s),
        sequences(s, random),
        definition{of, s, sequences, INFINITY},
        dtype(type),
        wide(type == float64 ? float64 : float32),
        first(int64, {s.batch}),
        order(int64, {s.batch}),
        weight(random_array(random, type, {width(), state()}, -bound(), bound())),
        bias(random_array(random, type, {width()}, -1, 1, Order::kMisaligned)),
        projection(random_array(random, type, {state(), s.hidden}, -bound(), bound())),
        initial(random_array(random, type, {s.batch, state()}, -1, 1)),
        initial_cell(random_array(random, type, {s.batch, s.hidden}, -1, 1)),
        inputs(random_array(random, type, {rows(), width()}, -2, 2)),
        gates(type, {rows(), width()}, Order::kMisaligned),
        cells(wide, {rows(), s.hidden}),
        hidden(type, {rows(), s.hidden}),
        output(type, {rows(), state()}, Order::kMisaligned),
        last(type, {s.batch, state()}),
        last_cell(type, {s.batch, s.hidden}),
        doutput(random_array(random, type, {rows(), state()}, -1, 1, Order::kMisaligned)),
        dlast(random_array(random, type, {s.batch, state()}, -1, 1)),
        dlast_cell(random_array(random, type, {s.batch, s.hidden}, -1, 1)),
        dgates(type, {rows(), width()}, Order::kMisaligned),
        dstate_gates(type, {rows(), width()}),
        dprojected(type, {rows(), state()}),
        unprojected(type, {rows(), s.hidden}),
        previous(type, {rows(), state()}),
        dinitial(type, {s.batch, state()}),
        dinitial_cell(type, {s.batch, s.hidden}) {
    std::vector<int64_t> sorted(s.batch);
    std::iota(sorted.begin(), sorted.end(), 0);
    const auto length = [&](int64_t b) { return static_cast<int64_t>(sequences.rows[b].size()); };
    std::stable_sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
    for (int64_t i = 0; i < s.batch; ++i) {
      order.set(i, static_cast<double>(sorted[i]));
      first.set(i, static_cast<double>(sequences.rows[sorted[i]][0]));
    }
    for (int64_t t = 0; s.batch > 0 && t < s.longest; ++t)
      counts.push_back(std::count_if(sorted.begin(), sorted.end(), [&](int64_t b) { return length(b) > t; }));
  }
  Case(const Case&) = delete;

  int64_t rows() const { return sequences.total; }
  int64_t state() const { return sizes.projected > 0 ? sizes.projected : sizes.hidden; }
  int64_t width() const { return gates_of(kind) * sizes.hidden; }
  /// The bound of the weights, so that rounding errors do not grow from step to step.
  double bound() const { return 1 / std::sqrt(static_cast<double>(sizes.hidden)); }
  bool is_lstm() const { return kind == RecurrentKind::kLstm; }
  bool is_gru() const { return kind == RecurrentKind::kGru; }
  bool projects() const { return sizes.projected > 0; }

  RecurrentLayer layer(Call& on) {
    RecurrentLayer l;
    l.kind = kind;
    l.steps.counts = counts.data();
    l.steps.steps = static_cast<int64_t>(counts.size());
    l.steps.stride = sizes.layout == Layout::kPacked ? 1 : sizes.layout == Layout::kReversed ? -1 : sizes.batch;
    l.steps.first = on(std::as_const(first));
    l.steps.order = on(std::as_const(order));
    l.weight = on(std::as_const(weight));
    l.bias = on.when(sizes.with_bias, std::as_const(bias));
    l.projection = on.when(projects(), std::as_const(projection));
    l.initial = on.when(sizes.with_state, std::as_const(initial));
    l.initial_cell = on.when(sizes.with_state && is_lstm(), std::as_const(initial_cell));
    return l;
  }

  /// The layer for a pass, with its packed weight if `packs`.
  RecurrentLayer layer(Call& on, bool backward) {
    RecurrentLayer l = layer(on);
    const int64_t bytes = packs ? recurrent_packed_bytes(on.stream(), l, backward) : 0;
    if (bytes > 0) {
      void* const packed = on.workspace(bytes);
      recurrent_pack(on.stream(), l, backward, packed);
      l.packed_weight = packed;
      l.weight.data = nullptr;  // is not read
    }
    return l;
  }

  void forward(Call& on, bool keeps) {
    const RecurrentLayer l = layer(on, false);
    const RecurrentKept kept{on(gates), on.when(keeps && is_lstm(), cells), on.when(keeps && is_gru(), hidden)};
    recurrent_forward(on.stream(), l, kept, on(output), on(last), on.when(is_lstm(), last_cell),
                      on.workspace(recurrent_forward_workspace(on.stream(), l)));
  }
  void backward(Call& on) {
    const RecurrentLayer l = layer(on, true);
    const RecurrentKept kept{on(gates), on.when(is_lstm(), cells), on.when(is_gru(), hidden)};
    RecurrentGradients g;
    g.output = on(std::as_const(doutput));
    g.last = on(std::as_const(dlast));
    g.last_cell = on.when(is_lstm(), std::as_const(dlast_cell));
    g.gates = on(dgates);
    g.state_gates = on.when(is_gru(), dstate_gates);
    g.projected = on.when(projects(), dprojected);
    g.unprojected = on.when(projects(), unprojected);
    g.previous = on(previous);
    g.initial = on(dinitial);
    g.initial_cell = on.when(is_lstm(), dinitial_cell);
    recurrent_backward(on.stream(), l, kept, on(std::as_const(output)), g,
                       on.workspace(recurrent_backward_workspace(on.stream(), l)));
  }
  void run(bool keeps) {
    gates.set(inputs.values());
    run_kernel([&](Call& on) { forward(on, keeps); });
  }

  Inputs numbers() const {
    const auto values = [](bool present, const Array& array) {
      return present ? array.values() : Numbers(array.numel(), 0.0);
    };
    return {inputs.values(),
            weight.values(),
            values(sizes.with_bias, bias),
            values(projects(), projection),
            values(sizes.with_state, initial),
            values(sizes.with_state && is_lstm(), initial_cell)};
  }
  double loss(const Results& r) const {
    double sum = 0;
    for (const std::vector<int64_t>& own : sequences.rows)
      for (const int64_t row : own)
        for (int64_t k = row * state(); k < (row + 1) * state(); ++k) sum += r.output[k] * doutput.at(k);
    for (int64_t k = 0; k < last.numel(); ++k) sum += r.last[k] * dlast.at(k);
    for (int64_t k = 0; is_lstm() && k < last_cell.numel(); ++k) sum += r.last_cell[k] * dlast_cell.at(k);
    return sum;
  }
  /// The derivative of the loss by each of the numbers of `member`.
  Numbers slopes(Numbers Inputs::*member) const {
    Inputs in = numbers();
    Numbers result((in.*member).size());
    for (size_t i = 0; i < result.size(); ++i) {
      const double at = (in.*member)[i], step = 1e-5;
      (in.*member)[i] = at + step;
      const double above = loss(definition(in));
      (in.*member)[i] = at - step;
      result[i] = (above - loss(definition(in))) / (2 * step);
      (in.*member)[i] = at;
    }
    return result;
  }
};

inline std::string describe(const Case& of) {
  std::ostringstream out;
  out << name_of(of.dtype) << ", kind " << static_cast<int>(of.kind) << ", batch " << of.sizes.batch << ", longest "
      << of.sizes.longest << ", hidden " << of.sizes.hidden << ", projected " << of.sizes.projected << ", layout "
      << static_cast<int>(of.sizes.layout) << (of.sizes.with_state ? ", state" : "")
      << (of.sizes.with_bias ? ", bias" : "");
  return out.str();
}

/// Expects values within `error` of the largest of them and 1.
inline void expect_close(const char* name, const Numbers& got, const Numbers& expected, double error) {
  double largest = 1;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(std::fabs(got[i] - expected[i]) <= error * largest)
        << name << "[" << i << "]: " << got[i] << " and " << expected[i] << ", allowed " << error * largest;
}

/// Rounding errors of a step are passed on; they grow by little, since most slopes are below 1.
inline double error_of(const Case& of) {
  const double steps = 4 + static_cast<double>(of.sizes.longest);
  return 8 * steps * epsilon_of(of.dtype) + 40 * steps * epsilon_of(of.wide);
}

/// The sum over all rows of the sequences of left[row]^T right[row].
inline Numbers product_over_rows(const Case& of, const Array& left, const Array& right) {
  const int64_t n = left.shape()[1], m = right.shape()[1];
  Numbers sum(n * m);
  for (const std::vector<int64_t>& own : of.sequences.rows)
    for (const int64_t row : own)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) sum[i * m + j] += left.at(row * n + i) * right.at(row * m + j);
  return sum;
}

}  // namespace tern::kernels::recurrent_test
