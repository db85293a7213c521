// The training loop on a model simple enough to compute by hand: y = w x, loss (w x - t)^2.

#include "tern/models/trainer/trainer.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

class Line final : public nn::Module {
 public:
  explicit Line(const nn::Scope& s)
      : Module(s), weight(this, "weight", Shape({1}), [](Tensor& t, Generator&) { t.fill_(1); }) {}
  double value() const { return weight.tensor().to_vector<double>()[0]; }
  Parameter weight;
};

class Recorder final : public TrainObserver {
 public:
  explicit Recorder(const Line& line) : line_(line) {}
  void on_step(const StepMetrics& m) override {
    steps.push_back(m);
    weights.push_back(line_.value());
  }
  void on_epoch(const EpochMetrics& m) override {
    epochs.push_back(m);
    validated.push_back(line_.value());
  }
  std::vector<StepMetrics> steps;
  std::vector<double> weights, validated;  // after each step, and at each validation
  std::vector<EpochMetrics> epochs;

 private:
  const Line& line_;
};

struct Script {
  std::vector<std::vector<double>> targets;  // by epoch and step
  std::vector<double> validation = {};       // loss by epoch; the metric is 1 - loss
  bool noise = false;                        // added to the targets, drawn from the module's generator
  bool names = false;                        // each batch has three examples with names, the second of the target
};

struct Target {
  Tensor value;
  std::vector<Tensor*> tensors() { return {&value}; }
};

class LineTask final : public TrainingTask {
 public:
  explicit LineTask(Script script)
      : script_(std::move(script)), line_(nn::Scope({.generator = test::fresh_generator(5)})) {}
  nn::Module& module() override { return line_; }
  int64_t epochs() const override { return static_cast<int64_t>(script_.targets.size()); }
  int64_t steps(int64_t epoch) const override {
    return static_cast<int64_t>(script_.targets[static_cast<size_t>(epoch)].size());
  }
  void begin_epoch(int64_t epoch, const data::BatchStripe& stripe) override {
    epoch_ = epoch;
    step_ = stripe.first - 1;
  }
  bool next_batch() override { return ++step_ < steps(epoch_); }
  StepInput batch() const override {
    const double target = script_.targets[static_cast<size_t>(epoch_)][static_cast<size_t>(step_)];
    return {Target{script_.names ? from_vector(std::vector<double>{1, target, 1}, {3}).to(float32) : full({1}, target)},
            [this](const Target& batch) { return loss(batch.value); }};
  }
  Tensor loss(Tensor target) const {
    EXPECT_TRUE(line_.is_training());
    if (script_.noise) target = target + randn({1}, line_.generator());
    const Tensor difference = line_.weight.tensor() - target;
    return mean(difference * difference);
  }
  int64_t items(int64_t, int64_t) const override { return 10; }
  int64_t examples(int64_t, int64_t batch) const override { return batch + 1; }
  std::vector<std::string> example_names(int64_t epoch, int64_t batch) const override {
    if (!script_.names) return {};
    const std::string of = std::to_string(epoch) + "-" + std::to_string(batch);
    return {"a" + of, "b" + of, "c" + of};
  }
  bool can_validate() const override { return !script_.validation.empty(); }
  Evaluation validate() override {
    EXPECT_FALSE(line_.is_training());
    const double loss = script_.validation[static_cast<size_t>(epoch_)];
    return {.loss = loss, .metric = 1 - loss, .examples = 5};
  }
  double weight() const { return line_.value(); }

 private:
  Script script_;
  Line line_;
  int64_t epoch_ = 0, step_ = 0;

 public:
  Recorder seen{line_};
};

TrainOptions plain_sgd(double lr) {
  return {.optimizer = "sgd", .lr = lr, .weight_decay = 0, .schedule = "constant", .clip = 0};
}

/// SGD with momentum 0.9 and learning rate 0.1.
struct ByHand {
  void step(double gradient) {
    velocity = 0.9 * velocity + gradient;
    w -= 0.1 * velocity;
  }
  double w = 1, velocity = 0;
};

