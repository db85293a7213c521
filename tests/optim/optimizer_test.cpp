// Optimizers against PyTorch's results and against loops: golden runs, groups, late parameters, skips, state.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/optim/optim.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"

namespace tern {
namespace {

using test::error_of;

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}

Tensor leaf(const Tensor& values) {
  Tensor tensor = values.clone();
  tensor.set_requires_grad(true);
  return tensor;
}

/// Equal salts give equal numbers, different salts different ones; every run draws new numbers.
Tensor random(const Shape& shape, uint64_t salt, DType dtype = float32) {
  Generator generator = test::fresh_generator(salt);
  return randn(shape, generator, {.dtype = dtype});
}

double relative_error(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  if (x.size() != y.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(difference / size);
}

using Make = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<NamedTensor>&)>;

template <class T, class Options>
Make maker(const Options& options) {
  return [options](const std::vector<NamedTensor>& parameters) { return std::make_unique<T>(parameters, options); };
}

struct Case {
  std::string name;
  Make make;
};

std::vector<Case> cases() {
  using optim::Adam, optim::AdamOptions, optim::AdamW, optim::AdamWOptions, optim::SGD, optim::SGDOptions;
  return {
      {"adamw", maker<AdamW>(AdamWOptions{.lr = 1e-2, .weight_decay = 0.1})},
      {"adamw_other_betas",
       maker<AdamW>(AdamWOptions{.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0})},
      {"adam_l2", maker<Adam>(AdamOptions{.lr = 1e-2, .weight_decay = 0.1})},
      {"adam_amsgrad", maker<Adam>(AdamOptions{.lr = 1e-2, .beta2 = 0.99, .amsgrad = true})},
      {"adamw_amsgrad_maximize",
       maker<AdamW>(AdamWOptions{.lr = 1e-2, .beta2 = 0.99, .amsgrad = true, .maximize = true})},
      {"sgd", maker<SGD>(SGDOptions{.lr = 1e-2})},
      {"sgd_momentum", maker<SGD>(SGDOptions{.lr = 1e-2, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01})},
      {"sgd_nesterov", maker<SGD>(SGDOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true})},
      {"sgd_maximize", maker<SGD>(SGDOptions{.lr = 1e-2, .momentum = 0.5, .maximize = true})},
  };
}

TEST(Optimizer, FiftyStepsAsPyTorch) {
  const StateView golden = load_safetensors(test::source_dir() + "/tests/golden/optimizer.safetensors").tensors;
  const Tensor gradients = find(golden, "gradients");
  const nlohmann::json index = nlohmann::json::parse(std::ifstream(test::source_dir() + "/tests/golden/index.json"));
  std::map<std::string, double> own_error;  // of PyTorch's float32
  for (const auto& c : index.at("optimizers").at("cases")) own_error[c.at("name")] = c.at("float32_error");
  ASSERT_EQ(own_error.size(), cases().size());
  for (const Case& c : cases()) {
    for (const DType dtype : {float64, float32}) {
      Tensor weight = leaf(find(golden, "weight").to(dtype));
      const auto optimizer = c.make({{"w", weight}});
      int compared = 0;
      for (int step = 1; step <= 50; ++step) {
        weight.set_grad(gradients[step - 1].to(dtype));
        optimizer->step();
        const Tensor expected = find(golden, c.name + "/step" + std::to_string(step));
        if (!expected.defined()) continue;
        ++compared;
        // Fifty steps of ten roundings in fp64; in fp32 four times PyTorch's rounding error.
        const double bound = dtype == float64 ? 500 * 0x1p-53 : 4 * own_error.at(c.name);
        EXPECT_LE(relative_error(weight, expected), bound)
            << c.name << " " << name_of(dtype) << " step " << step << ": " << relative_error(weight, expected);
      }
      EXPECT_EQ(compared, 4);
    }
  }
}

