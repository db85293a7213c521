#pragma once
// The contract of optimizer updates: parameters of every kind of dtypes, and PyTorch's formulas in long double.

#include "tern/kernels/optimizer/tiles.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

struct Kind {
  DType weight, gradient;
  bool master, kahan = false;
};
inline const std::vector<Kind> kKinds = {{float32, float32, false},         {float64, float64, false},
                                         {bfloat16, bfloat16, true},        {float16, float16, true},
                                         {float32, bfloat16, false},        {bfloat16, float32, true},
                                         {bfloat16, bfloat16, false},       {float64, float32, false},
                                         {bfloat16, bfloat16, false, true}, {bfloat16, float32, false, true}};

/// A number as it should be, and how far the kernel's may lie from it.
struct Expected {
  long double value = 0, bound = 0;
};

/// One parameter for the kernel, and what the next step should make of it.
struct Parameter {
  Kind kind;
  int32_t group = 0;
  DType state_type;
  Array weight, gradient, state1, state2, state3, master, compensation;
  std::vector<Expected> next_weight, next_state1, next_state2, next_state3;  // empty: not written
  Parameter(const Kind& k, int64_t size, std::mt19937_64& random, Order order = Order::kMisaligned)
      : kind(k),
        state_type(k.weight == float64 ? float64 : float32),
        weight(k.weight, {size}, order),
        gradient(k.gradient, {size}, order),
        state1(state_type, {size}),
        state2(state_type, {size}),
        state3(state_type, {size}),
        master(float32, {size}),
        compensation(bfloat16, {size}, order) {
    fill_with_random(weight, random, -1, 1);
    for (Array* zero : {&state1, &state2, &state3, &compensation}) zero->fill(0);
    master.set(weight.values());
  }
  OptimizerTensor tensor(Call& on) {
    OptimizerTensor t;
    t.weight = on(weight).data;
    t.gradient = on(std::as_const(gradient)).data;
    t.states[0] = on(state1).data;
    t.states[1] = on(state2).data;
    t.states[2] = on(state3).data;
    t.master = on.when(kind.master, master).data;
    t.compensation = on.when(kind.kahan, compensation).data;
    t.size = weight.numel();
    t.weight_dtype = kind.weight;
    t.gradient_dtype = kind.gradient;
    t.group = group;
    return t;
  }
  /// What an update may write.
  std::vector<Array*> arrays() { return {&weight, &state1, &state2, &state3, &master, &compensation}; }
  /// The weight as exactly as it is kept.
  double value(int64_t i) const {
    if (kind.kahan) return weight.at(i) + compensation.at(i);
    return kind.master ? master.at(i) : weight.at(i);
  }
  /// That of the type that updates are computed in.
  double unit() const { return kind.weight == float64 ? 0x1p-53 : 0x1p-24; }
  /// What keeping a weight rounds, beyond the compute type: half a unit of a plain 16-bit weight; with a compensation,
  /// which is below half a unit of the weight, half a unit of that.
  double rounding() const {
    if (kind.kahan) return 0x1.02p-17;
    return is_low_precision(kind.weight) && !kind.master ? epsilon_of(kind.weight) : 0;
  }

  /// After the step.
  void compare() const {
    const auto expect = [](const char* what, int64_t i, double got, const Expected& expected) {
      ASSERT_LE(std::fabs(got - expected.value), expected.bound)
          << what << "[" << i << "]: " << got << " for " << static_cast<double>(expected.value);
    };
    for (int64_t i = 0; i < weight.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      expect("weight", i, value(i), next_weight[at]);
      if (!next_state1.empty()) expect("state1", i, state1.at(i), next_state1[at]);
      if (!next_state2.empty()) expect("state2", i, state2.at(i), next_state2[at]);
      if (!next_state3.empty()) expect("state3", i, state3.at(i), next_state3[at]);
      if (testing::Test::HasFatalFailure()) return;
      if (kind.kahan) {
        ASSERT_LE(std::fabs(compensation.at(i)), 0x1p-8 * std::fabs(weight.at(i))) << "element " << i;
      }
      if (kind.master) {
        ASSERT_EQ(weight.at(i), round_to(kind.weight, master.at(i))) << "element " << i;
      }
    }
  }
};

