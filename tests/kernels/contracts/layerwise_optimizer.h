#pragma once
// The contract of optimizers of whole parameters: the formulas of LAMB and Adafactor in long double, with bounds for
// the rounding of each operation and of sums.

#include "tern/kernels/optimizer/layerwise.h"
#include "tern/tests/kernels/contracts/optimizer.h"

namespace tern::kernels {

/// A parameter [..., rows, columns], or with rows == 0 one without matrices. The averages of rows and columns are the
/// first elements of state1 and state2.
struct Layer : Parameter {
  int64_t rows, columns;
  Layer(const Kind& k, int64_t size, int64_t of_rows, int64_t of_columns, std::mt19937_64& random, Order order)
      : Parameter(k, size, random, order), rows(of_rows), columns(of_columns) {}
  int64_t matrices() const { return rows > 0 && weight.numel() > 0 ? weight.numel() / (rows * columns) : 0; }
  OptimizerTensor layer(Call& on) {
    OptimizerTensor t = tensor(on);
    t.rows = rows;
    t.columns = columns;
    return t;
  }
};

/// Relative error of a sum of positive numbers, in units: a lane of a block adds 512 of them at most.
inline constexpr double kSumUnits = 600;

template <class Rule>
void update_layers(Call& on, const std::vector<Rule>& groups, const std::vector<Layer*>& layers,
                   const OptimizerStep& step) {
  std::vector<OptimizerTensor> tensors;
  for (Layer* layer : layers) tensors.push_back(layer->layer(on));
  const auto count = static_cast<int64_t>(tensors.size());
  const OptimizerStep there = step_on(on, step, static_cast<int64_t>(groups.size()));
  if constexpr (std::is_same_v<Rule, LambRule>)
    update_lamb(on.stream(), groups.data(), tensors.data(), count, there,
                on.workspace(lamb_workspace(on.stream(), tensors.data(), count)));
  else
    update_adafactor(on.stream(), groups.data(), tensors.data(), count, there,
                     on.workspace(adafactor_workspace(on.stream(), tensors.data(), count)));
}
template <class Rule>
void update_layers(const std::vector<Rule>& groups, const std::vector<Layer*>& layers, const OptimizerStep& step) {
  run_kernel([&](Call& on) { update_layers(on, groups, layers, step); });
}

/// A sum of squares of numbers with errors.
struct SquareSum {
  long double value = 0, error = 0;
  void add(long double x, long double bound) {
    value += x * x;
    error += 2 * std::fabs(x) * bound + bound * bound;
  }
  /// The relative error of its root, with the sum's own rounding.
  long double relative(double unit) const { return value > 0 ? error / value + kSumUnits * unit : 0; }
};

/// One step of LAMB from what the parameter holds; before the kernel runs.
inline void reference_layer(Layer& p, const LambRule& g, int64_t step, double factor) {
  using Real = long double;
  const Real unit = p.unit(), n = static_cast<Real>(step), beta1 = g.beta1, beta2 = g.beta2;
  const Real left1 = 1 - std::pow(beta1, n), left2 = 1 - std::pow(beta2, n);
  const Real unbias_error = 0x1p-51L / left1 + 0x1p-51L / left2 + 4 * unit;
  const auto size = static_cast<size_t>(p.weight.numel());
  for (auto* next : {&p.next_weight, &p.next_state1, &p.next_state2}) next->assign(size, {});
  std::vector<Expected> change(size);
  SquareSum weights, changes;
  for (size_t at = 0; at < size; ++at) {
    const auto i = static_cast<int64_t>(at);
    const Expected gradient = gradient_of(p, i, factor, 0, g.maximize);
    const Real d = gradient.value, average = p.state1.at(i), square = p.state2.at(i), before = p.value(i);
    const Real m = beta1 * average + (1 - beta1) * d, v = beta2 * square + (1 - beta2) * d * d;
    const Real m_error =
        (1 - beta1) * gradient.bound + unit * (4 * (1 - beta1) * (std::fabs(d) + std::fabs(average)) + std::fabs(m));
    const Real v_error =
        (1 - beta2) * (2 * std::fabs(d) * gradient.bound + 4 * unit * d * d) + unit * (3 * beta2 * square + v);
    const Real root = std::sqrt(v / left2), denominator = root + g.eps;
    const Real root_error =
        (std::sqrt(v + v_error) - std::sqrt(std::max<Real>(v - v_error, 0))) / std::sqrt(left2) + unbias_error * root;
    const Real adam = m / left1 / denominator, decay = g.weight_decay * before;
    const Real least = std::max<Real>(denominator - root_error, g.eps / 2);
    change[at] = {adam + decay, m_error / left1 / least + std::fabs(adam) * root_error / least +
                                    (unbias_error + 4 * unit) * std::fabs(adam) + 4 * unit * std::fabs(decay)};
    p.next_state1[at] = {m, 1.1L * m_error + 0x1p-126};
    p.next_state2[at] = {v, 1.1L * v_error + 0x1p-126};
    weights.add(before, unit * std::fabs(before));
    changes.add(change[at].value, change[at].bound);
  }
  const bool adapts = g.weight_decay != 0 || g.always_adapt;
  const Real ratio = adapts && weights.value > 0 && changes.value > 0 ? std::sqrt(weights.value / changes.value) : 1;
  const Real ratio_error = adapts ? weights.relative(p.unit()) + changes.relative(p.unit()) : 0;
  for (size_t at = 0; at < size; ++at) {
    const Real before = p.value(static_cast<int64_t>(at)), moved = g.lr * ratio * change[at].value;
    p.next_weight[at] = kept_weight(p, before - moved,
                                    unit * std::fabs(before) + g.lr * ratio * change[at].bound * (1 + ratio_error) +
                                        std::fabs(moved) * (ratio_error + 4 * unit));
  }
}

/// average + share (value - average).
inline Expected moved_average(long double average, const Expected& value, double share, double unit) {
  const long double moved = average + share * (value.value - average);
  return {moved, share * value.bound + (unit + 0x1p-51L) * 5 * (std::fabs(average) + std::fabs(value.value))};
}

/// The gradient over the root of its mean square.
inline Expected adafactor_change(const Expected& gradient, long double estimate, long double relative, double least,
                                 double unit) {
  const long double change = gradient.value / std::sqrt(std::max<long double>(estimate, least * least));
  const long double scale = gradient.value != 0 ? gradient.bound / std::fabs(gradient.value) : 0;
  return {change, std::fabs(change) * (scale + relative + 6 * unit)};
}

/// The averages of one matrix, and what they make of its gradients.
inline void reference_matrix(Layer& p, int64_t matrix, const std::vector<Expected>& gradients, double share,
                             double least, std::vector<Expected>& changes) {
  const auto m = static_cast<size_t>(p.rows), n = static_cast<size_t>(p.columns);
  const size_t first = static_cast<size_t>(matrix) * m * n, unit_rows = static_cast<size_t>(matrix) * m,
               unit_columns = static_cast<size_t>(matrix) * n;
  std::vector<SquareSum> rows(m), columns(n);
  for (size_t i = 0; i < m * n; ++i) {
    const Expected& g = gradients[first + i];
    rows[i / n].add(g.value, g.bound);
    columns[i % n].add(g.value, g.bound);
  }
  const auto move = [&](const SquareSum& sum, size_t count, const Array& state, size_t at, Expected& next) {
    const auto total = static_cast<long double>(count);
    const Expected mean{sum.value / total, (sum.error + kSumUnits * p.unit() * sum.value) / total};
    next = moved_average(state.at(static_cast<int64_t>(at)), mean, share, p.unit());
    next.bound += 0x1p-126;
  };
  long double row_mean = 0, row_error = 0;
  for (size_t r = 0; r < m; ++r) {
    Expected& next = p.next_state1[unit_rows + r];
    move(rows[r], n, p.state1, unit_rows + r, next);
    row_mean += next.value / static_cast<long double>(m);
    row_error += next.bound / static_cast<long double>(m);
  }
  for (size_t c = 0; c < n; ++c) move(columns[c], m, p.state2, unit_columns + c, p.next_state2[unit_columns + c]);
  const auto relative = [](const Expected& x) { return x.value > 0 ? x.bound / x.value : 0; };
  for (size_t i = 0; i < m * n; ++i) {
    const Expected &r = p.next_state1[unit_rows + i / n], &c = p.next_state2[unit_columns + i % n];
    const long double estimate = r.value * c.value / std::max<long double>(row_mean, least);
    const long double error = relative(r) + relative(c) + (row_mean > 0 ? row_error / row_mean : 0);
    changes[first + i] = adafactor_change(gradients[first + i], estimate, error, least, p.unit());
  }
}

/// One step of torch.optim.Adafactor, likewise.
inline void reference_layer(Layer& p, const AdafactorRule& g, int64_t step, double factor) {
  using Real = long double;
  const Real unit = p.unit();
  const auto size = static_cast<size_t>(p.weight.numel());
  const double share = std::pow(static_cast<double>(step), g.beta2_decay);
  const double least = g.eps1 > 0 ? g.eps1 : 2 * p.unit();
  std::vector<Expected> gradients, changes(size);
  for (size_t at = 0; at < size; ++at)
    gradients.push_back(gradient_of(p, static_cast<int64_t>(at), factor, 0, g.maximize));
  for (auto* next : {&p.next_weight, &p.next_state1, &p.next_state2, &p.next_state3}) next->assign(size, {});
  for (int64_t k = 0; k < p.matrices(); ++k) reference_matrix(p, k, gradients, share, least, changes);
  if (p.rows == 0)
    for (size_t at = 0; at < size; ++at) {
      const Expected& d = gradients[at];
      const Expected square{d.value * d.value, 2 * std::fabs(d.value) * d.bound + 2 * unit * d.value * d.value};
      Expected& next = p.next_state3[at];
      next = moved_average(p.state3.at(static_cast<int64_t>(at)), square, share, p.unit());
      changes[at] = adafactor_change(d, next.value, next.value > 0 ? next.bound / next.value : 0, least, p.unit());
      next.bound += 0x1p-126;
    }
  SquareSum weights, lengths;
  for (size_t at = 0; at < size; ++at) {
    weights.add(p.value(static_cast<int64_t>(at)), unit * std::fabs(p.value(static_cast<int64_t>(at))));
    lengths.add(changes[at].value, changes[at].bound);
  }
  const auto elements = static_cast<Real>(size);
  const Real rate = std::max<Real>(std::sqrt(weights.value / elements), g.eps2) *
                    std::min<Real>(g.lr, 1 / std::sqrt(static_cast<Real>(step))) /
                    std::max<Real>(std::sqrt(lengths.value / elements) / g.d, 1);
  const Real rate_error = weights.relative(p.unit()) + lengths.relative(p.unit()) + 0x1p-50L + 2 * unit;
  for (size_t at = 0; at < size; ++at) {
    const Real before = p.value(static_cast<int64_t>(at)) * (1 - static_cast<Real>(g.lr) * g.weight_decay);
    const Real moved = rate * changes[at].value;
    p.next_weight[at] = kept_weight(
        p, before - moved,
        4 * unit * std::fabs(before) + rate * changes[at].bound + std::fabs(moved) * (rate_error + 4 * unit));
  }
}

/// Layers of every kind of dtypes and of many shapes: nothing, one element, odd sizes, stacks of matrices, and more
/// than one block or tile.
struct Layers {
  std::vector<std::unique_ptr<Layer>> layers;
  Layers(int32_t groups, std::mt19937_64& random, Order order) {
    const struct {
      int64_t size, rows, columns;
    } shapes[] = {{0, 0, 0},       {1, 0, 0},
                  {257, 0, 0},     {17003, 0, 0},
                  {0, 3, 0},       {0, 0, 5},
                  {1, 1, 1},       {21, 3, 7},
                  {65, 65, 1},     {90, 9, 5},
                  {1030, 1, 1030}, {2 * 66 * 19, 66, 19},
                  {600, 300, 2},   {67 * 1027, 67, 1027}};
    int32_t group = 0;
    for (const Kind& kind : kKinds)
      for (const auto& [size, rows, columns] : shapes) {
        const uint64_t one_in = (size > 10000 ? 8 : 1) * (target().is_cpu() ? 2 : 6);  // all would take too long
        if (random() % one_in != 0) continue;
        layers.push_back(std::make_unique<Layer>(kind, size, rows, columns, random, order));
        layers.back()->group = group++ % groups;
      }
  }
  std::vector<Layer*> all() const {
    std::vector<Layer*> result;
    for (const auto& layer : layers) result.push_back(layer.get());
    return result;
  }
  void draw_gradients(std::mt19937_64& random) {
    for (auto& layer : layers) fill_with_random(layer->gradient, random, -1, 1);
  }
  void compare() const {
    for (const auto& p : layers) {
      SCOPED_TRACE(testing::Message() << p->weight.numel() << " elements, " << p->rows << " x " << p->columns << " "
                                      << name_of(p->kind.weight) << " master " << p->kind.master << " kahan "
                                      << p->kind.kahan << " group " << p->group);
      ASSERT_NO_FATAL_FAILURE(p->compare());
    }
  }
  /// The values of weights and states.
  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const auto& layer : layers)
      for (Array* array : layer->arrays()) all.push_back(array->values());
    return all;
  }
};

}  // namespace tern::kernels