TEST(Optimizer, BadHyperParametersThrow) {
  const std::vector<NamedTensor> p = {{"w", leaf(ones({2}))}};
  const double nan = NAN, inf = INFINITY;
  expect_contains(error_of([&] { optim::AdamW(p, {.lr = -1}); }), {"adamw", "lr", "-1"});
  expect_contains(error_of([&] { optim::Adam(p, {.lr = nan}); }), {"adam", "lr", "nan"});
  EXPECT_THROW(optim::AdamW(p, {.lr = inf}), Error);
  expect_contains(error_of([&] { optim::AdamW(p, {.beta1 = 1}); }), {"beta1", "[0, 1)"});
  EXPECT_THROW(optim::AdamW(p, {.beta2 = -0.1}), Error);
  EXPECT_THROW(optim::AdamW(p, {.beta2 = nan}), Error);
  EXPECT_THROW(optim::AdamW(p, {.eps = -1e-8}), Error);
  EXPECT_THROW(optim::AdamW(p, {.weight_decay = -0.1}), Error);
  EXPECT_THROW(optim::SGD(p, {.momentum = -1}), Error);
  EXPECT_THROW(optim::SGD(p, {.dampening = nan}), Error);
  expect_contains(error_of([&] { optim::SGD(p, {.nesterov = true}); }), {"nesterov", "momentum"});
  EXPECT_THROW(optim::SGD(p, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), Error);
  EXPECT_NO_THROW(optim::SGD(p, {.lr = 0, .momentum = 0.9, .nesterov = true}));
  optim::AdamW fine(p);
  EXPECT_THROW(fine.set_lr(-1), Error);
  EXPECT_THROW(fine.set_lr_factor(nan), Error);
  EXPECT_THROW(fine.step({.max_norm = -1}), Error);
  EXPECT_THROW(fine.step({.max_norm = nan}), Error);
}

TEST(Optimizer, BadParametersThrow) {
  const Tensor w = leaf(ones({2, 3}));
  expect_contains(error_of([&] { optim::AdamW(std::vector<NamedTensor>{}); }), {"no parameters"});
  expect_contains(error_of([&] { optim::AdamW({{"a", w}, {"b", w}}); }), {"'b'", "twice"});
  expect_contains(error_of([&] {
                    optim::AdamW({{"a", w}, {"a", leaf(ones({1}))}});
                  }),
                  {"'a'", "twice", "two different parameters", "several models", "p.name = "});
  expect_contains(error_of([&] {
                    optim::EMA({{"a", w}, {"a", leaf(ones({1}))}});
                  }),
                  {"'a'", "twice", "several models"});
  expect_contains(error_of([&] {
                    optim::SGD(std::vector<optim::ParameterGroup>{{.parameters = {{"a", w}}},
                                                                  {.parameters = {{"c", w}}, .lr = 1.0}});
                  }),
                  {"'c'", "twice"});
  expect_contains(error_of([&] { optim::AdamW({{"u", Tensor()}}); }), {"'u'", "undefined"});
  expect_contains(error_of([&] { optim::AdamW({{"i", ones({1}, {.dtype = int64})}}); }), {"'i'", "int64"});
  expect_contains(error_of([&] { optim::AdamW({{"n", w * 2.0}}); }), {"'n'", "leaf"});
  expect_contains(error_of([&] { optim::AdamW({{"t", ones({2, 3}).t()}}); }), {"'t'", "contiguous"});
  EXPECT_THROW(optim::AdamW(std::vector<optim::ParameterGroup>{{.parameters = {{"a", w}}, .lr = -1.0}}), Error);
}

TEST(Optimizer, GroupsHaveDifferentRates) {
  Tensor a = leaf(ones({3})), b = leaf(ones({3})), c = leaf(ones({3}));
  optim::SGD optimizer({{.parameters = {{"a", a}}},
                        {.parameters = {{"b", b}}, .lr = 0.5},
                        {.parameters = {{"c", c}}, .weight_decay = 1.0}},
                       {.lr = 0.25});
  for (Tensor* t : {&a, &b, &c}) t->set_grad(ones({3}));
  optimizer.set_lr_factor(0.5);
  optimizer.step();
  EXPECT_EQ(a.to_vector<double>()[0], 0.875);
  EXPECT_EQ(b.to_vector<double>()[0], 0.75);
  EXPECT_EQ(c.to_vector<double>()[0], 0.75);  // 1 - 0.125 * (1 + 1 * 1)
  EXPECT_EQ(optimizer.param_groups()[1].base_lr, 0.5);
  EXPECT_EQ(optimizer.param_groups()[1].lr, 0.25);
  EXPECT_EQ(optimizer.lr(), 0.125);
  optimizer.set_lr(2);
  optimizer.set_lr_factor(0.25);
  EXPECT_EQ(optimizer.param_groups()[1].lr, 0.5);
}

