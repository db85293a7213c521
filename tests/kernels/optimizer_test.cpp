#include "tern/kernels/optimizer.h"

#include <memory>

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

struct Kind {
  DType weight, gradient;
  bool master;
};
const std::vector<Kind> kKinds = {{float32, float32, false},   {float64, float64, false},  {bfloat16, bfloat16, true},
                                  {float16, float16, true},    {float32, bfloat16, false}, {bfloat16, float32, true},
                                  {bfloat16, bfloat16, false}, {float64, float32, false}};

/// One parameter for the kernel and, in double, for the reference.
struct Parameter {
  Kind kind;
  DType state_type;
  Array weight, gradient, state1, state2, state3, master;
  std::vector<double> w, m, v, largest;
  Parameter(const Kind& k, int64_t size, std::mt19937_64& random)
      : kind(k),
        state_type(k.weight == float64 ? float64 : float32),
        weight(k.weight, {size}, Order::kMisaligned),
        gradient(k.gradient, {size}, Order::kMisaligned),
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
  Model(int32_t groups, std::mt19937_64& random, bool large) {
    int32_t group = 0;
    for (const Kind& kind : kKinds) {
      for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1037}, int64_t{large ? 70001 : 300}}) {
        parameters.push_back(std::make_unique<Parameter>(kind, size, random));
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
void reference_adam(Parameter& p, const AdamGroup& g, double step, double factor) {
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
void reference_sgd(Parameter& p, const SgdGroup& g, double step, double factor) {
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

const std::vector<AdamGroup> kAdamGroups = {
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
const std::vector<SgdGroup> kSgdGroups = {{.lr = 1e-2},
                                          {.lr = 1e-2, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
                                          {.lr = 5e-3, .momentum = 0.8, .nesterov = true, .maximize = true}};

TEST(Optimizer, AdamFiftyStepsAgainstDouble) {
  for_each_level([] {
    std::mt19937_64 random(41);
    Model model(static_cast<int32_t>(kAdamGroups.size()), random, false);
    int64_t count = 0;
    for (int step = 1; step <= 50; ++step) {
      model.draw_gradients(random);
      // Clipping by a factor of 0.25 on some steps, and a loss scale of 8 whose inverse is applied here.
      const GradientNorm norm{64.0 * 64.0 * 4.0, 0, -1};  // norm 128 as it lies in memory, 16 unscaled
      const float inverse = 0.125f;
      const bool clips = step % 3 == 0;
      adam(Stream{}, model.tensors.data(), static_cast<int64_t>(model.tensors.size()), kAdamGroups.data(),
           static_cast<int64_t>(kAdamGroups.size()),
           {.step = &count,
            .norm = clips ? &norm : nullptr,
            .max_norm = 4,
            .inverse_scale = clips ? &inverse : nullptr});
      const double factor = clips ? 0.125 * std::min(1.0, 4 / (16 + 1e-6)) : 1;
      for (size_t t = 0; t < model.tensors.size(); ++t)
        reference_adam(*model.parameters[t], kAdamGroups[model.tensors[t].group], step, factor);
    }
    EXPECT_EQ(count, 50);
    model.compare(50);
  });
}

TEST(Optimizer, SgdFiftyStepsAgainstDouble) {
  for_each_level([] {
    std::mt19937_64 random(42);
    Model model(static_cast<int32_t>(kSgdGroups.size()), random, false);
    int64_t count = 0;
    for (int step = 1; step <= 50; ++step) {
      model.draw_gradients(random);
      sgd(Stream{}, model.tensors.data(), static_cast<int64_t>(model.tensors.size()), kSgdGroups.data(),
          static_cast<int64_t>(kSgdGroups.size()), {.step = &count});
      for (size_t t = 0; t < model.tensors.size(); ++t)
        reference_sgd(*model.parameters[t], kSgdGroups[model.tensors[t].group], step, 1);
    }
    EXPECT_EQ(count, 50);
    model.compare(50);
  });
}

TEST(Optimizer, ThreadsAndBlocksDoNotChangeTheBits) {
  for_each_level([] {
    std::vector<std::vector<double>> results[2];
    for (const int threads : {1, 2}) {
      const int before = num_threads();
      set_num_threads(threads);
      std::mt19937_64 random(43);
      Model model(1, random, true);
      model.draw_gradients(random);
      int64_t count = 0;
      const AdamGroup group;
      adam(Stream{}, model.tensors.data(), static_cast<int64_t>(model.tensors.size()), &group, 1, {.step = &count});
      for (auto& p : model.parameters) {
        reference_adam(*p, group, 1, 1);
        results[threads - 1].push_back(p->weight.values());
      }
      model.compare(1);
      set_num_threads(before);
    }
    EXPECT_EQ(results[0], results[1]);
  });
}

TEST(Optimizer, NonFiniteGradientsSkipTheStep) {
  std::mt19937_64 random(44);
  Model model(1, random, false);
  model.draw_gradients(random);
  std::vector<std::vector<char>> before;
  for (auto& p : model.parameters)
    for (Array* a : {&p->weight, &p->state1, &p->state2, &p->state3, &p->master}) before.push_back(a->bytes());
  const GradientNorm norm{INFINITY, 1, 3};
  const AdamGroup adam_group{.weight_decay = 0.1};
  const SgdGroup sgd_group{.momentum = 0.9};
  int64_t count = 6;
  const auto size = static_cast<int64_t>(model.tensors.size());
  adam(Stream{}, model.tensors.data(), size, &adam_group, 1, {.step = &count, .norm = &norm, .max_norm = 1});
  sgd(Stream{}, model.tensors.data(), size, &sgd_group, 1, {.step = &count, .norm = &norm});
  EXPECT_EQ(count, 6);
  size_t index = 0;
  for (auto& p : model.parameters)
    for (Array* a : {&p->weight, &p->state1, &p->state2, &p->state3, &p->master})
      EXPECT_TRUE(before[index++] == a->bytes());
  sgd(Stream{}, model.tensors.data(), size, &sgd_group, 1, {.step = &count, .norm = &norm, .skip_non_finite = false});
  EXPECT_EQ(count, 7);
}

TEST(Optimizer, ZeroGradientsGiveNoNan) {
  for_each_level([] {
    Array weight(float32, {40}), gradient(float32, {40}), m(float32, {40}), v(float32, {40});
    for (int64_t i = 0; i < 40; ++i) weight.set(i, 1), gradient.set(i, 0), m.set(i, 0), v.set(i, 0);
    OptimizerTensor tensor;
    tensor.weight = weight.view().data;
    tensor.gradient = gradient.view().data;
    tensor.state1 = m.view().data;
    tensor.state2 = v.view().data;
    tensor.size = 40;
    const AdamGroup group;
    int64_t count = 0;
    adam(Stream{}, &tensor, 1, &group, 1, {.step = &count});
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(weight.at(i), 1);
  });
}

TEST(Optimizer, ScaleByNorm) {
  std::mt19937_64 random(45);
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      Array a(dtype, {7}, Order::kMisaligned), empty(dtype, {0}), b(dtype, {3, 501});
      fill_with_random(a, random, -1, 1);
      fill_with_random(b, random, -1, 1);
      const std::vector<double> a_before = a.values(), b_before = b.values();
      const View views[] = {a.view(), empty.view(), b.view()};
      const GradientNorm small{0.25, 0, -1}, large{100, 0, -1};
      scale_by_norm(Stream{}, views, 3, &small, 1);
      EXPECT_EQ(a.values(), a_before);
      scale_by_norm(Stream{}, views, 3, &large, 1);
      const double factor = 1 / (10 + 1e-6);
      for (int64_t i = 0; i < 7; ++i)
        EXPECT_TRUE(near(a.at(i), a_before[i] * factor,
                         1.01 * epsilon_of(dtype) + 0x1p-23 * (dtype != float64) + 0x1p-52, 6e-8 * (dtype == float16)));
      for (int64_t i = 0; i < 1503; ++i)
        EXPECT_TRUE(near(b.at(i), b_before[i] * factor,
                         1.01 * epsilon_of(dtype) + 0x1p-23 * (dtype != float64) + 0x1p-52, 6e-8 * (dtype == float16)));
    }
  });
}

}  // namespace
}  // namespace tern::kernels
