// GradScaler against an independent version of the rules of torch.amp.GradScaler and DeepSpeed, in plain numbers.

#include "tern/optim/grad_scaler.h"

#include "tern/tests/optim/optim_test.h"

namespace tern::optim {
namespace {

using test::expect_error;
using Doubles = std::vector<double>;

struct Model {
  Tensor w = from_vector(std::vector<float>{1, -2, 3}, {3}).set_requires_grad(true);
  std::vector<NamedTensor> parameters() const { return {{"w", w}}; }
  /// sum(w * c): the gradient is c.
  Tensor loss(const std::vector<float>& c) const { return sum(mul(w, from_vector(c, {3}))); }
  Doubles weights() const { return w.to_vector<double>(); }
  Doubles gradient() const { return w.grad().to_vector<double>(); }
};

/// A model in training by SGD with a scaler.
struct Training : Model {
  SGD optimizer;
  GradScaler scaler;
  explicit Training(const GradScalerOptions& options = {}, double lr = 1)
      : optimizer(parameters(), {.lr = lr}), scaler(options) {}
  void backward(const std::vector<float>& c) { scaler.scale(loss(c)).backward(); }
  StepResult step(const std::vector<float>& c) {
    backward(c);
    const StepResult result = scaler.step(optimizer);
    optimizer.zero_grad();
    scaler.update();
    return result;
  }
};

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

/// A training whose gradients overflow at random steps.
template <class Rule>
GradScaler follow(const GradScalerOptions& options, Rule rule, double overflow_probability, int steps) {
  std::mt19937_64 random = fresh_random();
  std::bernoulli_distribution overflows(overflow_probability);
  Training training(options, 0.5);
  int64_t skipped = 0;
  for (int i = 0; i < steps; ++i) {
    const bool overflow = overflows(random);
    const Doubles before = training.weights(), gradient = {1, 2, -4};
    EXPECT_EQ(training.step({1, 2, overflow ? INFINITY : -4}).skipped(), overflow);
    rule.update(overflow);
    skipped += overflow;
    EXPECT_EQ(training.scaler.current_scale(), rule.scale) << i;
    const Doubles after = training.weights();
    for (size_t k = 0; k < 3; ++k) EXPECT_EQ(after[k], before[k] - (overflow ? 0 : 0.5 * gradient[k]));
  }
  EXPECT_EQ(training.scaler.skipped(), skipped);
  return training.scaler;
}

TEST(GradScalerTest, FollowsPyTorch) {
  for (const double probability : {0.0, 0.1, 0.5}) {
    follow({.init_scale = 1024, .growth_interval = 3}, TorchRule{1024, 2, 0.5, 3}, probability, 200);
    follow({.init_scale = 64, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 1},
           TorchRule{64, 4, 0.25, 1}, probability, 30);  // with more steps the scaled gradients overflow
  }
}

TEST(GradScalerTest, FollowsDeepSpeed) {
  for (const bool consecutive : {false, true})
    for (const double probability : {0.0, 0.2, 0.6}) {
      GradScalerOptions options = GradScalerOptions::deepspeed();
      options.init_scale = 256;
      options.growth_interval = 4;
      options.consecutive_hysteresis = consecutive;
      options.max_skipped_in_row = 1000;
      options.error_at_min_scale = false;
      follow(options, DeepSpeedRule{256, 2, 1, 4, 2, consecutive}, probability, 60);
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
      EXPECT_EQ(scaled.gradient()[0], 3 * 4096);
      if (way == 1) {
        scaler.unscale(a);
        EXPECT_EQ(scaled.gradient()[0], 3);
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
      EXPECT_EQ(scaled.weights(), plain.weights()) << way << " " << i;
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
    if (i == 0) expect_error([&] { scaler.unscale(optimizer); }, {"16-bit gradients"});
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
  Training training;
  GradScaler& scaler = training.scaler;
  const auto step = [&] { scaler.step(training.optimizer); };
  const auto unscale = [&] { scaler.unscale(training.optimizer); };
  const auto clip = [&](double norm) { return [&, norm] { scaler.clip_grad_norm(training.optimizer, norm); }; };
  expect_error(step, {"before any scale"});
  expect_error(unscale, {"before any scale"});
  expect_error([&] { scaler.update(); }, {"no inf checks were recorded prior to update"});
  const Tensor loss = scaler.scale(training.loss({1, 1, 1}));
  expect_error(step, {"no inf checks were recorded for this optimizer"});
  loss.backward();
  unscale();
  expect_error(unscale, {"unscale() has already been called on this optimizer since the last update()"});
  expect_error(clip(0), {"clip_grad_norm() takes a positive norm"});
  step();
  expect_error(step, {"step() has already been called since the last update()"});
  expect_error(unscale, {"unscale() is being called after step()"});
  expect_error(clip(1), {"clip_grad_norm() is being called after step()"});
  scaler.update();
  expect_error([&] { scaler.update(); }, {"no inf checks were recorded prior to update"});
  expect_error([&] { scaler.scale(from_vector(std::vector<int64_t>{1}, {1})); }, {"floating tensor"});
  using O = GradScalerOptions;
  for (const O& bad : {O{.init_scale = 0}, O{.init_scale = INFINITY}, O{.growth_factor = 1}, O{.backoff_factor = 1},
                       O{.backoff_factor = 0}, O{.growth_interval = 0}, O{.hysteresis = 0}, O{.min_scale = -1},
                       O{.init_scale = 1, .min_scale = 2}, O{.growth_factor = NAN}})
    EXPECT_THROW(GradScaler{bad}, Error);
}

TEST(GradScalerTest, ManySkipsInARowAreAnError) {
  Training training({.max_skipped_in_row = 5});
  const Doubles before = training.weights();
  const auto step = [&] { training.step({1, NAN, 1}); };
  for (int i = 0; i < 5; ++i) step();
  expect_error(step, {"6 updates in a row were skipped"});
  EXPECT_EQ(training.weights(), before);
}

/// DeepSpeed ends the run at an overflow with the minimum scale and no hysteresis left.
TEST(GradScalerTest, AnOverflowAtTheLeastScaleIsAnError) {
  GradScalerOptions options = GradScalerOptions::deepspeed();
  options.init_scale = 4;
  Training training(options);
  const auto step = [&] { training.step({1, INFINITY, 1}); };
  for (const double scale : {4, 2, 1}) {
    step();
    EXPECT_EQ(training.scaler.current_scale(), scale);
  }
  expect_error(step, {"the scale is 1, the least that min_scale allows"});
  expect_error([&] { training.scaler.check(); }, {"try bf16 or fp32"});
}

/// Gradients of several scaled losses add up.
TEST(GradScalerTest, SeveralLosses) {
  Training training({.init_scale = 32});
  training.backward({1, 0, 2});
  training.backward({0, 1, 3});
  EXPECT_EQ(training.gradient(), (Doubles{32, 32, 160}));
  training.scaler.step(training.optimizer);
  training.scaler.update();
  EXPECT_EQ(training.weights(), (Doubles{0, -3, -2}));
}

/// Two optimizers share one scale. unscale()'s finding decides, even if the caller then makes the gradient finite
/// (torch's found_inf is from unscale_).
TEST(GradScalerTest, AnOverflowSkipsItsOptimizerOnly) {
  for (const bool unscaled : {false, true}) {
    SCOPED_TRACE(unscaled);
    Training training({.init_scale = 8});
    GradScaler& scaler = training.scaler;
    Model other;
    SGD b(other.parameters(), {.lr = 1});
    const Doubles before = training.weights();
    scaler.scale(add(training.loss({1, INFINITY, 1}), other.loss({1, 2, 3}))).backward();
    if (unscaled) {
      scaler.unscale(training.optimizer);
      clip_grad_value(training.parameters(), 1);
      EXPECT_EQ(training.gradient(), (Doubles{1, 1, 1}));
    }
    EXPECT_TRUE(scaler.step(training.optimizer).skipped());
    EXPECT_FALSE(scaler.step(b).skipped());
    scaler.update();
    EXPECT_EQ(scaler.current_scale(), 4);
    EXPECT_EQ(training.weights(), before);
    EXPECT_EQ(other.weights(), (Doubles{0, -4, 0}));
    // unscale() alone is enough for an update, as in PyTorch.
    training.optimizer.zero_grad();
    training.backward({1, INFINITY, 1});
    scaler.unscale(training.optimizer);
    scaler.update();
    EXPECT_EQ(scaler.current_scale(), 2);
  }
}

TEST(GradScalerTest, StateDict) {
  const GradScaler scaler = follow({.init_scale = 32, .growth_interval = 7}, TorchRule{32, 2, 0.5, 7}, 0.3, 40);
  const StateView state = scaler.state_dict();
  GradScaler restored({.init_scale = 5, .growth_interval = 9});
  restored.load_state_dict(state);
  EXPECT_EQ(restored.current_scale(), scaler.current_scale());
  EXPECT_EQ(restored.skipped(), scaler.skipped());
  EXPECT_EQ(test::names_of(restored.state_dict()), test::names_of(state));
  EXPECT_EQ(test::values_of(restored.state_dict()), test::values_of(state));
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

TEST(GradScalerTest, TakesPyTorchsState) {
  GradScaler scaler({.init_scale = 8, .hysteresis = 3});
  const auto one = [](double value, DType dtype = float64) { return full({1}, value, {.dtype = dtype}); };
  scaler.load_state_dict({{"scale", one(512)},
                          {"growth_factor", one(4)},
                          {"backoff_factor", one(0.25)},
                          {"growth_interval", one(100, int64)},
                          {"_growth_tracker", one(7, int64)}});
  EXPECT_EQ(scaler.current_scale(), 512);
  EXPECT_EQ(test::values_of(scaler.state_dict()), (test::Values{{512}, {4}, {0.25}, {100}, {7}, {2}, {0}, {0}}));
}

TEST(GradScalerTest, ALoadedIntervalDecidesWhenTheScaleGrows) {
  Training training({.init_scale = 8, .growth_interval = 100});
  const auto one = [](double value, DType dtype = float64) { return full({1}, value, {.dtype = dtype}); };
  training.scaler.load_state_dict({{"scale", one(16)},
                                   {"growth_factor", one(4)},
                                   {"backoff_factor", one(0.25)},
                                   {"growth_interval", one(3, int64)},
                                   {"_growth_tracker", one(1, int64)}});
  training.step({1, 1, 1});
  EXPECT_EQ(training.scaler.current_scale(), 16);
  training.step({1, 1, 1});
  EXPECT_EQ(training.scaler.current_scale(), 64);
  training.step({1, INFINITY, 1});
  EXPECT_EQ(training.scaler.current_scale(), 16);
}

TEST(GradScalerTest, DisabledChangesNothing) {
  Training with({.enabled = false}, 0.1);
  Model without;
  SGD b(without.parameters(), {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    with.backward({1, 2, 3});
    with.scaler.unscale(with.optimizer);
    if (i == 1) with.scaler.clip_grad_norm(with.optimizer, 1);  // for this step only
    with.scaler.step(with.optimizer);
    with.scaler.update();
    without.loss({1, 2, 3}).backward();
    b.step({.max_norm = i == 1 ? 1.0 : 0});
    with.optimizer.zero_grad();
    b.zero_grad();
  }
  EXPECT_EQ(with.weights(), without.weights());
}

}  // namespace
}  // namespace tern::optim