TEST(Optimizer, NoDecayGroupsSplitOffVectors) {
  const std::vector<NamedTensor> parameters = {{"weight", leaf(ones({2, 2}))},
                                               {"bias", leaf(ones({2}))},
                                               {"norm", leaf(ones({2}))},
                                               {"conv", leaf(ones({1, 1, 2, 2}))}};
  const auto groups = optim::no_decay_groups(parameters, 0.1);
  ASSERT_EQ(groups.size(), 2u);
  ASSERT_EQ(groups[0].parameters.size(), 2u);
  EXPECT_EQ(groups[0].parameters[1].name, "conv");
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].parameters[1].name, "norm");
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  for (NamedTensor p : parameters) p.tensor.set_grad(zeros(p.tensor.shape()));
  optim::AdamW optimizer(groups, {.lr = 0.5});
  optimizer.step();
  EXPECT_FLOAT_EQ(parameters[0].tensor.to_vector<float>()[0], 0.95f);
  EXPECT_EQ(parameters[1].tensor.to_vector<float>()[0], 1);
}

/// Adam for one element, in double: the expected result of each parameter, independent of the others.
struct ScalarAdam {
  double w, m = 0, v = 0;
  int t = 0;
  void step(double g, double lr) {
    ++t;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= lr * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  }
};

TEST(Optimizer, EachParameterCountsItsUpdates) {
  // Four parameters with gradients at different steps: always, late, with gaps, never.
  const auto has_gradient = [](size_t p, int step) {
    return p == 0 || (p == 1 && step >= 3) || (p == 2 && step % 3 != 1);
  };
  std::vector<NamedTensor> parameters;
  std::vector<ScalarAdam> expected;
  for (size_t p = 0; p < 4; ++p) {
    parameters.push_back({"p" + std::to_string(p), leaf(full({1}, 1.0 + static_cast<double>(p), {.dtype = float64}))});
    expected.push_back({1.0 + static_cast<double>(p)});
  }
  optim::Adam optimizer(parameters, {.lr = 0.1});
  for (int step = 0; step < 12; ++step) {
    for (size_t p = 0; p < 4; ++p) {
      const double g = std::sin(1.0 + step * 1.7 + static_cast<double>(p));
      parameters[p].tensor.set_grad(has_gradient(p, step) ? full({1}, g, {.dtype = float64}) : Tensor());
      if (has_gradient(p, step)) expected[p].step(g, 0.1);
    }
    optimizer.step();
    for (size_t p = 0; p < 4; ++p) {
      EXPECT_NEAR(parameters[p].tensor.item<double>(), expected[p].w, 1e-12) << "p" << p << " step " << step;
    }
    if (step == 6) {  // save and load the counts in the middle
      StateView copy;
      for (const NamedTensor& entry : optimizer.state_dict()) copy.push_back({entry.name, entry.tensor.clone()});
      optimizer.load_state_dict(copy);
    }
  }
  const StateView state = optimizer.state_dict();
  for (size_t p = 0; p < 4; ++p) {
    EXPECT_EQ(find(state, "step.p" + std::to_string(p)).item<int64_t>(), expected[p].t) << p;
  }
}

TEST(Optimizer, MomentumOfALateStarterBeginsWithItsGradient) {
  Tensor a = leaf(zeros({1})), b = leaf(zeros({1}));
  optim::SGD optimizer({{"a", a}, {"b", b}}, {.lr = 1, .momentum = 0.5, .dampening = 0.5});
  a.set_grad(ones({1}));
  optimizer.step();
  b.set_grad(ones({1}));
  optimizer.step();
  EXPECT_EQ(a.item<double>(), -2);  // buffers 1, then 0.5 * 1 + 0.5 * 1
  EXPECT_EQ(b.item<double>(), -1);
}

TEST(Optimizer, ParametersWithoutGradientStayAsTheyAre) {
  const Tensor w = leaf(ones({3}));
  optim::AdamW optimizer({{"w", w}}, {.weight_decay = 0.5});
  const optim::StepResult result = optimizer.step({.max_norm = 1});
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(result.grad_norm(), 0);
  EXPECT_EQ(find(optimizer.state_dict(), "step.w").item<int64_t>(), 0);
}

