// GradScaler against an independent version of the rules of torch.amp.GradScaler and DeepSpeed, in plain numbers.

#include "tern/optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tern/core/ops/ops.h"
#include "tern/optim/adam.h"
#include "tern/optim/clip.h"
#include "tern/optim/sgd.h"
#include "tern/tests/support/seed.h"

namespace tern::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Model {
  Tensor w = from_vector(std::vector<float>{1, -2, 3}, {3}).set_requires_grad(true);
  std::vector<NamedTensor> parameters() const { return {{"w", w}}; }
  /// sum(w * c): the gradient is c.
  Tensor loss(const std::vector<float>& c) const { return sum(mul(w, from_vector(c, {3}))); }
};

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_error(const std::string& part, const std::function<void()>& fn) {
  const std::string message = message_of(fn);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

/// The rules of torch/amp/grad_scaler.py's update and of DeepSpeed's DynamicLossScaler.update_scale.
struct TorchRule {
  double scale, growth, backoff;
  int64_t interval, good = 0;
  void update(bool overflow) {
    if (overflow) {
      scale *= backoff;
      good = 0;
    } else if (++good == interval) {
      if (std::isfinite(static_cast<float>(scale * growth))) scale *= growth;
      good = 0;
    }
  }
};
struct DeepSpeedRule {
  double scale, factor, minimum;
  int64_t window, delayed_shift;
  bool consecutive;
  int64_t iteration = 0, last_overflow = -1, hysteresis = delayed_shift;
  void update(bool overflow) {
    if (overflow) {
      if (delayed_shift == 1 || hysteresis == 1)
        scale = std::max(scale / factor, minimum);
      else
        --hysteresis;
      last_overflow = iteration;
    } else {
      if (consecutive) hysteresis = delayed_shift;
      if ((iteration - last_overflow) % window == 0) {
        if (!consecutive) hysteresis = delayed_shift;
        scale *= factor;
      }
    }
    ++iteration;
  }
};

template <class Rule>
void follow(GradScaler& scaler, Rule& rule, double overflow_probability, int steps) {
  std::mt19937_64 random = fresh_random();
  std::bernoulli_distribution overflows(overflow_probability);
  Model model;
  SGD optimizer(model.parameters(), {.lr = 0.5});
  int64_t skipped = 0;
  for (int i = 0; i < steps; ++i) {
    const bool overflow = overflows(random);
    const std::vector<double> before = model.w.to_vector<double>();
    scaler.scale(model.loss({1, 2, overflow ? static_cast<float>(kInfinity) : -4})).backward();
    const StepResult result = scaler.step(optimizer);
    EXPECT_EQ(result.skipped(), overflow);
    scaler.update();
    optimizer.zero_grad();
    rule.update(overflow);
    skipped += overflow;
    ASSERT_EQ(scaler.current_scale(), rule.scale) << i;
    const std::vector<double> after = model.w.to_vector<double>(), gradient = {1, 2, -4};
    for (size_t k = 0; k < 3; ++k) EXPECT_EQ(after[k], before[k] - (overflow ? 0 : 0.5 * gradient[k]));
  }
  EXPECT_EQ(scaler.skipped(), skipped);
}

TEST(GradScalerTest, FollowsPyTorch) {
  for (const double probability : {0.0, 0.1, 0.5}) {
    GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
    TorchRule rule{1024, 2, 0.5, 3};
    follow(scaler, rule, probability, 200);
    GradScaler other({.init_scale = 64, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 1});
    TorchRule other_rule{64, 4, 0.25, 1};
    follow(other, other_rule, probability, 30);  // with more steps the scaled gradients overflow
  }
}

TEST(GradScalerTest, FollowsDeepSpeed) {
  for (const bool consecutive : {false, true}) {
    for (const double probability : {0.0, 0.2, 0.6}) {
      GradScalerOptions options = GradScalerOptions::deepspeed();
      options.init_scale = 256;
      options.growth_interval = 4;
      options.consecutive_hysteresis = consecutive;
      options.max_skipped_in_row = 1000;
      options.error_at_min_scale = false;
      GradScaler scaler(options);
      DeepSpeedRule rule{256, 2, 1, 4, 2, consecutive};
      follow(scaler, rule, probability, 60);
    }
  }
}

TEST(GradScalerTest, UnscalesAndClipsAsWithoutScale) {
  for (const int way : {0, 1, 2}) {
    Model scaled, plain;
    AdamW a(scaled.parameters(), {.lr = 0.1}), b(plain.parameters(), {.lr = 0.1});
    GradScaler scaler({.init_scale = 4096});
    for (int i = 0; i < 5; ++i) {
      const std::vector<float> c = {3, static_cast<float>(-i), 4};
      scaler.scale(scaled.loss(c)).backward();
      EXPECT_EQ(scaled.w.grad().to_vector<double>()[0], 3 * 4096);
      if (way == 1) {
        scaler.unscale(a);
        EXPECT_EQ(scaled.w.grad().to_vector<double>()[0], 3);
      }
      const bool clips = way > 0 && i != 3;  // a limit applies to one step
      if (clips) scaler.clip_grad_norm(a, 1.5);
      const StepResult result = scaler.step(a);
      scaler.update();
      plain.loss(c).backward();
      const StepResult expected = b.step({.max_norm = clips ? 1.5 : 0, .skip_non_finite = true});
      EXPECT_EQ(result.grad_norm(), expected.grad_norm());  // a scale that is a power of two causes no rounding
      a.zero_grad();
      b.zero_grad();
      EXPECT_EQ(scaled.w.to_vector<double>(), plain.w.to_vector<double>()) << way << " " << i;
    }
  }
}

TEST(GradScalerTest, SixteenBitWeightsWithMasterCopies) {
  const Tensor w = from_vector(std::vector<float>{1, -2, 3}, {3}).to(float16).detach().set_requires_grad(true);
  SGD optimizer({{{{"w", w}}}}, {.lr = 1e-4, .master_weights = true});
  GradScaler scaler({.init_scale = 1024});
  for (int i = 0; i < 64; ++i) {
    scaler.scale(sum(w.to(float32))).backward();
    EXPECT_EQ(w.grad().dtype(), float16);
    if (i == 0) expect_error("16-bit gradients", [&] { scaler.unscale(optimizer); });
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  }
  // Each update is below half a unit of fp16 at 3, so only the master copies can have accumulated them. The copy is
  // wrong by at most half a unit of fp32 for each step, and the weight by half a unit of fp16, 2^-10.
  EXPECT_NEAR(w.to_vector<double>()[2], 3 - 64e-4, 0x1p-10 + 64 * 0x1p-23);
  EXPECT_LT(w.to_vector<double>()[2], 3);
}

TEST(GradScalerTest, OutOfOrderUse) {
  Model model;
  SGD optimizer(model.parameters(), {.lr = 1});
  GradScaler scaler;
  expect_error("before any scale", [&] { scaler.step(optimizer); });
  expect_error("before any scale", [&] { scaler.unscale(optimizer); });
  expect_error("no inf checks were recorded prior to update", [&] { scaler.update(); });
  const Tensor loss = scaler.scale(model.loss({1, 1, 1}));
  expect_error("no inf checks were recorded for this optimizer", [&] { scaler.step(optimizer); });
  loss.backward();
  scaler.unscale(optimizer);
  expect_error("unscale() has already been called on this optimizer since the last update()",
               [&] { scaler.unscale(optimizer); });
  expect_error("clip_grad_norm() takes a positive norm", [&] { scaler.clip_grad_norm(optimizer, 0); });
  scaler.step(optimizer);
  expect_error("step() has already been called since the last update()", [&] { scaler.step(optimizer); });
  expect_error("unscale() is being called after step()", [&] { scaler.unscale(optimizer); });
  expect_error("clip_grad_norm() is being called after step()", [&] { scaler.clip_grad_norm(optimizer, 1); });
  scaler.update();
  expect_error("no inf checks were recorded prior to update", [&] { scaler.update(); });
  expect_error("floating tensor", [&] { scaler.scale(from_vector(std::vector<int64_t>{1}, {1})); });
  using O = GradScalerOptions;
  for (const O& bad : {O{.init_scale = 0}, O{.init_scale = kInfinity}, O{.growth_factor = 1}, O{.backoff_factor = 1},
                       O{.backoff_factor = 0}, O{.growth_interval = 0}, O{.hysteresis = 0}, O{.min_scale = -1},
                       O{.init_scale = 1, .min_scale = 2}, O{.growth_factor = std::nan("")}})
    EXPECT_THROW(GradScaler{bad}, Error);
}

TEST(GradScalerTest, ManySkipsInARowAreAnError) {
  Model model;
  SGD optimizer(model.parameters(), {.lr = 1});
  GradScaler scaler({.max_skipped_in_row = 5});
  const std::vector<double> before = model.w.to_vector<double>();
  const auto step = [&] {
    scaler.scale(model.loss({1, static_cast<float>(std::nan("")), 1})).backward();
    scaler.step(optimizer);
    optimizer.zero_grad();
    scaler.update();
  };
  for (int i = 0; i < 5; ++i) step();
  expect_error("6 updates in a row were skipped", step);
  EXPECT_EQ(model.w.to_vector<double>(), before);
}

TEST(GradScalerTest, TwoOptimizersShareOneScale) {
  Model one, two;
  SGD a(one.parameters(), {.lr = 1}), b(two.parameters(), {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  scaler.scale(add(one.loss({1, 1, 1}), two.loss({1, static_cast<float>(kInfinity), 1}))).backward();
  EXPECT_FALSE(scaler.step(a).skipped());
  EXPECT_TRUE(scaler.step(b).skipped());
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 4);
  EXPECT_EQ(one.w.to_vector<double>()[0], 0);
  EXPECT_EQ(two.w.to_vector<double>()[0], 1);
}

/// Gradients of several scaled losses add up.
TEST(GradScalerTest, SeveralLosses) {
  Model model;
  SGD optimizer(model.parameters(), {.lr = 1});
  GradScaler scaler({.init_scale = 32});
  scaler.scale(model.loss({1, 0, 2})).backward();
  scaler.scale(model.loss({0, 1, 3})).backward();
  EXPECT_EQ(model.w.grad().to_vector<double>(), (std::vector<double>{32, 32, 160}));
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(model.w.to_vector<double>(), (std::vector<double>{0, -3, -2}));
}

TEST(GradScalerTest, StateDict) {
  GradScaler scaler({.init_scale = 32, .growth_interval = 7});
  TorchRule rule{32, 2, 0.5, 7};
  follow(scaler, rule, 0.3, 40);
  const StateView state = scaler.state_dict();
  GradScaler restored({.init_scale = 5, .growth_interval = 9});
  restored.load_state_dict(state);
  EXPECT_EQ(restored.current_scale(), scaler.current_scale());
  EXPECT_EQ(restored.skipped(), scaler.skipped());
  const StateView again = restored.state_dict();
  ASSERT_EQ(again.size(), state.size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(again[i].name, state[i].name);
    EXPECT_EQ(again[i].tensor.to_vector<double>(), state[i].tensor.to_vector<double>()) << state[i].name;
  }
  StateView bad = state;
  bad[0].tensor = full({1}, -1.0, {.dtype = float64});
  EXPECT_THROW(restored.load_state_dict(bad), Error);
  bad.pop_back();
  EXPECT_THROW(restored.load_state_dict(bad), Error);
  EXPECT_EQ(restored.current_scale(), scaler.current_scale());
  GradScaler off({.enabled = false});
  EXPECT_TRUE(off.state_dict().empty());
  off.load_state_dict({});
  EXPECT_THROW(off.load_state_dict(state), Error);
}

/// DeepSpeed ends the run at an overflow with the minimum scale and no hysteresis left.
TEST(GradScalerTest, AnOverflowAtTheLeastScaleIsAnError) {
  Model model;
  SGD optimizer(model.parameters(), {.lr = 1});
  GradScalerOptions options = GradScalerOptions::deepspeed();
  options.init_scale = 4;
  GradScaler scaler(options);
  const auto step = [&] {
    scaler.scale(model.loss({1, static_cast<float>(kInfinity), 1})).backward();
    scaler.step(optimizer);
    optimizer.zero_grad();
    scaler.update();
  };
  for (const double scale : {4, 2, 1}) {
    step();
    EXPECT_EQ(scaler.current_scale(), scale);
  }
  expect_error("the scale is 1, the least that min_scale allows", step);
  expect_error("try bf16 or fp32", [&] { scaler.check(); });
}

/// unscale()'s finding decides, even if the caller then makes the gradient finite (torch's found_inf is from unscale_).
TEST(GradScalerTest, UnscaleRemembersOverflows) {
  Model model, other;
  SGD a(model.parameters(), {.lr = 1}), b(other.parameters(), {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  const auto before = model.w.to_vector<double>();
  scaler.scale(add(model.loss({1, static_cast<float>(kInfinity), 1}), other.loss({1, 2, 3}))).backward();
  scaler.unscale(a);
  clip_grad_value(model.parameters(), 1);
  EXPECT_EQ(model.w.grad().to_vector<double>(), (std::vector<double>{1, 1, 1}));
  EXPECT_TRUE(scaler.step(a).skipped());
  EXPECT_FALSE(scaler.step(b).skipped());
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 4);
  EXPECT_EQ(model.w.to_vector<double>(), before);
  EXPECT_EQ(other.w.to_vector<double>(), (std::vector<double>{0, -4, 0}));
  // unscale() alone is enough for an update, as in PyTorch.
  a.zero_grad();
  scaler.scale(model.loss({1, static_cast<float>(kInfinity), 1})).backward();
  scaler.unscale(a);
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 2);
}

TEST(GradScalerTest, TakesPyTorchsState) {
  GradScaler scaler({.init_scale = 8, .hysteresis = 3});
  const auto one = [](double value) { return full({1}, value, {.dtype = float64}); };
  scaler.load_state_dict({{"scale", one(512)},
                          {"growth_factor", one(4)},
                          {"backoff_factor", one(0.25)},
                          {"growth_interval", full({1}, 100, {.dtype = int64})},
                          {"_growth_tracker", full({1}, 7, {.dtype = int64})}});
  EXPECT_EQ(scaler.current_scale(), 512);
  const StateView state = scaler.state_dict();
  const std::vector<double> expected = {512, 4, 0.25, 100, 7, 2, 0, 0};
  ASSERT_EQ(state.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(state[i].tensor.item<double>(), expected[i]) << state[i].name;
}

TEST(GradScalerTest, DisabledChangesNothing) {
  Model with, without;
  SGD a(with.parameters(), {.lr = 0.1}), b(without.parameters(), {.lr = 0.1});
  GradScaler scaler({.enabled = false});
  for (int i = 0; i < 3; ++i) {
    scaler.scale(with.loss({1, 2, 3})).backward();
    scaler.unscale(a);
    if (i == 1) scaler.clip_grad_norm(a, 1);  // for this step only
    scaler.step(a);
    scaler.update();
    without.loss({1, 2, 3}).backward();
    b.step({.max_norm = i == 1 ? 1.0 : 0});
    a.zero_grad();
    b.zero_grad();
  }
  EXPECT_EQ(with.w.to_vector<double>(), without.w.to_vector<double>());
}

}  // namespace
}  // namespace tern::optim
