// The training loop on a model that can be followed by hand: y = w x, loss (w x - t)^2.

#include "tern/models/trainer/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tern/core/check.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"

namespace tern::models {
namespace {

class Line final : public nn::Module {
 public:
  explicit Line(const nn::Scope& s)
      : Module(s), weight(this, "weight", Shape({1}), [](Tensor& t, Generator&) { t.fill_(1); }) {}
  Parameter weight;
};

struct Script {
  std::vector<std::vector<double>> targets;  // by epoch and step
  std::vector<double> validation = {};       // loss by epoch; accuracy is 1 - loss
};

class LineTask final : public TrainingTask {
 public:
  explicit LineTask(Script script) : script_(std::move(script)), line_(nn::Scope()) {}
  nn::Module& module() override { return line_; }
  int64_t epochs() const override { return static_cast<int64_t>(script_.targets.size()); }
  int64_t steps(int64_t epoch) const override {
    return static_cast<int64_t>(script_.targets[static_cast<size_t>(epoch)].size());
  }
  void begin_epoch(int64_t epoch) override { epoch_ = epoch, step_ = -1; }
  bool next_batch() override { return ++step_ < steps(epoch_); }
  Tensor loss(const TrainingBatch&) override {
    ++losses;
    EXPECT_TRUE(line_.is_training());
    const Tensor difference =
        line_.weight.tensor() - script_.targets[static_cast<size_t>(epoch_)][static_cast<size_t>(step_)];
    return mean(difference * difference);
  }
  int64_t items() const override { return 10; }
  bool can_validate() const override { return !script_.validation.empty(); }
  Evaluation validate() override {
    EXPECT_FALSE(line_.is_training());
    const double loss = script_.validation[static_cast<size_t>(epoch_)];
    return {.loss = loss, .accuracy = 1 - loss, .examples = 5};
  }
  double weight() const { return line_.weight.tensor().to_vector<double>()[0]; }
  int losses = 0;

 private:
  Script script_;
  Line line_;
  int64_t epoch_ = 0, step_ = 0;
};

class Recorder final : public TrainObserver {
 public:
  explicit Recorder(const LineTask& task) : task_(task) {}
  void on_step(const StepMetrics& m) override {
    steps.push_back(m);
    weights.push_back(task_.weight());
  }
  void on_epoch(const EpochMetrics& m) override { epochs.push_back(m); }
  std::vector<StepMetrics> steps;
  std::vector<double> weights;
  std::vector<EpochMetrics> epochs;