TEST(Optimizer, EmptyAndStridedTensorsAreFine) {
  Tensor none = leaf(zeros({0, 3})), w = leaf(ones({2, 3}));
  optim::SGD optimizer({{"none", none}, {"w", w}}, {.lr = 1});
  none.set_grad(zeros({0, 3}));
  w.set_grad(from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2}).t());
  EXPECT_NEAR(optimizer.step({.max_norm = INFINITY}).grad_norm(), std::sqrt(91.0), 1e-14);
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{0, -2, -4, -1, -3, -5}));
}

TEST(Optimizer, ZeroGradDropsGradients) {
  Tensor w = leaf(ones({3}));
  optim::SGD optimizer({{"w", w}});
  w.set_grad(ones({3}));
  optimizer.zero_grad();
  EXPECT_FALSE(w.grad().defined());
}

TEST(Optimizer, StepChangesAreSeenByAutograd) {
  Tensor w = leaf(ones({3}));
  optim::SGD optimizer({{"w", w}}, {.lr = 1});
  const Tensor loss = sum(w * w);
  loss.backward({}, true);
  optimizer.step();
  EXPECT_NE(error_of([&] { loss.backward(); }), "no error");  // w was changed in place
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{-1, -1, -1}));
}

TEST(Optimizer, ClippingInTheStepIsClippingBeforeIt) {
  for (const double max_norm : {0.5, 1e3}) {
    for (const Case& c : cases()) {
      std::vector<NamedTensor> inside, before;
      for (uint64_t i = 0; i < 3; ++i) {
        const Tensor start = random({static_cast<int64_t>(5 + 7 * i)}, i, float64);
        inside.push_back({std::to_string(i), leaf(start)});
        before.push_back({std::to_string(i), leaf(start)});
      }
      const auto a = c.make(inside), b = c.make(before);
      for (uint64_t step = 0; step < 3; ++step) {
        for (size_t i = 0; i < 3; ++i) {
          const Tensor gradient = random(inside[i].tensor.shape(), 10 + 3 * step + i, float64);
          inside[i].tensor.set_grad(gradient);
          before[i].tensor.set_grad(gradient.clone());
        }
        const optim::StepResult result = a->step({.max_norm = max_norm, .skip_non_finite = true});
        const double norm = optim::clip_grad_norm(before, max_norm);
        b->step();
        EXPECT_NEAR(result.grad_norm(), norm, 40 * 0x1p-53 * norm);  // sum of 36 numbers, in fp64
        EXPECT_FALSE(result.skipped());
        EXPECT_EQ(result.first_non_finite(), "");
        for (size_t i = 0; i < 3; ++i) {
          // The different rounding of the factor changes an update, at most 0.1 for a weight of 1, by about 2^-50.
          EXPECT_LE(relative_error(inside[i].tensor, before[i].tensor), 1e-14) << c.name;
        }
      }
    }
  }
}

TEST(Optimizer, NonFiniteGradientsSkipTheWholeUpdate) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    for (const Case& c : cases()) {
      Tensor a = leaf(random({33}, 1)), b = leaf(random({50}, 2));
      const auto optimizer = c.make({{"first", a}, {"second", b}});
      a.set_grad(random({33}, 3));
      b.set_grad(random({50}, 4));
      optimizer->step({.skip_non_finite = true});
      std::vector<std::vector<double>> before = {a.to_vector<double>(), b.to_vector<double>()};
      for (const NamedTensor& entry : optimizer->state_dict()) before.push_back(entry.tensor.to_vector<double>());

      Tensor gradient = random({50}, 5);
      gradient.data<float>()[49] = static_cast<float>(bad);
      b.set_grad(gradient);
      const optim::StepResult result = optimizer->step({.max_norm = 1, .skip_non_finite = true});
      EXPECT_TRUE(result.skipped());
      EXPECT_EQ(result.first_non_finite(), "second");
      EXPECT_FALSE(std::isfinite(result.grad_norm()));
      std::vector<std::vector<double>> after = {a.to_vector<double>(), b.to_vector<double>()};
      for (const NamedTensor& entry : optimizer->state_dict()) after.push_back(entry.tensor.to_vector<double>());
      EXPECT_EQ(after, before) << c.name;

      b.set_grad(random({50}, 6));
      EXPECT_FALSE(optimizer->step({.skip_non_finite = true}).skipped());
      EXPECT_NE(b.to_vector<double>(), before[1]);
    }
  }
}