TEST(Trainer, StepsByHand) {
  LineTask task({.targets = {{0, 3}, {-1}}});
  const TrainResult result = train(task, plain_sgd(0.1), task.seen);
  ByHand hand;
  const double targets[] = {0, 3, -1};
  for (size_t i = 0; i < 3; ++i) {
    const double difference = hand.w - targets[i];
    EXPECT_NEAR(task.seen.steps[i].loss, difference * difference, 1e-6);
    EXPECT_NEAR(task.seen.steps[i].grad_norm, std::abs(2 * difference), 1e-5);
    hand.step(2 * difference);
    EXPECT_NEAR(task.seen.weights[i], hand.w, 1e-6);
    EXPECT_EQ(task.seen.steps[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(task.seen.steps[i].total_steps, 3);
    EXPECT_EQ(task.seen.steps[i].epoch, i < 2 ? 1 : 2);
  }
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.items, 30);
  EXPECT_EQ(result.best_epoch, 0);
  EXPECT_FALSE(result.stopped);
  EXPECT_TRUE(task.seen.epochs.empty());
}

TEST(Trainer, ClippingIsOfTheNormAndReportsTheOneBefore) {
  LineTask task({.targets = {{-9}}});
  TrainOptions options = plain_sgd(0.1);
  options.clip = 0.5;
  train(task, options, task.seen);
  EXPECT_EQ(task.seen.steps[0].grad_norm, 20);
  EXPECT_NEAR(task.weight(), 1 - 0.1 * 0.5 * 20 / (20 + 1e-6), 2 * 0x1p-24);
}

TEST(Trainer, LinearScheduleSpansTheStepsThatAreMade) {
  LineTask task({.targets = {{0, 0, 0}, {0, 0, 0}}});
  TrainOptions options = plain_sgd(0.1);
  options.schedule = "linear";
  options.warmup = 2;
  options.max_steps = 5;
  EXPECT_EQ(train(task, options, task.seen).steps, 5);
  const double factors[] = {0, 0.5, 1, 2.0 / 3, 1.0 / 3};
  ASSERT_EQ(task.seen.steps.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(task.seen.steps[i].lr, 0.1 * factors[i], 1e-12) << i;
}

TEST(Trainer, LeavesTheBestEpoch) {
  LineTask task({.targets = {{0}, {0}, {0}, {0}}, .validation = {0.5, 0.2, 0.2, 0.4}});
  const TrainResult result = train(task, plain_sgd(0.1), task.seen);
  EXPECT_EQ(result.best_epoch, 2);
  EXPECT_EQ(result.best.loss, 0.2);
  EXPECT_EQ(task.weight(), task.seen.weights[1]);
  EXPECT_NE(task.seen.weights[1], task.seen.weights[3]);
  ASSERT_EQ(task.seen.epochs.size(), 4u);
  EXPECT_TRUE(task.seen.epochs[0].best && task.seen.epochs[1].best && !task.seen.epochs[2].best &&
              !task.seen.epochs[3].best);
}

TEST(Trainer, AnEpochWithoutANumberIsNotTheBest) {
  LineTask task({.targets = {{0}, {0}, {0}}, .validation = {NAN, 0.5, NAN}});
  EXPECT_EQ(train(task, plain_sgd(0.1), task.seen).best_epoch, 2);
  EXPECT_EQ(task.weight(), task.seen.weights[1]);
  EXPECT_TRUE(!task.seen.epochs[0].best && task.seen.epochs[1].best && !task.seen.epochs[2].best);
  LineTask none({.targets = {{0}, {0}}, .validation = {NAN, NAN}});
  EXPECT_EQ(train(none, plain_sgd(0.1), none.seen).best_epoch, 0);
  EXPECT_EQ(none.weight(), none.seen.weights[1]);  // the last
}

TEST(Trainer, EndsWhenTheMetricStaysForThePatience) {
  const auto run = [](std::vector<double> losses, int64_t patience, double min_delta) {
    LineTask task({.targets = std::vector<std::vector<double>>(losses.size(), {0}), .validation = losses});
    TrainOptions options = plain_sgd(0.1);
    options.patience = patience;
    options.min_delta = min_delta;
    const TrainResult result = train(task, options, task.seen);
    EXPECT_EQ(task.seen.epochs.size(), static_cast<size_t>(result.steps));
    EXPECT_EQ(task.weight(), task.seen.weights[static_cast<size_t>(result.best_epoch - 1)]);
    EXPECT_FALSE(result.stopped);
    return std::tuple(result.steps, result.best_epoch, result.early);
  };
  using Ends = std::tuple<int64_t, int64_t, bool>;
  EXPECT_EQ(run({0.5, 0.5, 0.5, 0.5}, 2, 0), Ends(3, 1, true));  // equal is not better
  EXPECT_EQ(run({0.5, 0.6, 0.4, 0.6, 0.6, 0.1}, 2, 0), Ends(5, 3, true));
  EXPECT_EQ(run({0.5, 0.6, 0.4, 0.6, 0.3}, 2, 0), Ends(5, 5, false));
  EXPECT_EQ(run({0.5, 0.6, 0.6}, 2, 0), Ends(3, 1, false));               // with the last epoch nothing is left out
  EXPECT_EQ(run({0.5, 0.375, 0.25, 0.125}, 1, 0.125), Ends(2, 2, true));  // better, but not by more than min_delta
  EXPECT_EQ(run({0.5, 0.25, 0.125, 0.0625}, 1, 0.125), Ends(3, 3, true));
  // From the first validation that was good enough: small steps add up.
  EXPECT_EQ(run({0.5, 0.4375, 0.34375, 0.25, 0.125}, 2, 0.125), Ends(5, 5, false));
  EXPECT_EQ(run({0.5, NAN, NAN, 0.1}, 2, 0), Ends(3, 1, true));
  LineTask none({.targets = {{0}}});
  TrainOptions options = plain_sgd(0.1);
  options.patience = 1;
  EXPECT_TRUE(test::has(test::error_of([&] { train(none, options, none.seen); }), "no rows are validated on"));
  options.min_delta = -1;
  EXPECT_TRUE(test::has(test::error_of([&] { train(none, options, none.seen); }), "must not be negative"));
}

TEST(Trainer, AveragesAreValidatedAndLeft) {
  const std::vector<std::vector<double>> targets = {{0, 3}, {-1, 2}, {4, 4}};
  TrainOptions options = plain_sgd(0.1);
  LineTask plain({.targets = targets});
  train(plain, options, plain.seen);
  options.ema = 0.6;
  std::vector<double> averages;  // of SGD's weights, which they do not affect
  for (const double w : plain.seen.weights) averages.push_back(averages.empty() ? w : 0.6 * averages.back() + 0.4 * w);
  for (const std::vector<double>& validation : {std::vector<double>{}, {0.5, 0.2, 0.3}}) {
    LineTask task({.targets = targets, .validation = validation});
    train(task, options, task.seen);
    EXPECT_EQ(task.seen.weights, plain.seen.weights);
    for (size_t epoch = 0; epoch < task.seen.validated.size(); ++epoch)
      EXPECT_NEAR(task.seen.validated[epoch], averages[2 * epoch + 1], 1e-6);
    EXPECT_EQ(task.seen.validated.size(), validation.size());
    EXPECT_NEAR(task.weight(), averages[validation.empty() ? 5 : 3], 1e-6);  // the last one, or that of the best epoch
  }
  // A stopped run also ends with averaged weights.
  LineTask stopped({.targets = targets});
  int calls = 0;
  options.should_stop = [&] { return ++calls == 3; };
  EXPECT_TRUE(train(stopped, options, stopped.seen).stopped);
  EXPECT_NEAR(stopped.weight(), averages[2], 1e-6);
}

TEST(Trainer, StopsAfterAStepOrAValidation) {
  for (const size_t steps : {1, 2}) {
    LineTask task({.targets = {{0, 0}, {0, 0}}, .validation = {0.5, 0.2}});
    TrainOptions options = plain_sgd(0.1);
    size_t calls = 0;
    // The third call follows the first validation.
    options.should_stop = [&] { return ++calls == (steps == 1 ? 1 : 3); };
    const TrainResult result = train(task, options, task.seen);
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.steps, static_cast<int64_t>(steps));
    EXPECT_EQ(task.seen.steps.size(), steps);
    EXPECT_TRUE(task.seen.epochs.empty());
    EXPECT_EQ(task.weight(), task.seen.weights[steps - 1]);
  }
}

TEST(Trainer, NonFiniteLossNamesTheStepAndChangesNothing) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    LineTask task({.targets = {{0, bad, 0}}});
    const std::string error = test::error_of([&] { train(task, plain_sgd(0.1), task.seen); });
    EXPECT_TRUE(test::has(error, "step 2: the loss is"));
    ASSERT_EQ(task.seen.steps.size(), 1u);
    EXPECT_EQ(task.weight(), task.seen.weights[0]);
  }
  // The example whose input is not finite is named; of finite inputs, all of the step.
  for (const double bad : {std::nan(""), 1e30}) {
    LineTask named({.targets = {{0, 0, 1, 2}, {1, 2, bad, 3}}, .names = true});
    TrainOptions options = plain_sgd(0.1);
    options.accumulate = 2;
    const std::string error = test::error_of([&] { train(named, options, named.seen); });
    EXPECT_TRUE(test::has(error, "step 4: "));
    EXPECT_TRUE(test::has(error, std::isnan(bad) ? "; inputs that are not finite: b1-2; try"
                                                 : "; the batch: a1-2, b1-2, c1-2, a1-3, b1-3, c1-3; try"))
        << error;
  }
  // With a best epoch its weights are restored.
  LineTask task({.targets = {{0}, {0}, {std::nan("")}}, .validation = {0.1, 0.3, 0}});
  EXPECT_THROW(train(task, plain_sgd(0.1), task.seen), Error);
  EXPECT_EQ(task.weight(), task.seen.weights[0]);
}