inline OptimizerStep step_on(Call& on, OptimizerStep step, int64_t groups) {
  step.step = on.memory(step.step);
  step.norm = on.memory(step.norm);
  step.inverse_scale = on.memory(step.inverse_scale);
  step.earlier = on.memory(step.earlier);
  step.lr = on.memory(step.lr, groups);
  return step;
}
/// One update of all parameters; the pointers of `step` are the test's.
inline void update(Call& on, const OptimizerRules& rules, const std::vector<Parameter*>& parameters,
                   const OptimizerStep& step) {
  std::vector<OptimizerTensor> tensors;
  int32_t groups = 0;
  for (Parameter* p : parameters) {
    tensors.push_back(p->tensor(on));
    groups = std::max(groups, p->group + 1);
  }
  update_weights(on.stream(), rules, tensors.data(), static_cast<int64_t>(tensors.size()), step_on(on, step, groups));
}
inline void update(const OptimizerRules& rules, const std::vector<Parameter*>& parameters, const OptimizerStep& step) {
  run_kernel([&](Call& on) { update(on, rules, parameters, step); });
}

struct Model {
  std::vector<std::unique_ptr<Parameter>> parameters;
  /// Sizes: nothing, one element, odd, and more than one block of work.
  Model(int32_t groups, std::mt19937_64& random, bool large, Order order = Order::kMisaligned) {
    int32_t group = 0;
    for (const Kind& kind : kKinds)
      for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1037}, int64_t{large ? 70001 : 300}}) {
        parameters.push_back(std::make_unique<Parameter>(kind, size, random, order));
        parameters.back()->group = group++ % groups;
      }
  }
  std::vector<Parameter*> all() const {
    std::vector<Parameter*> result;
    for (const auto& p : parameters) result.push_back(p.get());
    return result;
  }
  void draw_gradients(std::mt19937_64& random) {
    for (auto& p : parameters) fill_with_random(p->gradient, random, -1, 1);
  }
  /// After each step: a step is compared as a function of what it read, so that no bound grows with the steps.
  void compare() const {
    for (size_t t = 0; t < parameters.size(); ++t) {
      const Parameter& p = *parameters[t];
      SCOPED_TRACE(testing::Message() << "tensor " << t << " " << name_of(p.kind.weight) << " master " << p.kind.master
                                      << " kahan " << p.kind.kahan);
      ASSERT_NO_FATAL_FAILURE(p.compare());
    }
  }
  std::vector<std::vector<double>> weights() const {
    std::vector<std::vector<double>> result;
    for (const auto& p : parameters) result.push_back(p->weight.values());
    return result;
  }
};

/// The gradient as the update uses it, and its error: factor, weight decay and sign.
inline Expected gradient_of(const Parameter& p, int64_t i, double factor, double decay, bool maximize) {
  const long double own = (maximize ? -1 : 1) * static_cast<long double>(factor) * p.gradient.at(i);
  const long double coupled = static_cast<long double>(decay) * p.value(i);
  return {own + coupled, p.unit() * (3 * std::fabs(own) + 3 * std::fabs(coupled))};
}
/// A weight that is kept, with a tenth more for what is of second order.
inline Expected kept_weight(const Parameter& p, long double value, long double error) {
  return {value, 1.1L * (error + (p.unit() + p.rounding()) * std::fabs(value)) + 0x1p-126};
}