TEST(Optimizer, NonFiniteGradientsAreAppliedUnlessTheStepIsToSkip) {
  for (const Case& c : cases()) {
    Tensor a = leaf(random({33}, 1));
    const auto optimizer = c.make({{"a", a}});
    Tensor gradient = random({33}, 3);
    gradient.data<float>()[7] = NAN;
    a.set_grad(gradient);
    EXPECT_FALSE(optimizer->step({.max_norm = 1}).skipped());
    EXPECT_TRUE(std::isnan(a.to_vector<double>()[7])) << c.name;
  }
}

TEST(Optimizer, ASkippedFirstStepCountsNothing) {
  Tensor w = leaf(full({1}, 2, {.dtype = float64}));
  optim::Adam optimizer({{"w", w}}, {.lr = 0.1});
  w.set_grad(full({1}, NAN, {.dtype = float64}));
  EXPECT_TRUE(optimizer.step({.skip_non_finite = true}).skipped());
  w.set_grad(full({1}, 0.7, {.dtype = float64}));
  optimizer.step();
  ScalarAdam expected{2};
  expected.step(0.7, 0.1);
  EXPECT_NEAR(w.item<double>(), expected.w, 1e-14);
}

TEST(Optimizer, ResultsNotRequestedAreErrors) {
  Tensor w = leaf(ones({3}));
  w.set_grad(full({3}, NAN));
  optim::SGD optimizer({{"w", w}});
  const optim::StepResult plain = optimizer.step();
  EXPECT_FALSE(plain.skipped());
  expect_contains(error_of([&] { plain.grad_norm(); }), {"max_norm", "skip_non_finite"});
  EXPECT_THROW(plain.first_non_finite(), Error);
  const optim::StepResult clipped = optimizer.step({.max_norm = 1});  // skipping is off: NaN spreads, as in PyTorch
  EXPECT_FALSE(clipped.skipped());
  EXPECT_EQ(clipped.first_non_finite(), "w");
  EXPECT_TRUE(std::isnan(w.to_vector<double>()[0]));
}

TEST(Optimizer, StateRoundTripContinuesBitForBit) {
  for (const Case& c : cases()) {
    for (const DType dtype : {float32, bfloat16}) {
      const Tensor start = random({41}, 1, float32).to(dtype);
      Tensor one = leaf(start), two = leaf(start);
      const auto a = c.make({{"layer.weight", one}});
      const auto run = [&](optim::Optimizer& optimizer, Tensor& weight, uint64_t from, uint64_t to) {
        for (uint64_t step = from; step < to; ++step) {
          weight.set_grad(random({41}, 100 + step).to(dtype));
          optimizer.step({.max_norm = 3, .skip_non_finite = true});
        }
      };
      run(*a, one, 0, 5);
      two.set_requires_grad(false);
      two.copy_(one.detach());
      two.set_requires_grad(true);
      StateView saved;
      for (const NamedTensor& entry : a->state_dict()) saved.push_back({entry.name, entry.tensor.clone()});
      const auto b = c.make({{"layer.weight", two}});
      b->load_state_dict(saved);
      run(*a, one, 5, 10);
      run(*b, two, 5, 10);
      EXPECT_EQ(one.to_vector<float>(), two.to_vector<float>()) << c.name << " " << name_of(dtype);
      const StateView x = a->state_dict(), y = b->state_dict();
      ASSERT_EQ(x.size(), y.size());
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(x[i].name, y[i].name);
        EXPECT_EQ(x[i].tensor.to_vector<double>(), y[i].tensor.to_vector<double>()) << x[i].name;
      }
    }
  }
}