/// The last update may leave weights that are not finite, which no later loss shows.
TEST(Trainer, WeightsThatAreNotFinite) {
  // Loss 1e36 and gradient -2e18 are finite, the update by a rate of 1e25 is not.
  LineTask task({.targets = {{0, 1e18}}});
  TrainOptions options = plain_sgd(0.1);
  options.rate_factor = [](int64_t step) { return step == 1 ? 1e26 : 1; };
  options.clip = 0;
  EXPECT_TRUE(test::has(test::error_of([&] { train(task, options, task.seen); }),
                        "step 2: after this step's update the weight 'weight' is infinite"));
  ASSERT_EQ(task.seen.steps.size(), 2u);
  EXPECT_TRUE(std::isfinite(task.seen.steps[1].loss));
  // The best epoch is left, and was not replaced by one of such weights.
  LineTask best({.targets = {{0}, {1e18}}, .validation = {0.3, 0.1}});
  EXPECT_TRUE(test::has(test::error_of([&] { train(best, options, best.seen); }), "step 2: "));
  EXPECT_EQ(best.seen.epochs.size(), 1u);
  EXPECT_EQ(best.weight(), best.seen.weights[0]);
  // No checkpoint is made of them: that of the step before is the last.
  test::TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path().string(), 9);
  LineTask saved({.targets = {{0, 1e18, 0}}});
  options.save_model = [&](const std::string& to) { save_safetensors(saved.module().state_dict(), to + "/w"); };
  options.checkpoints = &checkpoints;
  options.checkpoint_steps = 1;
  EXPECT_TRUE(test::has(test::error_of([&] { train(saved, options, saved.seen); }), "step 2: "));
  const auto newest = newest_checkpoint(checkpoints.path(), [](const std::string&) {});
  ASSERT_TRUE(newest);
  EXPECT_EQ(load_checkpoint_position(*newest).step, 1);
  // Nor are such weights trained.
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    LineTask damaged({.targets = {{0}}});
    NoGrad off;
    damaged.module().parameters()[0].tensor.fill_(bad);
    EXPECT_TRUE(test::has(test::error_of([&] { train(damaged, plain_sgd(0.1), damaged.seen); }), "before step 1, "));
    EXPECT_TRUE(damaged.seen.steps.empty());
  }
}