/// One step of torch.optim.Adam / AdamW, single tensor, from what the parameter holds; before the kernel runs. The
/// bounds are those of the rounding of each operation.
inline void reference_adam(Parameter& p, const AdamRule& g, int64_t step, double factor) {
  using Real = long double;
  const Real unit = p.unit(), beta1 = g.beta1, beta2 = g.beta2, lr = g.lr;
  const Real left1 = 1 - std::pow(beta1, static_cast<Real>(step)), left2 = 1 - std::pow(beta2, static_cast<Real>(step));
  // The kernel has the powers in double.
  const Real rate = lr / left1, rate_error = 0x1p-52L / left1 + 2 * unit;
  const Real correction = std::sqrt(left2), correction_error = 0x1p-52L / left2 + 2 * unit;
  const auto size = static_cast<size_t>(p.weight.numel());
  for (auto* next : {&p.next_weight, &p.next_state1, &p.next_state2, &p.next_state3}) next->assign(size, {});
  if (!g.amsgrad) p.next_state3.clear();
  for (size_t at = 0; at < size; ++at) {
    const auto i = static_cast<int64_t>(at);
    const Expected gradient = gradient_of(p, i, factor, g.decoupled ? 0 : g.weight_decay, g.maximize);
    const Real average = p.state1.at(i), square = p.state2.at(i), before = p.value(i), d = gradient.value;
    const Real keep = g.decoupled ? 1 - lr * g.weight_decay : 1;
    const Real m = beta1 * average + (1 - beta1) * d;
    const Real m_error =
        (1 - beta1) * gradient.bound + unit * (4 * (1 - beta1) * (std::fabs(d) + std::fabs(average)) + std::fabs(m));
    const Real v = beta2 * square + (1 - beta2) * d * d;
    // Where weight decay cancels the gradient, what is left is its error: of second order, but all there is.
    const Real square_error = gradient.bound * (2 * std::fabs(d) + gradient.bound) + 4 * unit * d * d;
    const Real v_error = (1 - beta2) * square_error + unit * (3 * beta2 * square + v);
    const Real second = g.amsgrad ? std::max<Real>(p.state3.at(i), v) : v;
    const Real root = std::sqrt(second);
    const Real root_error = std::sqrt(second + v_error) - std::sqrt(std::max<Real>(second - v_error, 0)) + unit * root;
    const Real denominator = root / correction + g.eps;
    const Real denominator_error =
        root_error / correction + root / correction * correction_error + 2 * unit * denominator;
    const Real change = rate * m / denominator;
    const Real least = std::max<Real>(denominator - denominator_error, g.eps / 2);
    const Real change_error =
        (rate * m_error + std::fabs(change) * denominator_error) / least + std::fabs(change) * (rate_error + 3 * unit);
    p.next_state1[at] = {m, 1.1L * m_error + 0x1p-126};
    p.next_state2[at] = {v, 1.1L * v_error + 0x1p-126};
    if (g.amsgrad) p.next_state3[at] = {second, 1.1L * v_error + 0x1p-126};
    p.next_weight[at] = kept_weight(p, keep * before - change, 3 * unit * std::fabs(before) + change_error);
  }
}

/// One step of torch.optim.SGD, likewise.
inline void reference_sgd(Parameter& p, const SgdRule& g, int64_t step, double factor) {
  using Real = long double;
  const Real unit = p.unit(), momentum = g.momentum, lr = g.lr;
  const auto size = static_cast<size_t>(p.weight.numel());
  p.next_weight.assign(size, {});
  p.next_state1.assign(g.momentum != 0 ? size : 0, {});
  for (size_t at = 0; at < size; ++at) {
    const auto i = static_cast<int64_t>(at);
    Expected gradient = gradient_of(p, i, factor, g.weight_decay, g.maximize);
    if (g.momentum != 0) {
      Expected buffer = gradient;
      if (step > 1) {
        const Real old = momentum * p.state1.at(i), share = 1 - static_cast<Real>(g.dampening),
                   added = share * gradient.value;
        buffer = {old + added, std::fabs(share) * gradient.bound +
                                   unit * (2 * std::fabs(old) + 2 * std::fabs(added) + std::fabs(old + added))};
      }
      p.next_state1[at] = {buffer.value, 1.1L * buffer.bound + 0x1p-126};
      if (g.nesterov)
        gradient = {gradient.value + momentum * buffer.value,
                    gradient.bound + momentum * buffer.bound +
                        unit * (2 * std::fabs(momentum * buffer.value) + std::fabs(gradient.value))};
      else
        gradient = buffer;
    }
    const Real before = p.value(i), change = lr * gradient.value;
    p.next_weight[at] =
        kept_weight(p, before - change, unit * std::fabs(before) + lr * gradient.bound + 3 * unit * std::fabs(change));
  }
}