/// The same with compensation, which is part of the state; a resumed run without it would differ.
TEST(Optimizer, KahanResumesBitForBit) {
  Tensor one = leaf(random({1037}, 1).to(bfloat16));
  const optim::AdamWOptions options{.lr = 1e-3, .master_weights = false, .kahan = true};
  const auto run = [&](optim::Optimizer& optimizer, Tensor& weight, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step < to; ++step) {
      weight.set_grad(random({1037}, 100 + step).to(bfloat16));
      optimizer.step({.max_norm = 3, .skip_non_finite = true});
    }
  };
  optim::AdamW a({{"w", one}}, options);
  run(a, one, 0, 5);
  StateView saved;
  for (const NamedTensor& entry : a.state_dict()) saved.push_back({entry.name, entry.tensor.clone()});
  EXPECT_EQ(find(saved, "compensation.w").dtype(), bfloat16);
  EXPECT_FALSE(find(saved, "master.w").defined());
  const auto rest = find(saved, "compensation.w").to_vector<double>();
  EXPECT_GT(std::count_if(rest.begin(), rest.end(), [](double v) { return v != 0; }), 900);
  Tensor two = leaf(one.detach()), without = leaf(one.detach());
  optim::AdamW b({{"w", two}}, options), c({{"w", without}}, options);
  b.load_state_dict(saved);
  find(saved, "compensation.w").fill_(0);
  c.load_state_dict(saved);
  run(a, one, 5, 12);
  run(b, two, 5, 12);
  run(c, without, 5, 12);
  EXPECT_EQ(one.to_vector<float>(), two.to_vector<float>());
  EXPECT_EQ(find(a.state_dict(), "compensation.w").to_vector<float>(),
            find(b.state_dict(), "compensation.w").to_vector<float>());
  EXPECT_NE(one.to_vector<float>(), without.to_vector<float>());
}

TEST(Optimizer, KahanIsForBf16WithoutCopies) {
  Tensor w = leaf(ones({3}).to(bfloat16)), f = leaf(ones({3})), h = leaf(ones({3}).to(float16));
  expect_contains(error_of([&] { optim::AdamW({{"w", w}}, {.kahan = true}); }), {"adamw", "master_weights = false"});
  for (Tensor& other : {std::ref(f), std::ref(h)})
    expect_contains(error_of([&] {
                      optim::SGD({{"w", w}, {"head", other}}, {.master_weights = false, .kahan = true});
                    }),
                    {"sgd", "bfloat16", "'head'", name_of(other.dtype())});
  // A skipped step leaves the compensation unchanged too.
  optim::Adam optimizer({{"w", w}}, {.master_weights = false, .kahan = true});
  w.set_grad(full({3}, 0.37).to(bfloat16));
  optimizer.step();
  const auto before = find(optimizer.state_dict(), "compensation.w").to_vector<float>();
  w.set_grad(full({3}, NAN).to(bfloat16));
  EXPECT_TRUE(optimizer.step({.skip_non_finite = true}).skipped());
  EXPECT_EQ(find(optimizer.state_dict(), "compensation.w").to_vector<float>(), before);
}

