// The passes of the stand-in cuDNN's recurrent layers: loops over sequences, steps and units in double precision.
// States are rounded to the type of the layer after each step; cells are not.

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tern/tests/emulator/cudnn/recurrent_state.h"
#include "tern/tests/emulator/runtime/numbers.h"
#include "tern/tests/emulator/runtime/queue.h"

int64_t cudnnRNNDataStruct::rows() const {
  return layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED ? std::accumulate(lengths.begin(), lengths.end(), int64_t{0})
                                                          : steps * batch();
}
int64_t cudnnRNNDataStruct::row(int64_t sequence, int64_t step) const {
  if (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) return sequence * steps + step;
  if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) return step * batch() + sequence;
  int64_t before = 0;
  for (const int length : lengths) before += std::min<int64_t>(length, step);
  return before + sequence;
}

namespace tern::standin::dnn {

std::vector<PlacedWeight> placed_weights(const cudnnRNNStruct& layer, int64_t& bytes) {
  const int64_t size = standin::bytes_of(cuda_type(layer.type));
  std::vector<PlacedWeight> placed(static_cast<size_t>(layer.matrices()));
  int64_t end = 16;
  const auto take = [&](int64_t count) {
    const int64_t at = end;
    end += (count * size + 15) / 16 * 16 + 16;
    return at;
  };
  for (int64_t id = layer.matrices() - 1; id >= 0; --id) {
    const bool of_input = id < layer.gates(), projects = id == 2 * layer.gates();
    PlacedWeight& p = placed[static_cast<size_t>(id)];
    p.rows = projects ? layer.state : layer.hidden;
    p.columns = projects ? layer.hidden : of_input ? layer.input : layer.state;
    p.matrix = take(p.rows * p.columns);
    p.bias = layer.has_bias && !projects ? take(p.rows) : -1;
  }
  bytes = end;
  return placed;
}

namespace {

using Vector = std::vector<double>;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// What the passes have in common.
struct Pass {
  const RecurrentJob& job;
  const cudnnRNNStruct& layer;
  const cudnnRNNDataStruct& data;
  const cudaDataType_t type;
  const int64_t gates, hidden, state;
  std::vector<Vector> matrices, biases;  // by cuDNN's numbers

  explicit Pass(const RecurrentJob& j)
      : job(j),
        layer(*j.layer),
        data(*j.rows),
        type(cuda_type(layer.type)),
        gates(layer.gates()),
        hidden(layer.hidden),
        state(layer.state) {
    if (!job.weights) return;
    int64_t bytes = 0;
    for (const PlacedWeight& p : placed_weights(layer, bytes)) {
      matrices.push_back(numbers(at(job.weights, p.matrix), 0, p.rows * p.columns));
      biases.push_back(p.bias < 0 ? Vector(static_cast<size_t>(p.rows), 0.0)
                                  : numbers(at(job.weights, p.bias), 0, p.rows));
    }
  }

