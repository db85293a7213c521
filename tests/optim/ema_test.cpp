// Moving averages of the weights against a loop in double; skipped steps, swapping with the weights, state.

#include "tern/optim/ema.h"

#include "tern/optim/gradient_norm.h"
#include "tern/tests/optim/optim_test.h"

namespace tern::test {
namespace {

/// Parameters of every dtype with random gradients, an optimizer and the averages.
class Training {
 public:
  explicit Training(const optim::EmaOptions& options = {.decay = 0.8}, uint64_t salt = 0)
      : generator_(fresh_generator(salt)) {
    for (const auto& [dtype, shape] : {std::pair(float32, Shape{7, 3}),
                                       {float64, Shape{5}},
                                       {bfloat16, Shape{33}},
                                       {float16, Shape{2, 2}},
                                       {float32, Shape{0}}}) {
      const Tensor tensor = randn(shape, generator_, {.dtype = dtype, .requires_grad = true});
      parameters.push_back({std::string(1, static_cast<char>('a' + parameters.size())), tensor});
    }
    optimizer.emplace(parameters, optim::AdamWOptions{.lr = 0.1});
    ema.emplace(parameters, options);
  }

  optim::StepResult step(double factor = 1, const optim::StepOptions& options = {.skip_non_finite = true}) {
    for (const NamedTensor& p : parameters)
      Tensor(p.tensor).set_grad(randn(p.tensor.shape(), generator_, {.dtype = p.tensor.dtype()}) * factor);
    return optimizer->step(options);
  }
  void update(int steps) {
    for (int i = 0; i < steps; ++i) ema->update(step());
  }
  Values weights() const { return values_of(parameters); }
  Values averages() const { return values_of(ema->state_dict()); }

  StateView parameters;
  std::optional<optim::AdamW> optimizer;
  std::optional<optim::EMA> ema;