/// Over `steps` most plain 16-bit weights move; a test in which they do not compares nothing.
inline void expect_plain_weights_moved(const Model& model, const std::vector<std::vector<double>>& before) {
  for (size_t t = 0; t < model.parameters.size(); ++t) {
    const Parameter& p = *model.parameters[t];
    if (p.rounding() == 0 || p.kind.kahan || p.weight.numel() < 100) continue;
    int64_t moved = 0;
    for (int64_t i = 0; i < p.weight.numel(); ++i) moved += p.weight.at(i) != before[t][static_cast<size_t>(i)];
    EXPECT_GT(moved, p.weight.numel() / 4) << "tensor " << t;
  }
}

/// Kahan's summation of SGD steps, where fp32 computes without rounding: weights on a grid of 2^-8, gradients of 2^-5
/// and a rate of 2^-15 give numbers on a grid of 2^-20. The bits of weight and compensation must then be those of bf16
/// rounding as the tests define it.
inline void check_kahan_bits(int64_t size, int steps, Order order, std::mt19937_64& random) {
  Parameter p(Kind{bfloat16, bfloat16, false, true}, size, random, order);
  const auto draw = [&](Array& array, int64_t i, double unit) {
    array.set(i, unit * static_cast<double>(static_cast<int64_t>(random() % 511) - 255));
  };
  std::vector<double> weight(size), rest(size, 0);
  for (int64_t i = 0; i < size; ++i) {
    draw(p.weight, i, 0x1p-8);
    weight[i] = p.weight.at(i);
  }
  const SgdRule group{.lr = 0x1p-15};
  int64_t count = 0, rounded = 0;
  for (int step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < size; ++i) draw(p.gradient, i, 0x1p-5);
    update(make_rules(&group), {&p}, {.step = &count});
    for (int64_t i = 0; i < size; ++i) {
      const double updated = weight[i] + rest[i] - group.lr * p.gradient.at(i);
      weight[i] = round_to(bfloat16, updated);
      rest[i] = round_to(bfloat16, updated - weight[i]);
      rounded += rest[i] != updated - weight[i];
      ASSERT_EQ(p.weight.at(i), weight[i]) << "step " << step << " element " << i;
      ASSERT_EQ(p.compensation.at(i), rest[i]) << "step " << step << " element " << i;
    }
  }
  EXPECT_TRUE(size < 1000 || rounded > 0) << "the compensation was never rounded: nothing was compared";
}

/// Many updates of 5e-4, less than half a unit of bf16 at 1: a plain bf16 weight stays where it is; with a compensation
/// it goes where fp32 goes, up to half a unit of the compensation (2^-17 of the weight) a step.
inline void check_tiny_updates(int steps, std::mt19937_64& random) {
  Parameter plain(Kind{bfloat16, float32, false}, 37, random), kahan(Kind{bfloat16, float32, false, true}, 37, random),
      full(Kind{float32, float32, false}, 37, random);
  for (Parameter* p : {&plain, &kahan, &full}) {
    p->weight.fill(1);
    for (int64_t i = 0; i < 37; ++i) p->gradient.set(i, i % 2 ? 0.3 : -0.7);
  }
  const AdamRule group{.lr = 5e-4, .weight_decay = 0.01};
  int64_t count = 0;
  for (int step = 0; step < steps; ++step) update(make_rules(&group), {&plain, &kahan, &full}, {.step = &count});
  for (int64_t i = 0; i < 37; ++i) {
    const double expected = full.weight.at(i), travelled = std::fabs(expected - 1);
    EXPECT_EQ(plain.weight.at(i), 1);
    EXPECT_GT(travelled, 0.9 * 5e-4 * steps);
    EXPECT_LE(std::fabs(kahan.value(i) - expected), steps * 0x1p-17 * std::max(1.0, expected)) << "element " << i;
    EXPECT_LE(std::fabs(kahan.value(i) - expected), 0.02 * travelled) << "element " << i;
  }
}

