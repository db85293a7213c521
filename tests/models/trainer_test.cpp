// The training loop on a model simple enough to compute by hand: y = w x, loss (w x - t)^2.

#include "tern/models/trainer/trainer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/kernels/base/check.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

class Line final : public nn::Module {
 public:
  explicit Line(const nn::Scope& s)
      : Module(s), weight(this, "weight", Shape({1}), [](Tensor& t, Generator&) { t.fill_(1); }) {}
  Parameter weight;
};

struct Script {
  std::vector<std::vector<double>> targets;  // by epoch and step
  std::vector<double> validation = {};       // loss by epoch; the metric is 1 - loss
  bool noise = false;                        // added to the targets, drawn from the module's generator
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
  AnyBatch batch() const override {
    return Target{full({1}, script_.targets[static_cast<size_t>(epoch_)][static_cast<size_t>(step_)])};
  }
  Tensor loss(const AnyBatch& batch) override {
    ++losses;
    EXPECT_TRUE(line_.is_training());
    Tensor target = batch.as<Target>().value;
    if (script_.noise) target = target + randn({1}, line_.generator());
    const Tensor difference = line_.weight.tensor() - target;
    return mean(difference * difference);
  }
  int64_t items(int64_t, int64_t) const override { return 10; }
  int64_t examples(int64_t, int64_t batch) const override { return batch + 1; }
  bool can_validate() const override { return !script_.validation.empty(); }
  Evaluation validate() override {
    EXPECT_FALSE(line_.is_training());
    const double loss = script_.validation[static_cast<size_t>(epoch_)];
    return {.loss = loss, .metric = 1 - loss, .examples = 5};
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
  void on_epoch(const EpochMetrics& m) override {
    epochs.push_back(m);
    validated.push_back(task_.weight());
  }
  std::vector<StepMetrics> steps;
  std::vector<double> weights, validated;  // after each step, and at each validation
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
  EXPECT_EQ(seen.steps[0].grad_norm, 20);
  EXPECT_NEAR(task.weight(), 1 - 0.1 * 0.5 * 20 / (20 + 1e-6), 2 * 0x1p-24);
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

TEST(Trainer, AveragesAreValidatedAndLeft) {
  const std::vector<std::vector<double>> targets = {{0, 3}, {-1, 2}, {4, 4}};
  TrainOptions options = plain_sgd(0.1);
  LineTask plain({.targets = targets});
  Recorder reference(plain);
  train(plain, options, reference);
  options.ema = 0.6;
  std::vector<double> averages;  // of SGD's weights, which they do not affect
  for (const double w : reference.weights) averages.push_back(averages.empty() ? w : 0.6 * averages.back() + 0.4 * w);
  for (const std::vector<double>& validation : {std::vector<double>{}, {0.5, 0.2, 0.3}}) {
    LineTask task({.targets = targets, .validation = validation});
    Recorder seen(task);
    train(task, options, seen);
    EXPECT_EQ(seen.weights, reference.weights);
    for (size_t epoch = 0; epoch < seen.validated.size(); ++epoch)
      EXPECT_NEAR(seen.validated[epoch], averages[2 * epoch + 1], 1e-6);
    EXPECT_EQ(seen.validated.size(), validation.size());
    EXPECT_NEAR(task.weight(), averages[validation.empty() ? 5 : 3], 1e-6);  // the last one, or that of the best epoch
  }
  // A stopped run also ends with averaged weights.
  LineTask stopped({.targets = targets});
  Recorder seen(stopped);
  int calls = 0;
  options.should_stop = [&] { return ++calls == 3; };
  EXPECT_TRUE(train(stopped, options, seen).stopped);
  EXPECT_NEAR(stopped.weight(), averages[2], 1e-6);
}

TEST(Trainer, StopsAfterAStepOrAValidation) {
  LineTask task({.targets = {{0, 0}, {0, 0}}, .validation = {0.5, 0.2}});
  Recorder seen(task);
  TrainOptions options = plain_sgd(0.1);
  int calls = 0;
  options.should_stop = [&] { return ++calls == 1; };
  EXPECT_TRUE(train(task, options, seen).stopped);
  EXPECT_EQ(seen.steps.size(), 1u);
  EXPECT_EQ(task.weight(), seen.weights[0]);

  LineTask again({.targets = {{0, 0}, {0, 0}}, .validation = {0.5, 0.2}});
  Recorder heard(again);
  calls = 0;
  options.should_stop = [&] { return ++calls == 3; };  // the third call follows the first validation
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
  // With a best epoch its weights are restored.
  LineTask task({.targets = {{0}, {0}, {std::nan("")}}, .validation = {0.1, 0.3, 0}});
  Recorder seen(task);
  EXPECT_THROW(train(task, plain_sgd(0.1), seen), Error);
  EXPECT_EQ(task.weight(), seen.weights[0]);
}

TEST(Trainer, AccumulatedBatchesAreWeightedByTheirExamples) {
  LineTask task({.targets = {{0, 3, -1, 2, 5}}});  // batches of 1, 2, 3, 4 and 5 examples
  Recorder seen(task);
  TrainOptions options = plain_sgd(0.1);
  options.accumulate = 2;
  const TrainResult result = train(task, options, seen);
  ASSERT_EQ(result.steps, 3);  // the last step has one remaining batch
  EXPECT_EQ(result.items, 50);
  double w = 1, velocity = 0;
  const std::vector<std::vector<std::pair<double, double>>> steps = {{{0, 1}, {3, 2}}, {{-1, 3}, {2, 4}}, {{5, 5}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    double examples = 0, loss = 0, gradient = 0;
    for (const auto& [target, weight] : steps[i]) {
      examples += weight;
      loss += weight * (w - target) * (w - target);
      gradient += weight * 2 * (w - target);
    }
    EXPECT_NEAR(seen.steps[i].loss, loss / examples, 1e-5) << i;
    EXPECT_NEAR(seen.steps[i].grad_norm, std::abs(gradient / examples), 1e-5) << i;
    EXPECT_EQ(seen.steps[i].total_steps, 3);
    velocity = 0.9 * velocity + gradient / examples;
    w -= 0.1 * velocity;
    EXPECT_NEAR(seen.weights[i], w, 1e-5) << i;
  }
}

/// A run that is stopped at any possible point and resumed ends with the result of an uninterrupted run.
TEST(Trainer, ResumedAnywhereItEndsTheSame) {
  const Script script{.targets = {{0, 3, 1}, {-1, 2}, {4, 4, 4}}, .validation = {0.5, 0.2, 0.3}, .noise = true};
  TrainOptions options = plain_sgd(0.1);
  options.optimizer = "adamw";
  options.schedule = "cosine";
  for (const auto& [accumulate, ema] : {std::pair(1, 0.0), {2, 0.0}, {1, 0.7}}) {
    options.accumulate = accumulate;
    options.ema = ema;
    LineTask whole(script);
    Recorder reference(whole);
    const TrainResult expected = train(whole, options, reference);
    const int questions = static_cast<int>(expected.steps) + 3;
    for (int stop = 1; stop < questions; ++stop) {
      SCOPED_TRACE(std::to_string(accumulate) + " " + std::to_string(ema) + " stopped at question " +
                   std::to_string(stop));
      const fs::path dir = fs::temp_directory_path() / ("tern-trainer-" + std::to_string(getpid()));
      CheckpointFolder folder((dir / "checkpoints").string(), 1);
      TrainOptions first = options;
      int calls = 0;
      first.should_stop = [&] { return ++calls == stop; };
      first.checkpoints = &folder;
      LineTask begun(script);
      Recorder seen(begun);
      first.save_model = [&](const std::string& to) { save_safetensors(begun.module().state_dict(), to + "/w"); };
      ASSERT_TRUE(train(begun, first, seen).stopped);

      const auto newest = newest_checkpoint(folder.path(), {});
      ASSERT_TRUE(newest);
      const TrainCheckpoint checkpoint = load_checkpoint(*newest);
      EXPECT_EQ(checkpoint.position.step, static_cast<int64_t>(seen.steps.size()));
      LineTask again(script);
      again.module().load_state_dict(load_safetensors(*newest + "/w").tensors);
      TrainOptions second = options;
      second.resume = &checkpoint;
      const TrainResult result = train(again, second, seen);
      EXPECT_EQ(result.steps, expected.steps);
      EXPECT_EQ(result.items, expected.items);
      EXPECT_EQ(result.best_epoch, expected.best_epoch);
      EXPECT_EQ(again.weight(), whole.weight());
      ASSERT_EQ(seen.steps.size(), reference.steps.size());
      for (size_t i = 0; i < seen.steps.size(); ++i) {
        EXPECT_EQ(seen.steps[i].loss, reference.steps[i].loss) << i;
        EXPECT_EQ(seen.steps[i].lr, reference.steps[i].lr) << i;
      }
      fs::remove_all(dir);
    }
  }
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : folder_((dir_ / "checkpoints").string(), 2) {}
  ~CheckpointTest() override { fs::remove_all(dir_); }
  void save(int64_t step, int64_t best_epoch = 0, bool validated = false, int64_t epoch = 0) {
    TrainCheckpoint checkpoint;
    checkpoint.position.step = step;
    checkpoint.position.epoch = epoch;
    checkpoint.position.validated = validated;
    checkpoint.position.best_epoch = best_epoch;
    checkpoint.optimizer = {{"step.w", full({1}, static_cast<double>(step))}};
    if (best_epoch > 0) checkpoint.best_weights = {{"w", full({1}, 7)}};
    folder_.save(checkpoint, [](const std::string& to) { save_safetensors({{"w", full({3}, 2)}}, to + "/model"); });
  }
  std::string listing() const {
    std::string text;
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename().string());
    for (const std::string& name : names) text += name + " ";
    return text;
  }
  std::string error_of(const std::string& dir) {
    try {
      load_checkpoint(dir);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  fs::path dir_ = fs::temp_directory_path() / ("tern-checkpoint-" + std::to_string(getpid()));
  CheckpointFolder folder_;
};

TEST_F(CheckpointTest, KeepsTheNewestAndTheBest) {
  EXPECT_FALSE(newest_checkpoint(folder_.path(), {}));
  save(3);
  save(5, 1, true);
  save(6, 1);
  save(9, 1);
  save(12, 1);
  EXPECT_EQ(listing(), "step-00000005-validated step-00000009 step-00000012 ");
  save(15, 2, true, 1);
  save(100000000, 2);
  EXPECT_EQ(listing(), "step-00000015-validated step-100000000 ");
  EXPECT_TRUE(newest_checkpoint(folder_.path(), {})->ends_with("step-100000000"));
}

/// A later checkpoint, damaged or of another history, does not make a save fail or count as one of the newest.
TEST_F(CheckpointTest, LaterOnesCountForNothing) {
  save(3);
  save(5);
  const fs::path path = folder_.path();
  for (const char* name : {"step-00000900", "step-900", "step-00000901-validated", "step-00000902.old"})
    fs::create_directories(path / name);
  std::ofstream(path / "step-00000900" / "state.json") << "{";
  std::ofstream(path / "step-00000903") << "a file";
  save(6, 1);
  save(7, 1, true);
  save(8, 1);
  EXPECT_EQ(listing(),
            "step-00000007-validated step-00000008 step-00000900 step-00000901-validated step-00000902.old "
            "step-00000903 step-900 ");
  const auto removed = [&](int64_t step, bool validated) {
    TrainPosition position;
    position.step = step;
    position.validated = validated;
    return folder_.remove_after(position);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(removed(900, false), Names{"step-00000901-validated"});
  EXPECT_EQ(removed(7, true), (Names{"step-00000008", "step-00000900"}));
  EXPECT_EQ(removed(7, true), Names{});
  EXPECT_EQ(removed(7, false), Names{"step-00000007-validated"});
  EXPECT_EQ(listing(), "step-00000902.old step-00000903 step-900 ");
}

/// A checkpoint of another history: same step, different state.
TEST_F(CheckpointTest, OneOfTheSameStepIsReplaced) {
  save(3);
  save(5);
  const std::string newest = (fs::path(folder_.path()) / "step-00000005").string();
  EXPECT_EQ(load_checkpoint_position(newest).best_epoch, 0);
  save(5, 2);
  EXPECT_EQ(load_checkpoint_position(newest).best_epoch, 2);
  EXPECT_EQ(error_of(newest), "no error");
  const auto written = fs::last_write_time(newest + "/state.json");
  save(5, 2);
  EXPECT_EQ(fs::last_write_time(newest + "/state.json"), written);  // an identical checkpoint is not rewritten
  EXPECT_EQ(listing(), "step-00000003 step-00000005 ");
}

TEST_F(CheckpointTest, DamageIsNoticedAndTheOneBeforeIsUsed) {
  save(3, 1);
  save(5, 1);
  const fs::path newest = fs::path(folder_.path()) / "step-00000005";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(newest)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 5u);
  const fs::path copy = dir_ / "copy";
  fs::copy(newest, copy);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    for (const std::string how : {"flipped", "cut", "longer", "gone"}) {
      const auto size = fs::file_size(file);
      if (how == "flipped") {
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekg(static_cast<std::streamoff>(size / 2));
        const char byte = static_cast<char>(bytes.get() ^ 0x10);
        bytes.seekp(static_cast<std::streamoff>(size / 2));
        bytes.put(byte);
      } else if (how == "cut") {
        fs::resize_file(file, size - 1);
      } else if (how == "longer") {
        fs::resize_file(file, size + 1);
      } else {
        fs::remove(file);
      }
      // One more or less white-space character at the end of a JSON file changes nothing.
      const bool harmless = file.filename() == "checksums.json" && (how == "longer" || how == "cut");
      std::string said;
      const auto found = newest_checkpoint(folder_.path(), [&](const std::string& line) { said = line; });
      if (!harmless) {
        EXPECT_TRUE(found && found->ends_with("step-00000003")) << how;
        EXPECT_NE(said.find("the one before it is used"), std::string::npos) << said;
        EXPECT_NE(error_of(newest), "no error");
      }
      fs::copy(copy / file.filename(), file, fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_EQ(error_of(newest), "no error");
  fs::remove(fs::path(folder_.path()) / "step-00000003" / "model");
  fs::remove(newest / "model");
  EXPECT_THROW(newest_checkpoint(folder_.path(), {}), Error);
  save(5, 1);  // a damaged checkpoint is rewritten
  EXPECT_EQ(error_of(newest), "no error");
}

TEST_F(CheckpointTest, AFailedWriteLeavesWhatWasThere) {
  save(3);
  const auto failing = [](const std::string&) { fail("no space left on device"); };
  TrainCheckpoint checkpoint;
  checkpoint.position.step = 4;
  try {
    folder_.save(checkpoint, failing);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no space left on device; earlier checkpoints are untouched"),
              std::string::npos);
  }
  EXPECT_EQ(listing(), "step-00000003 ");
  // A folder left by a killed process is not a checkpoint, and is removed.
  fs::create_directories(fs::path(folder_.path()) / ".tern-unfinished-step-00000009");
  EXPECT_TRUE(newest_checkpoint(folder_.path(), {})->ends_with("step-00000003"));
  CheckpointFolder again(folder_.path(), 2);
  EXPECT_EQ(listing(), "step-00000003 ");
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