/// Rates in device memory follow every change of the rate; the results are bit-equal.
TEST(Optimizer, CapturableIsTheSame) {
  const auto run = [](bool capturable) {
    Tensor a = leaf(random({41}, 1)), b = leaf(random({7}, 2));
    const std::vector<optim::ParameterGroup> groups = {{{{"a", a}}, {}, {}}, {{{"b", b}}, 0.5, {}}};
    optim::AdamW adam(groups, {.lr = 0.01, .capturable = capturable});
    optim::SGD sgd(groups, {.lr = 0.01, .momentum = 0.9, .capturable = capturable});
    std::vector<std::vector<float>> weights;
    for (uint64_t step = 0; step < 6; ++step) {
      a.set_grad(random({41}, 10 + step));
      b.set_grad(random({7}, 20 + step));
      for (optim::Optimizer* optimizer :
           {static_cast<optim::Optimizer*>(&adam), static_cast<optim::Optimizer*>(&sgd)}) {
        if (step == 4) optimizer->set_lr(0.3);
        optimizer->set_lr_factor(1.0 / static_cast<double>(step + 1));
        optimizer->step();
      }
      weights.push_back(a.to_vector<float>());
      weights.push_back(b.to_vector<float>());
    }
    return weights;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Optimizer, StateNamesDoNotDependOnTime) {
  Tensor a = leaf(ones({2})), b = leaf(ones({3}).to(bfloat16));
  optim::AdamW optimizer({{"a", a}, {"b", b}}, {.amsgrad = true});
  const auto names = [&] {
    std::vector<std::string> result;
    for (const NamedTensor& entry : optimizer.state_dict()) result.push_back(entry.name);
    return result;
  };
  const std::vector<std::string> expected = {"step.a",           "exp_avg.a",        "exp_avg_sq.a",
                                             "max_exp_avg_sq.a", "step.b",           "exp_avg.b",
                                             "exp_avg_sq.b",     "max_exp_avg_sq.b", "master.b"};
  EXPECT_EQ(names(), expected);
  a.set_grad(ones({2}));
  optimizer.step();
  EXPECT_EQ(names(), expected);
  EXPECT_EQ(find(optimizer.state_dict(), "exp_avg.b").dtype(), float32);
  EXPECT_EQ(find(optimizer.state_dict(), "step.a").dtype(), int64);
  optim::SGD plain({{"a", a}}), momentum({{"a", a}}, {.momentum = 0.9});
  EXPECT_EQ(plain.state_dict().size(), 1u);
  EXPECT_EQ(momentum.state_dict()[1].name, "momentum_buffer.a");
}

TEST(Optimizer, LoadListsEveryProblemAndWritesNothing) {
  Tensor a = leaf(ones({2})), b = leaf(ones({3}));
  optim::AdamW optimizer({{"a", a}, {"b", b}});
  a.set_grad(ones({2}));
  optimizer.step();
  StateView state;
  for (const NamedTensor& entry : optimizer.state_dict()) {
    if (entry.name == "exp_avg.a" || entry.name == "step.b") continue;
    state.push_back({entry.name, entry.name == "exp_avg_sq.b" ? ones({4}) : full(entry.tensor.shape(), 5)});
  }
  state.push_back({"exp_avg.c", ones({1})});
  std::vector<std::vector<double>> before;
  for (const NamedTensor& entry : optimizer.state_dict()) before.push_back(entry.tensor.to_vector<double>());
  expect_contains(error_of([&] { optimizer.load_state_dict(state); }),
                  {"exp_avg.a", "step.b", "exp_avg_sq.b", "exp_avg.c"});
  size_t i = 0;
  for (const NamedTensor& entry : optimizer.state_dict()) EXPECT_EQ(entry.tensor.to_vector<double>(), before[i++]);

  StateView negative = optimizer.state_dict();
  negative[0].tensor = full({1}, -1, {.dtype = int64});
  expect_contains(error_of([&] { optimizer.load_state_dict(negative); }), {"step.a", "-1"});
}

TEST(Optimizer, MasterWeightsKeepSmallUpdates) {
  for (const DType dtype : {bfloat16, float16}) {
    Tensor with = leaf(ones({5}).to(dtype)), without = leaf(ones({5}).to(dtype));
    optim::SGD a({{"w", with}}, {.lr = 1e-5}), b({{"w", without}}, {.lr = 1e-5, .master_weights = false});
    for (int step = 0; step < 1000; ++step) {
      with.set_grad(ones({5}).to(dtype));
      without.set_grad(ones({5}).to(dtype));
      a.step();
      b.step();
    }
    EXPECT_EQ(without.to_vector<double>()[4], 1);  // each update is less than half a step of the format
    EXPECT_FALSE(find(b.state_dict(), "master.w").defined());
    const auto master = find(a.state_dict(), "master.w").to_vector<double>();
    EXPECT_NEAR(master[4], 0.99, 1000 * 0x1p-25);  // each sum is rounded to fp32, below 1
    EXPECT_EQ(with.to_vector<double>(), find(a.state_dict(), "master.w").to(dtype).to_vector<double>());
  }
}

TEST(Optimizer, GradientsMayHaveAnotherType) {
  Tensor w = leaf(random({37}, 1));
  const auto start = w.to_vector<double>();
  optim::SGD optimizer({{"w", w}}, {.lr = 0.5});
  const Tensor gradient = random({37}, 2).to(bfloat16);
  w.set_grad(gradient);
  optimizer.step();
  const auto g = gradient.to_vector<double>(), end = w.to_vector<double>();
  // The product is exact; the difference is rounded once.
  for (size_t i = 0; i < g.size(); ++i)
    EXPECT_EQ(end[i], static_cast<double>(static_cast<float>(start[i] - 0.5 * g[i]))) << i;
}

}  // namespace
}  // namespace tern