 private:
  const LineTask& task_;
};

TrainOptions plain_sgd(double lr) {
  TrainOptions options;
  options.optimizer = "sgd";
  options.lr = lr;
  options.weight_decay = 0;
  options.schedule = "constant";
  options.clip = 0;
  return options;
}

TEST(Trainer, StepsByHand) {
  LineTask task({.targets = {{0, 3}, {-1}}});
  Recorder seen(task);
  const TrainResult result = train(task, plain_sgd(0.1), seen);
  // SGD with momentum 0.9.
  double w = 1, velocity = 0;
  const double targets[] = {0, 3, -1};
  for (size_t i = 0; i < 3; ++i) {
    const double gradient = 2 * (w - targets[i]);
    EXPECT_NEAR(seen.steps[i].loss, (w - targets[i]) * (w - targets[i]), 1e-6);
    EXPECT_NEAR(seen.steps[i].grad_norm, std::abs(gradient), 1e-5);
    velocity = 0.9 * velocity + gradient;
    w -= 0.1 * velocity;
    EXPECT_NEAR(seen.weights[i], w, 1e-6);
    EXPECT_EQ(seen.steps[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(seen.steps[i].total_steps, 3);
    EXPECT_EQ(seen.steps[i].epoch, i < 2 ? 1 : 2);
  }
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.items, 30);
  EXPECT_EQ(result.best_epoch, 0);
  EXPECT_FALSE(result.stopped);
  EXPECT_TRUE(seen.epochs.empty());
}

TEST(Trainer, ClippingIsOfTheNormAndReportsTheOneBefore) {
  LineTask task({.targets = {{-9}}});
  Recorder seen(task);
  TrainOptions options = plain_sgd(0.1);
  options.clip = 0.5;
  train(task, options, seen);
  EXPECT_NEAR(seen.steps[0].grad_norm, 20, 1e-4);
  EXPECT_NEAR(task.weight(), 1 - 0.1 * 0.5, 1e-6);
}

TEST(Trainer, LinearScheduleSpansTheStepsThatAreMade) {
  LineTask task({.targets = {{0, 0, 0}, {0, 0, 0}}});
  Recorder seen(task);
  TrainOptions options = plain_sgd(0.1);
  options.schedule = "linear";
  options.warmup = 2;
  options.max_steps = 5;
  EXPECT_EQ(train(task, options, seen).steps, 5);
  const double factors[] = {0, 0.5, 1, 2.0 / 3, 1.0 / 3};
  ASSERT_EQ(seen.steps.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(seen.steps[i].lr, 0.1 * factors[i], 1e-12) << i;
}

TEST(Trainer, LeavesTheBestEpoch) {
  LineTask task({.targets = {{0}, {0}, {0}, {0}}, .validation = {0.5, 0.2, 0.2, 0.4}});
  Recorder seen(task);
  const TrainResult result = train(task, plain_sgd(0.1), seen);
  EXPECT_EQ(result.best_epoch, 2);
  EXPECT_EQ(result.best.loss, 0.2);
  EXPECT_EQ(task.weight(), seen.weights[1]);
  EXPECT_NE(seen.weights[1], seen.weights[3]);
  ASSERT_EQ(seen.epochs.size(), 4u);
  EXPECT_TRUE(seen.epochs[0].best && seen.epochs[1].best && !seen.epochs[2].best && !seen.epochs[3].best);
}

TEST(Trainer, StopsAfterAStepOrAValidation) {
  LineTask task({.targets = {{0, 0}, {0, 0}}, .validation = {0.5, 0.2}});
  Recorder seen(task);
  TrainOptions options = plain_sgd(0.1);
  int asked = 0;
  options.should_stop = [&] { return ++asked == 1; };
  EXPECT_TRUE(train(task, options, seen).stopped);
  EXPECT_EQ(seen.steps.size(), 1u);
  EXPECT_EQ(task.weight(), seen.weights[0]);

  LineTask again({.targets = {{0, 0}, {0, 0}}, .validation = {0.5, 0.2}});
  Recorder heard(again);
  asked = 0;
  options.should_stop = [&] { return ++asked == 3; };  // the third question is that after the first validation
  const TrainResult result = train(again, options, heard);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 2);
  EXPECT_TRUE(heard.epochs.empty());
  EXPECT_EQ(again.weight(), heard.weights[1]);
}

TEST(Trainer, NonFiniteLossNamesTheStepAndChangesNothing) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    LineTask task({.targets = {{0, bad, 0}}});
    Recorder seen(task);
    try {
      train(task, plain_sgd(0.1), seen);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("step 2: the loss is"), std::string::npos) << error.what();
    }
    ASSERT_EQ(seen.steps.size(), 1u);
    EXPECT_EQ(task.weight(), seen.weights[0]);
  }
  // With a best epoch its weights come back.
  LineTask task({.targets = {{0}, {0}, {std::nan("")}}, .validation = {0.1, 0.3, 0}});
  Recorder seen(task);
  EXPECT_THROW(train(task, plain_sgd(0.1), seen), Error);
  EXPECT_EQ(task.weight(), seen.weights[0]);
}

TEST(Trainer, WrongOptions) {
  LineTask task({.targets = {{0}}});
  Recorder seen(task);
  TrainOptions options = plain_sgd(0.1);
  options.optimizer = "lion";
  EXPECT_THROW(train(task, options, seen), Error);
  options = plain_sgd(0.1);
  options.schedule = "step";
  EXPECT_THROW(train(task, options, seen), Error);
  LineTask none({.targets = {{}}});
  EXPECT_THROW(train(none, plain_sgd(0.1), seen), Error);
  EXPECT_TRUE(seen.steps.empty());
}

}  // namespace
}  // namespace tern::models
