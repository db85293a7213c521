// The learning rate range test and the search for a batch size, on models simple enough to compute by hand.

#include <cmath>

#include "tern/core/memory/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/models/trainer/batch_finder.h"
#include "tern/models/trainer/lr_finder.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"

namespace tern::models {
namespace {

/// w towards 0, with the loss w^2 or, of many columns, the mean square of x w.
class Weights final : public nn::Module {
 public:
  Weights(const nn::Scope& s, int64_t size)
      : Module(s), weight(this, "weight", Shape({size}), [](Tensor& t, Generator&) { t.fill_(1); }) {}
  Parameter weight;
};

struct Rows {
  Tensor x;
  std::vector<Tensor*> tensors() { return {&x}; }
};

class RowsTask final : public TrainingTask {
 public:
  RowsTask(Weights& module, int64_t rows, int64_t steps, int64_t epochs)
      : module_(module), rows_(rows), steps_(steps), epochs_(epochs) {}
  nn::Module& module() override { return module_; }
  int64_t epochs() const override { return epochs_; }
  int64_t steps(int64_t) const override { return steps_; }
  void begin_epoch(int64_t, const data::BatchStripe&) override { step_ = 0; }
  bool next_batch() override { return ++step_ <= steps_; }
  StepInput batch() const override {
    return {Rows{full({rows_, module_.weight.tensor().numel()}, 1)}, [this](const Rows& batch) {
              if (noise) rand({1}, module_.generator());
              const Tensor value = batch.x * module_.weight.tensor();
              return mean(value * value);
            }};
  }
  int64_t items(int64_t, int64_t) const override { return rows_; }
  int64_t examples(int64_t, int64_t) const override { return rows_; }
  bool can_validate() const override { return true; }
  Evaluation validate() override {
    ADD_FAILURE() << "a trial validates";
    return {};
  }
  bool noise = false;