TEST(Trainer, SaysSinceWhenValidationHasNoNumber) {
  const auto since = [](const std::vector<double>& validation) {
    LineTask task({.targets = std::vector<std::vector<double>>(validation.size(), {0, 0}), .validation = validation});
    return train(task, plain_sgd(0.1), task.seen).not_finite_since;
  };
  EXPECT_EQ(since({0.5, 0.4}), 0);
  EXPECT_EQ(since({NAN, 0.4}), 0);
  EXPECT_EQ(since({0.5, NAN, HUGE_VAL}), 4);
  EXPECT_EQ(since({NAN, 0.4, NAN}), 6);
  EXPECT_EQ(since({HUGE_VAL}), 2);
}

TEST(Trainer, AccumulatedBatchesAreWeightedByTheirExamples) {
  LineTask task({.targets = {{0, 3, -1, 2, 5}}});  // batches of 1, 2, 3, 4 and 5 examples
  TrainOptions options = plain_sgd(0.1);
  options.accumulate = 2;
  const TrainResult result = train(task, options, task.seen);
  ASSERT_EQ(result.steps, 3);  // the last step has one remaining batch
  EXPECT_EQ(result.items, 50);
  ByHand hand;
  const std::vector<std::vector<std::pair<double, double>>> steps = {{{0, 1}, {3, 2}}, {{-1, 3}, {2, 4}}, {{5, 5}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    double examples = 0, loss = 0, gradient = 0;
    for (const auto& [target, weight] : steps[i]) {
      examples += weight;
      loss += weight * (hand.w - target) * (hand.w - target);
      gradient += weight * 2 * (hand.w - target);
    }
    EXPECT_NEAR(task.seen.steps[i].loss, loss / examples, 1e-5) << i;
    EXPECT_NEAR(task.seen.steps[i].grad_norm, std::abs(gradient / examples), 1e-5) << i;
    EXPECT_EQ(task.seen.steps[i].total_steps, 3);
    hand.step(gradient / examples);
    EXPECT_NEAR(task.seen.weights[i], hand.w, 1e-5) << i;
  }
}

/// A run that is stopped at any possible point and resumed ends with the result of an uninterrupted run.
TEST(Trainer, ResumedAnywhereItEndsTheSame) {
  Script script{.targets = {{0, 3, 1}, {-1, 2}, {4, 4, 4}}, .noise = true};
  TrainOptions options = plain_sgd(0.1);
  options.warmup = 3;
  options.schedule_parameters = {.gamma = 0.5, .patience = 0};
  struct Case {
    std::string optimizer;
    int accumulate = 1;
    double ema = 0;
    int stops_between = 1;
    std::string schedule = "cosine";
    int64_t patience = 0;
  };
  std::vector<Case> cases = {
      {"adamw"}, {"adamw", 2}, {"adamw", 1, 0.7}, {"adamw", 1, 0, 1, "plateau"}, {"adamw", 1, 0, 1, "cosine", 2}};
  for (const std::string& name : optimizer_names()) cases.push_back({name, 1, 0, 5});
  for (const auto& [optimizer, accumulate, ema, stops_between, schedule, patience] : cases) {
    options.schedule = schedule;
    options.patience = patience;
    script.validation = {0.3, 0.5, patience > 0 ? 0.4 : 0.2};  // the patience ends with the last epoch
    options.optimizer = optimizer;
    options.accumulate = accumulate;
    options.ema = ema;
    LineTask whole(script);
    const TrainResult expected = train(whole, options, whole.seen);
    // After each step, each validation and the test.
    const int questions = static_cast<int>(expected.steps + static_cast<int64_t>(whole.seen.epochs.size())) + 1;
    std::set<int> stops = {questions};
    for (int stop = 1; stop < questions; stop += stops_between) stops.insert(stop);
    for (const int stop : stops) {
      SCOPED_TRACE(optimizer + " " + std::to_string(accumulate) + " " + std::to_string(ema) + " stopped at question " +
                   std::to_string(stop));
      const test::TemporaryFolder dir;
      CheckpointFolder folder(dir / "checkpoints", 1);
      TrainOptions first = options;
      int calls = 0;
      first.should_stop = [&] { return ++calls == stop; };
      first.checkpoints = &folder;
      LineTask begun(script);
      std::vector<double> tested;  // the weights at each test
      first.test = [&] { tested.push_back(begun.weight()); };
      first.save_model = [&](const std::string& to) { save_safetensors(begun.module().state_dict(), to + "/w"); };
      ASSERT_TRUE(train(begun, first, begun.seen).stopped);

      const auto newest = newest_checkpoint(folder.path(), {});
      ASSERT_TRUE(newest);
      const TrainCheckpoint checkpoint = load_checkpoint(*newest);
      // After the last step and validation comes the test.
      EXPECT_EQ(tested, stop == questions ? std::vector{whole.weight()} : std::vector<double>{});
      if (stop == questions) {
        EXPECT_EQ(begun.weight(), whole.weight());
        EXPECT_EQ(load_safetensors(*newest + "/w").tensors[0].tensor.item<float>(), whole.seen.weights.back());
      }
      EXPECT_EQ(checkpoint.position.step, static_cast<int64_t>(begun.seen.steps.size()));
      LineTask again(script);
      again.module().load_state_dict(load_safetensors(*newest + "/w").tensors);
      TrainOptions second = options;
      second.resume = &checkpoint;
      second.test = [&] { tested.push_back(again.weight()); };
      const size_t steps_before = begun.seen.steps.size();
      const TrainResult result = train(again, second, begun.seen);
      EXPECT_EQ(tested.back(), whole.weight());
      EXPECT_EQ(tested.size(), stop == questions ? 2u : 1u);
      EXPECT_TRUE(stop < questions || begun.seen.steps.size() == steps_before);  // nothing is trained again
      EXPECT_EQ(result.steps, expected.steps);
      EXPECT_EQ(result.items, expected.items);
      EXPECT_EQ(result.best_epoch, expected.best_epoch);
      EXPECT_EQ(result.early, expected.early);
      EXPECT_EQ(again.weight(), whole.weight());
      ASSERT_EQ(begun.seen.steps.size(), whole.seen.steps.size());
      for (size_t i = 0; i < begun.seen.steps.size(); ++i) {
        EXPECT_EQ(begun.seen.steps[i].loss, whole.seen.steps[i].loss) << i;
        EXPECT_EQ(begun.seen.steps[i].lr, whole.seen.steps[i].lr) << i;
      }
    }
  }
}

/// A metric that does not rise lowers the rate, once the patience is over; the warmup scales it.
TEST(Trainer, PlateauFollowsTheMetric) {
  // The metric is 1 - loss: better, equal, worse, worse, better by less than 1e-4, worse.
  const std::vector<double> losses = {0.5, 0.4, 0.4, 0.45, 0.6, 0.39995, 0.7};
  const struct {
    int64_t patience;
    std::vector<double> rates;  // of each epoch
  } cases[] = {{0, {1, 1, 1, 0.5, 0.25, 0.125, 0.0625}}, {1, {1, 1, 1, 1, 0.5, 0.5, 0.25}}};
  for (const auto& [patience, rates] : cases) {
    LineTask task({.targets = std::vector<std::vector<double>>(7, {1, 2}), .validation = losses});
    TrainOptions options = plain_sgd(0.01);
    options.schedule = "plateau";
    options.warmup = 4;
    options.schedule_parameters = {.gamma = 0.5, .patience = patience};
    train(task, options, task.seen);
    ASSERT_EQ(task.seen.steps.size(), 14u);
    for (size_t i = 0; i < 14; ++i)
      EXPECT_NEAR(task.seen.steps[i].lr, 0.01 * rates[i / 2] * std::min(1.0, static_cast<double>(i) / 4), 1e-12)
          << patience << " " << i;
  }
  LineTask task({.targets = {{0}}});
  TrainOptions options = plain_sgd(0.01);
  options.schedule = "plateau";
  EXPECT_TRUE(test::has(test::error_of([&] { train(task, options, task.seen); }), "no rows are validated on"));
}

/// Each optimizer is the one of its name: its first step, of a gradient that is not small, has its size.
TEST(Trainer, OptimizersByName) {
  const auto momentum = [](double t) { return 0.9 * (1 - 0.5 * std::pow(0.96, 0.004 * t)); };  // NAdam's
  const double nesterov = momentum(2) * 0.1 / (1 - momentum(1) * momentum(2));
  const double adadelta = 2 * std::sqrt(1e-6) / std::sqrt(0.1 * 4 + 1e-6);
  const std::map<std::string, double> first_steps = {
      {"adamw", 0.1},   {"adam", 0.1}, {"nadam", 0.1 * (1 + nesterov)}, {"radam", 0.2},     {"rmsprop", 1},
      {"adagrad", 0.1}, {"sgd", 0.2},  {"adadelta", 0.1 * adadelta},    {"adafactor", 0.1}, {"lion", 0.1},
      {"lamb", 0.1},    {"muon", 0.1}};
  for (const std::string& name : optimizer_names()) {
    LineTask task({.targets = {{0}}});  // the weight is 1, the gradient 2
    TrainOptions options = plain_sgd(0.1);
    options.optimizer = name;
    train(task, options, task.seen);
    const double step = first_steps.at(name);
    EXPECT_NEAR(task.weight(), 1 - step, 1e-3 * step) << name;
  }
}

/// Two steps of SGD by hand, with the momentum that is given, and Nesterov's.
TEST(Trainer, MomentumIsTheOptions) {
  for (const double momentum : {0.0, 0.5})
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      LineTask task({.targets = {{0, 3}}});
      TrainOptions options = plain_sgd(0.1);
      options.momentum = momentum;
      options.nesterov = nesterov;
      train(task, options, task.seen);
      double w = 1, buffer = 0;
      for (const double target : {0.0, 3.0}) {
        const double gradient = 2 * (w - target);
        buffer = momentum * buffer + gradient;
        w -= 0.1 * (nesterov ? gradient + momentum * buffer : buffer);
      }
      EXPECT_NEAR(task.weight(), w, 1e-5) << momentum << " " << nesterov;
    }
}

TEST(Trainer, WrongOptions) {
  LineTask task({.targets = {{0}}});
  const auto wrong = [&](const TrainOptions& options) {
    return test::error_of([&] { train(task, options, task.seen); });
  };
  EXPECT_TRUE(test::has(wrong({.momentum = 0.9}), "momentum is for the optimizers sgd, rmsprop, muon, not for adamw"));
  EXPECT_TRUE(test::has(wrong({.optimizer = "muon", .nesterov = true}), "nesterov is for the optimizer sgd, not for"));
  EXPECT_TRUE(test::has(wrong({.optimizer = "sgd", .momentum = 0, .nesterov = true}), "a momentum above 0"));
  EXPECT_TRUE(test::has(wrong({.optimizer = "muon", .kahan = true}), "kahan is not for the optimizer muon"));
  EXPECT_THROW(train(task, {.optimizer = "adamax"}, task.seen), Error);
  EXPECT_THROW(train(task, {.schedule = "step"}, task.seen), Error);
  LineTask none({.targets = {{}}});
  EXPECT_THROW(train(none, plain_sgd(0.1), task.seen), Error);
  EXPECT_TRUE(task.seen.steps.empty());
}

}  // namespace
}  // namespace tern::models