 private:
  Generator generator_;
};

/// The mean, computed from all weights at the end.
TEST(Ema, EqualAveragesAreTheMean) {
  Training training({.equal = true});
  Values sums(training.parameters.size());
  for (int n = 1; n <= 20; ++n) {
    training.ema->update(training.step());
    for (size_t p = 0; p < sums.size(); ++p) {
      const auto weight = training.parameters[p].tensor.to_vector<double>();
      sums[p].resize(weight.size());
      for (size_t i = 0; i < weight.size(); ++i) sums[p][i] += weight[i];
    }
  }
  for (size_t p = 0; p < sums.size(); ++p) {
    const auto average = training.averages()[p + 1];
    ASSERT_EQ(average.size(), sums[p].size());
    const double unit = p == 1 ? 0x1p-53 : 0x1p-24;  // twenty steps, each of which rounds three times, of weights < 8
    for (size_t i = 0; i < average.size(); ++i)
      EXPECT_NEAR(average[i], sums[p][i] / 20, 60 * 8 * unit) << p << " " << i;
  }
}

TEST(Ema, FollowsTheWeights) {
  for (const bool warmup : {false, true}) {
    Training training({.decay = 0.8, .warmup = warmup, .warmup_gamma = 1.5, .warmup_power = 0.75});
    std::vector<std::vector<double>> expected(training.parameters.size()), bound(training.parameters.size());
    for (int n = 1; n <= 30; ++n) {
      training.ema->update(training.step());
      const double slow = 1 - std::pow(1 + (n - 1) / 1.5, -0.75);
      const double decay = n == 1 ? 0 : warmup ? std::min(0.8, slow) : 0.8;
      const StateView state = training.ema->state_dict();
      ASSERT_EQ(state[0].tensor.item<int64_t>(), n);
      for (size_t p = 0; p < expected.size(); ++p) {
        const auto weight = training.parameters[p].tensor.to_vector<double>();
        EXPECT_EQ(state[p + 1].name, "average." + training.parameters[p].name);
        EXPECT_EQ(state[p + 1].tensor.dtype(), p == 1 ? float64 : float32);
        const auto average = state[p + 1].tensor.to_vector<double>();
        const double unit = p == 1 ? 0x1p-53 : 0x1p-24;
        expected[p].resize(weight.size());
        bound[p].resize(weight.size());
        for (size_t i = 0; i < weight.size(); ++i) {
          // An update multiplies the previous error by `decay` and rounds the decay, the difference and the sum.
          const double size = std::abs(expected[p][i]) + std::abs(weight[i]);
          bound[p][i] = decay * bound[p][i] + (decay == 0 ? 0 : 5 * unit * size);
          expected[p][i] = decay * expected[p][i] + (1 - decay) * weight[i];
          ASSERT_LE(std::abs(average[i] - expected[p][i]), bound[p][i]) << n << " " << p;
        }
      }
    }
  }
}

TEST(Ema, ASkippedStepChangesNothing) {
  Training training;
  training.update(2);
  const auto before = training.averages(), weights = training.weights();
  const optim::StepResult skipped = training.step(INFINITY);
  training.ema->update(skipped);
  EXPECT_TRUE(skipped.skipped());
  EXPECT_EQ(training.weights(), weights);
  EXPECT_EQ(training.averages(), before);
  // Skipped because of the norm of an earlier pass.
  const Tensor nan = full({3}, NAN);
  training.ema->update(
      training.step(1, {.skip_non_finite = true, .earlier_norm = optim::gradient_norm({nan}, nan.device())}));
  EXPECT_EQ(training.weights(), weights);
  EXPECT_EQ(training.averages(), before);
  training.update(1);
  EXPECT_NE(training.averages(), before);
  // Without skip_non_finite neither the step nor the update is skipped.
  const auto moved = training.averages();
  training.ema->update(training.step(INFINITY, {.max_norm = 1}));
  EXPECT_NE(training.averages(), moved);
  Training other;
  other.ema->update();
  EXPECT_EQ(other.ema->state_dict()[0].tensor.item<int64_t>(), 1);
}

TEST(Ema, ASkippedStepOfTheScaler) {
  Training training;
  optim::GradScaler scaler({.init_scale = 4});
  scaler.scale(full({}, 1));
  training.update(1);
  const auto before = training.averages();
  for (const NamedTensor& p : training.parameters)
    Tensor(p.tensor).set_grad(full(p.tensor.shape(), std::nan(""), p.tensor.options()));
  training.ema->update(scaler.step(*training.optimizer));
  EXPECT_EQ(training.averages(), before);
}

TEST(Ema, TakesTheWeightsPlaceForAWhile) {
  Training training;
  training.update(5);
  const auto weights = training.weights(), averages = training.averages();
  {
    const optim::EMA::InPlace averaged = training.ema->in_place();
    const StateView state = training.ema->state_dict();
    for (size_t p = 0; p < training.parameters.size(); ++p) {
      const Tensor& parameter = training.parameters[p].tensor;
      EXPECT_EQ(parameter.to_vector<double>(), state[p + 1].tensor.to(parameter.dtype()).to_vector<double>());
    }
    EXPECT_NE(training.weights(), weights);
  }
  EXPECT_EQ(training.weights(), weights);
  EXPECT_EQ(training.averages(), averages);
  EXPECT_TRUE(training.parameters[0].tensor.requires_grad());
  training.ema->copy_to_parameters();
  EXPECT_NE(training.weights(), weights);
}

TEST(Ema, StateGoesOnWhereItWas) {
  for (const bool warmup : {false, true}) {
    const optim::EmaOptions options{.decay = 0.9, .warmup = warmup};
    Training whole(options, 5), cut(options, 5);
    whole.update(6);
    cut.update(3);
    const StateView state = copy_of(cut.ema->state_dict());
    cut.ema.emplace(cut.parameters, options);
    cut.ema->load_state_dict(state);
    cut.update(3);
    EXPECT_EQ(whole.averages(), cut.averages());
  }
}

TEST(Ema, Errors) {
  Training training;
  const StateView& p = training.parameters;
  for (const double decay : {1.0, -0.1, std::nan("")})
    expect_error([&] { optim::EMA(p, {.decay = decay}); }, {"decay must be in [0, 1)"});
  expect_error([&] { optim::EMA(p, {.warmup_gamma = 0}); }, {"warmup_gamma"});
  expect_error([&] { optim::EMA({}, {}); }, {"no parameters"});
  expect_error([&] { optim::EMA({{"n", zeros({2}, {.dtype = int64})}}, {}); }, {"'n'"});
  const auto before = training.averages();
  StateView state;
  for (const NamedTensor& entry : training.ema->state_dict()) state.push_back({entry.name, entry.tensor + 1});
  const auto refused = [&](const StateView& given, const std::string& part) {
    expect_error([&] { training.ema->load_state_dict(given); }, {part});
    EXPECT_EQ(training.averages(), before);
  };
  refused({state.begin(), state.end() - 1}, "average.e");
  StateView shaped = state, negative = state;
  shaped[1].tensor = zeros({3});
  refused(shaped, "average.a");
  negative[0].tensor = full({1}, -1, {.dtype = int64});
  refused(negative, "updates must be >= 0, got -1");
}

}  // namespace
}  // namespace tern::test
