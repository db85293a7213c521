#pragma once
// Optimizers for the tests: parameters of every kind of dtypes, and the updates in double.

#include <memory>

#include "tern/kernels/optimizer.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

struct Kind {
  DType weight, gradient;
  bool master;
};
inline const std::vector<Kind> kKinds = {
    {float32, float32, false},  {float64, float64, false}, {bfloat16, bfloat16, true},  {float16, float16, true},
    {float32, bfloat16, false}, {bfloat16, float32, true}, {bfloat16, bfloat16, false}, {float64, float32, false}};

/// One parameter for the kernel and, in double, for the reference.
struct Parameter {
  Kind kind;
  DType state_type;
  Array weight, gradient, state1, state2, state3, master;
  std::vector<double> w, m, v, largest;
  Parameter(const Kind& k, int64_t size, std::mt19937_64& random, Order order = Order::kMisaligned)
      : kind(k),
        state_type(k.weight == float64 ? float64 : float32),
        weight(k.weight, {size}, order),
        gradient(k.gradient, {size}, order),
        state1(state_type, {size}),
        state2(state_type, {size}),
        state3(state_type, {size}),
        master(float32, {size}),
        w(size),
        m(size, 0),
        v(size, 0),
        largest(size, 0) {
    fill_with_random(weight, random, -1, 1);
    for (int64_t i = 0; i < size; ++i) {
      for (Array* state : {&state1, &state2, &state3}) state->set(i, 0);
      master.set(i, weight.at(i));
      w[i] = weight.at(i);
    }
  }
  OptimizerTensor tensor(int32_t group) {
    OptimizerTensor t;
    t.weight = weight.view().data;
    t.gradient = gradient.view().data;
    t.state1 = state1.view().data;
    t.state2 = state2.view().data;
    t.state3 = state3.view().data;
    t.master = kind.master ? master.view().data : nullptr;
    t.size = weight.numel();
    t.weight_dtype = kind.weight;
    t.gradient_dtype = kind.gradient;
    t.group = group;
    return t;
  }
};

struct Model {
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<OptimizerTensor> tensors;
  /// Sizes: nothing, one element, odd, and more than one block of work.
  Model(int32_t groups, std::mt19937_64& random, bool large, Order order = Order::kMisaligned) {
    int32_t group = 0;
    for (const Kind& kind : kKinds) {
      for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1037}, int64_t{large ? 70001 : 300}}) {
        parameters.push_back(std::make_unique<Parameter>(kind, size, random, order));
        tensors.push_back(parameters.back()->tensor(group++ % groups));
      }
    }
  }
  void draw_gradients(std::mt19937_64& random) {
    for (auto& p : parameters) fill_with_random(p->gradient, random, -1, 1);
  }
  void compare(double steps) const {
    for (size_t t = 0; t < parameters.size(); ++t) {
      const Parameter& p = *parameters[t];
      SCOPED_TRACE(testing::Message() << "tensor " << t << " " << name_of(p.kind.weight) << " master "
                                      << p.kind.master);
      const bool rounds = is_low_precision(p.kind.weight) && !p.kind.master;
      for (int64_t i = 0; i < p.weight.numel(); ++i) {
        // fp32 loses some units a step; a 16-bit weight without master copy loses half a unit of its own each step.
        const double unit = p.kind.weight == float64 ? 0x1p-52 : rounds ? 0x1.02p-8 : 0x1p-23;
        const double got = p.kind.master ? p.master.at(i) : p.weight.at(i);
        ASSERT_LE(std::fabs(got - p.w[i]), unit * (4 + 3 * steps)) << "element " << i;
        if (p.kind.master) {
          ASSERT_EQ(p.weight.at(i), round_to(p.kind.weight, p.master.at(i))) << "element " << i;
        }
      }
    }
  }
};

/// torch.optim.Adam / AdamW, single tensor, in double.
inline void reference_adam(Parameter& p, const AdamGroup& g, double step, double factor) {
  for (size_t i = 0; i < p.w.size(); ++i) {
    double gradient = p.gradient.at(static_cast<int64_t>(i)) * factor;
    if (g.maximize) gradient = -gradient;
    if (g.decoupled)
      p.w[i] *= 1 - g.lr * g.weight_decay;
    else
      gradient += g.weight_decay * p.w[i];
    p.m[i] = g.beta1 * p.m[i] + (1 - g.beta1) * gradient;
    p.v[i] = g.beta2 * p.v[i] + (1 - g.beta2) * gradient * gradient;
    p.largest[i] = std::max(p.largest[i], p.v[i]);
    const double second = g.amsgrad ? p.largest[i] : p.v[i];
    const double denominator = std::sqrt(second) / std::sqrt(1 - std::pow(g.beta2, step)) + g.eps;
    p.w[i] -= g.lr / (1 - std::pow(g.beta1, step)) * p.m[i] / denominator;
  }
}

/// torch.optim.SGD in double.
inline void reference_sgd(Parameter& p, const SgdGroup& g, double step, double factor) {
  for (size_t i = 0; i < p.w.size(); ++i) {
    double gradient = p.gradient.at(static_cast<int64_t>(i)) * factor;
    if (g.maximize) gradient = -gradient;
    gradient += g.weight_decay * p.w[i];
    if (g.momentum != 0) {
      p.m[i] = step == 1 ? gradient : g.momentum * p.m[i] + (1 - g.dampening) * gradient;
      gradient = g.nesterov ? gradient + g.momentum * p.m[i] : p.m[i];
    }
    p.w[i] -= g.lr * gradient;
  }
}

inline const std::vector<AdamGroup> kAdamGroups = {
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
inline const std::vector<SgdGroup> kSgdGroups = {{.lr = 1e-2},
                                                 {.lr = 1e-2, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
                                                 {.lr = 5e-3, .momentum = 0.8, .nesterov = true, .maximize = true}};

}  // namespace tern::kernels