 private:
  Weights& module_;
  int64_t rows_, steps_, epochs_, step_ = 0;
};

TrainOptions sgd() {
  return {.optimizer = "sgd", .lr = 7, .weight_decay = 0, .momentum = 0, .schedule = "constant", .clip = 0};
}

/// Steps of w -= 2 rate w, the losses before them and their corrected average.
TEST(LrFinder, IsTheLoopByHand) {
  Weights module(nn::Scope({.generator = test::fresh_generator(1)}), 1);
  RowsTask task(module, 1, 30, 2);
  task.noise = true;
  const uint64_t offset = module.generator().offset();
  const LrFinding found = find_lr(task, sgd(), {.lowest = 1e-4, .highest = 10, .steps = 51, .smoothing = 0.5});
  double w = 1, average = 0, least = INFINITY;
  size_t steps = 0;
  bool diverged = false;
  for (; steps < 51 && !diverged; ++steps) {
    const double rate = 1e-4 * std::pow(1e5, static_cast<double>(steps) / 50), loss = w * w;
    average = 0.5 * average + 0.5 * loss;
    const double smoothed = average / (1 - std::pow(0.5, static_cast<double>(steps + 1)));
    ASSERT_LT(steps, found.losses.size());
    EXPECT_NEAR(found.rates[steps], rate, 1e-9 * rate);
    EXPECT_NEAR(found.losses[steps], loss, 1e-3 * loss + 1e-6) << steps;
    EXPECT_NEAR(found.smoothed[steps], smoothed, 1e-3 * smoothed + 1e-6) << steps;
    least = std::min(least, smoothed);
    diverged = smoothed > 4 * least;
    w -= 2 * rate * w;
  }
  EXPECT_EQ(found.losses.size(), steps);
  EXPECT_TRUE(diverged && found.diverged && !found.interrupted);
  ASSERT_TRUE(found.suggestion);
  EXPECT_TRUE(*found.suggestion > 1e-3 && *found.suggestion < 1) << *found.suggestion;
  // Nothing is left of it.
  EXPECT_EQ(module.weight.tensor().to_vector<float>(), std::vector<float>{1});
  EXPECT_EQ(module.generator().offset(), offset);
  EXPECT_FALSE(module.weight.tensor().grad().defined());
}

TEST(LrFinder, ALossThatIsNotFiniteEndsIt) {
  Weights module(nn::Scope({.generator = test::fresh_generator(1)}), 1);
  RowsTask task(module, 1, 100, 1);
  const LrFinding found = find_lr(task, sgd(), {.lowest = 1e10, .highest = 1e25, .divergence = 1e300});
  EXPECT_TRUE(found.diverged);
  EXPECT_FALSE(found.suggestion);
  ASSERT_LT(found.losses.size(), 20u);
  for (const double loss : found.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(module.weight.tensor().to_vector<float>(), std::vector<float>{1});

  // A signal, fewer steps than wanted, options out of range.
  TrainOptions stopped = sgd();
  int calls = 0;
  stopped.should_stop = [&] { return ++calls == 3; };
  EXPECT_TRUE(find_lr(task, stopped).interrupted);
  RowsTask few(module, 1, 5, 2);
  EXPECT_EQ(find_lr(few, sgd()).losses.size(), 10u);
  EXPECT_EQ(find_lr(few, sgd()).rates.back(), 1);
  EXPECT_TRUE(test::has(test::error_of([&] { find_lr(task, sgd(), {.lowest = 2}); }), "0 < lowest < highest"));
}

TEST(LrFinder, SuggestsTheSteepestFall) {
  std::vector<double> rates;
  for (int i = 0; i < 48; ++i) rates.push_back(std::pow(10.0, i));
  // The line through nine losses falls most in the middle of a fall of nine; noise of a fixed pattern changes nothing.
  std::vector<double> losses(48, 5);
  for (size_t i = 24; i < 48; ++i) losses[i] = i < 32 ? 5 - 0.5 * static_cast<double>(i - 23) : 1;
  for (size_t i = 40; i < 48; ++i) losses[i] = 9;
  for (size_t i = 0; i < 48; ++i) losses[i] += i % 2 == 0 ? 0.05 : -0.05;
  const std::optional<double> found = suggested_lr(rates, losses, losses);
  ASSERT_TRUE(found);
  EXPECT_GE(*found, rates[26]);
  EXPECT_LE(*found, rates[28]);
  // A fall behind the least average, or among the first ten, does not count; nor does one within the noise.
  std::vector<double> smoothed(48, 2);
  smoothed[15] = 1;
  EXPECT_FALSE(suggested_lr(rates, losses, smoothed));
  std::vector<double> early(48, 5);
  early[0] = early[1] = early[2] = early[3] = early[4] = early[5] = 9;
  EXPECT_FALSE(suggested_lr(rates, early, early));
  std::vector<double> noisy(48);
  for (size_t i = 0; i < 48; ++i) noisy[i] = 5 - 0.01 * static_cast<double>(i) + (i % 2 == 0 ? 1 : -1);
  EXPECT_FALSE(suggested_lr(rates, noisy, noisy));
  std::vector<double> long_rates(600), long_fall(600);  // the window is longer than what is left out
  for (size_t i = 0; i < 600; ++i) long_rates[i] = long_fall[i] = 600 - static_cast<double>(i);
  EXPECT_TRUE(suggested_lr(long_rates, long_fall, long_fall));
  EXPECT_FALSE(suggested_lr({1, 2, 3}, {3, 2, 1}, {3, 2, 1}));
  EXPECT_FALSE(suggested_lr({}, {}, {}));
}

TEST(BatchFinder, HalvesBetweenWhatFitsAndWhatDoesNot) {
  constexpr int64_t kColumns = 1 << 14;
  Weights module(nn::Scope({.generator = test::fresh_generator(1)}), kColumns);
  const auto make = [&](int64_t rows) -> std::unique_ptr<TrainingTask> {
    return std::make_unique<RowsTask>(module, rows, 2, 2);
  };
  CachingAllocator& memory = allocator(Device());
  memory.empty_cache();
  const int64_t limit = memory.statistics().reserved_bytes + (int64_t{60} << 20);
  memory.set_limit(limit);
  const BatchFinding found = find_batch_size(module, make, 1, 100000, sgd());
  memory.set_limit(0);
  ASSERT_GE(found.trials.size(), 5u);
  const int64_t largest = found.trials.back().size;
  EXPECT_GT(largest, 64);   // 4 MiB each of x, values and gradients
  EXPECT_LT(largest, 961);  // of x alone 60 MiB
  EXPECT_LE(found.too_large - largest, std::max<int64_t>(1, largest / 16));
  for (size_t i = 0; i < found.trials.size(); ++i) {
    const BatchTrial& trial = found.trials[i];
    EXPECT_TRUE(trial.items_per_second > 0 && trial.step_seconds > 0 && trial.peak_bytes <= limit);
    if (i > 0) {
      EXPECT_TRUE(trial.size > found.trials[i - 1].size && trial.peak_bytes > found.trials[i - 1].peak_bytes);
    }
    EXPECT_LE(trial.items_per_second, found.fastest()->items_per_second);
  }
  EXPECT_EQ(module.weight.tensor().to_vector<float>(), std::vector<float>(kColumns, 1));
  EXPECT_FALSE(module.weight.tensor().grad().defined());

  // Without a limit the largest is tried itself; where not even the smallest fits, there is nothing.
  const BatchFinding all = find_batch_size(module, make, 3, 20, sgd());
  std::vector<int64_t> sizes;
  for (const BatchTrial& trial : all.trials) sizes.push_back(trial.size);
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 6, 12, 20}));
  EXPECT_EQ(all.too_large, 0);
  memory.empty_cache();
  memory.set_limit(memory.statistics().reserved_bytes + (1 << 20));
  const BatchFinding none = find_batch_size(module, make, 1000, 2000, sgd());
  memory.set_limit(0);
  EXPECT_TRUE(none.trials.empty() && none.fastest() == nullptr);
  EXPECT_EQ(none.too_large, 1000);
  TrainOptions stopped = sgd();
  stopped.should_stop = [] { return true; };
  EXPECT_TRUE(find_batch_size(module, make, 1, 4, stopped).interrupted);
  EXPECT_TRUE(test::has(test::error_of([&] { find_batch_size(module, make, 5, 4, sgd()); }), "got 5 and 4"));
}

}  // namespace
}  // namespace tern::models