  static const void* at(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
  /// `count` numbers from an index; 0 where there is no memory.
  Vector numbers(const void* from, int64_t first, int64_t count) const {
    Vector values(static_cast<size_t>(count), 0.0);
    for (int64_t i = 0; from && i < count; ++i) values[static_cast<size_t>(i)] = load<double>(type, from, first + i);
    return values;
  }
  void put(void* to, int64_t first, const Vector& values) const {
    for (size_t i = 0; to && i < values.size(); ++i)
      store<double>(type, to, first + static_cast<int64_t>(i), values[i]);
  }
  double rounded(double value) const {
    double memory = 0;
    store<double>(type, &memory, 0, value);
    return load<double>(type, &memory, 0);
  }
  /// y += matrix x, or matrix^T x.
  static void multiply(const Vector& matrix, const Vector& x, Vector& y) {
    for (size_t r = 0; r < y.size(); ++r)
      for (size_t c = 0; c < x.size(); ++c) y[r] += matrix[r * x.size() + c] * x[c];
  }
  static void multiply_transposed(const Vector& matrix, const Vector& x, Vector& y) {
    for (size_t r = 0; r < x.size(); ++r)
      for (size_t c = 0; c < y.size(); ++c) y[c] += matrix[r * y.size() + c] * x[r];
  }
  double* kept(int64_t row) const { return job.kept ? job.kept + kKeptMark + row * kept_row(layer) : nullptr; }
  /// The state before a step.
  Vector previous(int64_t sequence, int64_t step) const {
    return step == 0 ? numbers(job.hx, sequence * state, state)
                     : numbers(job.y, data.row(sequence, step - 1) * state, state);
  }
};

/// One step of one sequence: the state before projection. `cell` becomes the new one; kept: null without training.
Vector forward_step(const Pass& p, const Vector& x, const Vector& before, Vector& cell, double* kept) {
  const auto g = static_cast<size_t>(p.gates), h = static_cast<size_t>(p.hidden);
  std::vector<Vector> of_input(p.biases.begin(), p.biases.begin() + p.gates),
      of_state(p.biases.begin() + p.gates, p.biases.begin() + 2 * p.gates);
  for (size_t gate = 0; gate < g; ++gate) {
    Pass::multiply(p.matrices[gate], x, of_input[gate]);
    Pass::multiply(p.matrices[g + gate], before, of_state[gate]);
  }
  Vector result(h);
  for (size_t u = 0; u < h; ++u) {
    double values[4] = {}, extra = 0;
    const auto sum = [&](size_t gate) { return of_input[gate][u] + of_state[gate][u]; };
    if (p.layer.mode == CUDNN_LSTM) {
      for (const size_t gate : {0, 1, 3}) values[gate] = logistic(sum(gate));
      values[2] = std::tanh(sum(2));
      cell[u] = values[1] * cell[u] + values[0] * values[2];
      result[u] = values[3] * std::tanh(cell[u]);
      extra = cell[u];
    } else if (p.layer.mode == CUDNN_GRU) {
      values[0] = logistic(sum(0));
      values[1] = logistic(sum(1));
      extra = of_state[2][u];
      values[2] = std::tanh(of_input[2][u] + values[0] * extra);
      result[u] = (1 - values[1]) * values[2] + values[1] * before[u];
    } else {
      result[u] = p.layer.mode == CUDNN_RNN_TANH ? std::tanh(sum(0)) : sum(0) < 0 ? 0 : sum(0);
    }
    if (!kept) continue;
    for (size_t gate = 0; gate < g; ++gate) kept[gate * h + u] = values[gate];
    kept[g * h + u] = extra;
    kept[(g + 1) * h + u] = result[u];
  }
  return result;
}

}  // namespace

void recurrent_forward_pass(const RecurrentJob& job) {
  const Pass p(job);
  for (int64_t i = 0; i < p.data.batch(); ++i) {
    Vector before = p.numbers(job.hx, i * p.state, p.state), cell = p.numbers(job.cx, i * p.hidden, p.hidden);
    for (int64_t t = 0; t < p.data.lengths[static_cast<size_t>(i)]; ++t) {
      const int64_t row = p.data.row(i, t);
      const Vector x = p.numbers(job.x, row * p.layer.input, p.layer.input);
      Vector after = forward_step(p, x, before, cell, p.kept(row));
      if (p.layer.projects()) {
        Vector projected(static_cast<size_t>(p.state), 0.0);
        Pass::multiply(p.matrices.back(), after, projected);
        after = projected;
      }
      for (double& value : after) value = p.rounded(value);
      p.put(job.y, row * p.state, after);
      before = after;
    }
    p.put(job.hy, i * p.state, before);
    p.put(job.cy, i * p.hidden, cell);
  }
  if (job.kept) job.kept[0] = 1;
}

namespace {

/// The backward pass of one step: gradients take the place of what the gates have kept; dcell becomes that of the
/// previous cell, and `passes` is GRU's part of the state's gradient that does not go through a product.
void backward_step(const Pass& p, const Vector& before, const Vector& cell_before, const Vector& dstate, Vector& dcell,
                   Vector& passes, double* kept) {
  const auto g = static_cast<size_t>(p.gates), h = static_cast<size_t>(p.hidden);
  for (size_t u = 0; u < h; ++u) {
    double* const gate = kept + u;
    double& extra = kept[g * h + u];
    const double whole = kept[(g + 1) * h + u], d = dstate[u];
    if (p.layer.mode == CUDNN_LSTM) {
      const double in = gate[0], forget = gate[h], fresh = gate[2 * h], out = gate[3 * h], flat = std::tanh(extra);
      const double dc = dcell[u] + d * out * (1 - flat * flat);
      gate[0] = dc * fresh * in * (1 - in);
      gate[h] = dc * cell_before[u] * forget * (1 - forget);
      gate[2 * h] = dc * in * (1 - fresh * fresh);
      gate[3 * h] = d * flat * out * (1 - out);
      dcell[u] = dc * forget;
    } else if (p.layer.mode == CUDNN_GRU) {
      const double reset = gate[0], update = gate[h], fresh = gate[2 * h];
      const double dn = d * (1 - update) * (1 - fresh * fresh);
      gate[0] = dn * extra * reset * (1 - reset);
      gate[h] = d * (before[u] - fresh) * update * (1 - update);
      gate[2 * h] = dn;
      extra = dn * reset;  // of the state's product
      passes[u] = d * update;
    } else {
      gate[0] = p.layer.mode == CUDNN_RNN_TANH ? d * (1 - whole * whole) : whole > 0 ? d : 0;
    }
  }
}

/// The gradients of the products with the state: those with the input, except of GRU's new gate.
Vector state_gradient(const Pass& p, int64_t gate, const double* kept) {
  const double* const from = kept + (p.layer.mode == CUDNN_GRU && gate == 2 ? p.gates : gate) * p.hidden;
  return {from, from + p.hidden};
}
Vector input_gradient(const Pass& p, int64_t gate, const double* kept) {
  return {kept + gate * p.hidden, kept + (gate + 1) * p.hidden};
}

}  // namespace

void recurrent_data_pass(const RecurrentJob& job) {
  const Pass p(job);
  if (job.kept[0] != 1)
    throw DeviceError(cudaErrorUnknown, "cudnnRNNBackwardData_v8: the reserve space is not fresh from a forward pass");
  const auto g = static_cast<size_t>(p.gates);
  for (int64_t i = 0; i < p.data.batch(); ++i) {
    Vector dstate = p.numbers(job.dhy, i * p.state, p.state), dcell = p.numbers(job.dcy, i * p.hidden, p.hidden);
    for (int64_t t = p.data.lengths[static_cast<size_t>(i)] - 1; t >= 0; --t) {
      const int64_t row = p.data.row(i, t);
      double* const kept = p.kept(row);
      const Vector dy = p.numbers(job.dy, row * p.state, p.state);
      for (size_t u = 0; u < dy.size(); ++u) dstate[u] += dy[u];
      std::copy(dstate.begin(), dstate.end(), kept + (p.gates + 2) * p.hidden);
      Vector dwhole = dstate;
      if (p.layer.projects()) {
        dwhole.assign(static_cast<size_t>(p.hidden), 0.0);
        Pass::multiply_transposed(p.matrices.back(), dstate, dwhole);
      }
      Vector cell_before = p.numbers(job.cx, i * p.hidden, p.hidden);
      if (t > 0) {
        const double* const cells = p.kept(p.data.row(i, t - 1)) + p.gates * p.hidden;
        cell_before.assign(cells, cells + p.hidden);
      }
      Vector passes(static_cast<size_t>(p.state), 0.0), dx(static_cast<size_t>(p.layer.input), 0.0);
      backward_step(p, p.previous(i, t), cell_before, dwhole, dcell, passes, kept);
      for (size_t gate = 0; gate < g; ++gate) {
        const auto id = static_cast<int64_t>(gate);
        Pass::multiply_transposed(p.matrices[gate], input_gradient(p, id, kept), dx);
        Pass::multiply_transposed(p.matrices[g + gate], state_gradient(p, id, kept), passes);
      }
      p.put(job.dx, row * p.layer.input, dx);
      dstate = passes;
    }
    p.put(job.dhx, i * p.state, dstate);
    p.put(job.dcx, i * p.hidden, dcell);
  }
  job.kept[0] = 2;
}

void recurrent_weights_pass(const RecurrentJob& job) {
  const Pass p(job);
  if (job.kept[0] != 2)
    throw DeviceError(cudaErrorUnknown, "cudnnRNNBackwardWeights_v8: the data's gradients were not computed before");
  int64_t bytes = 0;
  const std::vector<PlacedWeight> placed = placed_weights(p.layer, bytes);
  for (size_t id = 0; id < placed.size(); ++id) {
    const auto number = static_cast<int64_t>(id);
    const PlacedWeight& w = placed[id];
    void* const matrix = static_cast<char*>(job.dweights) + w.matrix;
    void* const bias = w.bias < 0 ? nullptr : static_cast<char*>(job.dweights) + w.bias;
    Vector dmatrix = p.numbers(matrix, 0, w.rows * w.columns), dbias = p.numbers(bias, 0, w.rows);
    for (int64_t i = 0; i < p.data.batch(); ++i)
      for (int64_t t = 0; t < p.data.lengths[static_cast<size_t>(i)]; ++t) {
        const int64_t row = p.data.row(i, t);
        const double* const kept = p.kept(row);
        Vector left, right;
        if (number < p.gates) {
          left = input_gradient(p, number, kept);
          right = p.numbers(job.x, row * p.layer.input, p.layer.input);
        } else if (number < 2 * p.gates) {
          left = state_gradient(p, number - p.gates, kept);
          right = p.previous(i, t);
        } else {
          const double* const whole = kept + (p.gates + 1) * p.hidden;
          left.assign(whole + p.hidden, whole + p.hidden + p.state);
          right.assign(whole, whole + p.hidden);
        }
        for (size_t r = 0; r < left.size(); ++r) {
          dbias[r] += left[r];
          for (size_t c = 0; c < right.size(); ++c) dmatrix[r * right.size() + c] += left[r] * right[c];
        }
      }
    p.put(matrix, 0, dmatrix);
    p.put(bias, 0, dbias);
  }
}

}  // namespace tern::standin::dnn

#endif