/// Running averages of weights of every type and of many sizes, for the kernel and in double.
struct Averages {
  std::vector<std::unique_ptr<Array>> weights, averages;
  std::vector<std::vector<double>> expected;
  Averages(std::mt19937_64& random, int64_t largest, Order order) {
    for (const DType dtype : {float32, float64, bfloat16, float16})
      for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{257}, largest}) {
        weights.push_back(std::make_unique<Array>(dtype, Shape{size}, order));
        averages.push_back(std::make_unique<Array>(dtype == float64 ? float64 : float32, Shape{size}, order));
        fill_with_random(*averages.back(), random, -1, 1);
        expected.push_back(averages.back()->values());
      }
  }
  void draw_weights(std::mt19937_64& random) {
    for (auto& weight : weights) fill_with_random(*weight, random, -1, 1);
  }
  /// The pointers of `step` are the test's.
  void update(AverageStep step) {
    run_kernel([&](Call& on) {
      std::vector<AverageTensor> tensors;
      for (size_t t = 0; t < weights.size(); ++t) {
        const Array& weight = *weights[t];
        tensors.push_back({on(*averages[t]).data, on(weight).data, weight.numel(), weight.dtype()});
      }
      step.updates = on.memory(step.updates);
      step.norm = on.memory(step.norm);
      step.earlier = on.memory(step.earlier);
      average_weights(on.stream(), tensors.data(), static_cast<int64_t>(tensors.size()), step);
    });
  }
  /// torch.lerp(average, weight, 1 - decay), in double.
  void follow(double decay) {
    for (size_t t = 0; t < expected.size(); ++t)
      for (size_t i = 0; i < expected[t].size(); ++i)
        expected[t][i] = decay * expected[t][i] + (1 - decay) * weights[t]->at(static_cast<int64_t>(i));
  }
  void compare(double updates) const {
    for (size_t t = 0; t < expected.size(); ++t) {
      const double unit = averages[t]->dtype() == float64 ? 0x1p-52 : 0x1p-23;
      for (size_t i = 0; i < expected[t].size(); ++i)
        ASSERT_LE(std::fabs(averages[t]->at(static_cast<int64_t>(i)) - expected[t][i]), unit * (2 + updates))
            << "tensor " << t << " element " << i;
    }
  }
};

/// Twelve updates, of which the fourth and the fifth are skipped, by its own norm and by an earlier one.
/// `kind` says which averages.
inline void check_averages(int64_t largest, Order order, AverageStep kind, std::mt19937_64& random) {
  Averages averages(random, largest, order);
  int64_t count = 0;
  double done = 0;
  for (int update = 1; update <= 12; ++update) {
    averages.draw_weights(random);
    const GradientNorm norm{1, update == 4, -1}, earlier{1, update == 5, -1};
    kind.updates = &count;
    kind.norm = &norm;
    kind.earlier = update % 2 ? &earlier : nullptr;
    averages.update(kind);
    if (update == 4 || update == 5) continue;
    ++done;
    // ModelEmaV3.get_decay(step): step = max(0, step - 1) and 0 before that.
    const double slow = 1 - std::pow(1 + (done - 1) / 2, -0.7);
    const double decay = kind.equal ? 1 - 1 / done : kind.warmup_gamma > 0 ? std::min(0.75, slow) : 0.75;
    averages.follow(done == 1 ? 0 : decay);
    averages.compare(done);
    if (done == 1) {  // the first copies, to the bit
      for (size_t t = 0; t < averages.weights.size(); ++t)
        for (int64_t i = 0; i < averages.weights[t]->numel(); ++i)
          ASSERT_EQ(averages.averages[t]->at(i), averages.weights[t]->at(i)) << t << " " << i;
    }
  }
  EXPECT_EQ(count, 10);
}

inline const std::vector<AdamRule> kAdamGroups = {
    {.lr = 1e-3, .weight_decay = 0.01},
    {.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1, .decoupled = false},
    {.lr = 2e-3, .amsgrad = true},
    {.lr = 1e-3,
     .beta1 = 0.3,
     .eps = 1e-6,
     .weight_decay = 0.05,
     .decoupled = false,
     .amsgrad = true,
     .maximize = true},
    {.lr = 1e-3, .weight_decay = 0.02, .maximize = true}};
inline const std::vector<SgdRule> kSgdGroups = {{.lr = 1e-2},
                                                {.lr = 1e-2, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
                                                {.lr = 5e-3, .momentum = 0.8, .nesterov = true, .maximize = true}};

}  // namespace tern::kernels
