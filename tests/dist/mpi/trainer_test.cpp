// The training loop in several processes: metrics are global, and all ranks stop together.

#include "tern/models/trainer/trainer.h"

#include "tern/nn/nn.h"
#include "tern/tests/dist/mpi/world_test.h"

namespace tern::models {
namespace {

using dist::expect_contains;
using dist::expect_equal_on_all_ranks;
using dist::rank;
using dist::size;
using dist::world;

constexpr int64_t kBatches = 11, kEpochs = 3;

struct Rows {
  Tensor x, y;
  std::vector<Tensor*> tensors() { return {&x, &y}; }
};

/// The norm has running statistics and no parameters.
class RowsNet final : public nn::Module {
 public:
  RowsNet(const nn::Scope& s, bool normed)
      : Module(s), normed_(normed), linear_(sub("linear"), 4, 2), norm_(sub("norm"), 1, {.affine = false}) {}
  Tensor forward(const Tensor& x) const {
    return linear_.forward(normed_ ? norm_.forward(x.reshape({-1, 1})).reshape(x.shape()) : x);
  }

 private:
  bool normed_;
  nn::Linear linear_;
  nn::BatchNorm1d norm_;
};

/// Batch k of an epoch has k % 3 + 1 rows; its loss is their mean.
class RowsTask final : public TrainingTask {
 public:
  explicit RowsTask(bool normed = false) : net_(nn::Scope({.generator = Generator(dist::shared_seed())}), normed) {}
  nn::Module& module() override { return net_; }
  int64_t epochs() const override { return kEpochs; }
  int64_t steps(int64_t) const override { return kBatches; }
  void begin_epoch(int64_t epoch, const data::BatchStripe& stripe) override {
    epoch_ = epoch;
    stripe_ = stripe;
    next_ = 0;
  }
  bool next_batch() override {
    if (next_ >= stripe_.size("rows", kBatches)) return false;
    batch_ = stripe_.batch(next_++, kBatches);
    return true;
  }
  StepInput batch() const override {
    Generator generator(dist::shared_seed() + static_cast<uint64_t>(1 + 1000 * epoch_ + batch_));
    const int64_t rows = examples(epoch_, batch_);
    return {Rows{randn({rows, 4}, generator), randn({rows, 2}, generator)}, [this](const Rows& batch) {
              const Tensor loss = mse_loss(net_.forward(batch.x), batch.y);
              return change ? change(++losses_, loss) : loss;
            }};
  }
  int64_t items(int64_t, int64_t) const override { return 10; }
  int64_t examples(int64_t, int64_t batch) const override { return batch % 3 + 1; }
  bool can_validate() const override { return own_rows > 0 || validates; }
  Evaluation validate() override {
    if (validated) validated();
    const auto n = static_cast<double>(own_rows);
    Tally tally;
    tally.add({.loss = (1.0 + rank()) * n, .metric = (metric ? metric(epoch_) : 0.5) * n, .examples = own_rows});
    return tally.result(world->group().get());
  }

  std::function<Tensor(int64_t number, const Tensor& loss)> change = {};
  std::function<double(int64_t epoch)> metric = {};
  std::function<void()> validated = {};
  int64_t own_rows = 0;
  bool validates = false;  // even without own rows

 private:
  RowsNet net_;
  data::BatchStripe stripe_;
  int64_t epoch_ = 0, next_ = 0, batch_ = 0;
  mutable int64_t losses_ = 0;
};

struct Recorder final : TrainObserver {
  void on_step(const StepMetrics& m) override { steps.push_back(m); }
  void on_epoch(const EpochMetrics& m) override { validations.push_back(m.validation); }
  std::vector<StepMetrics> steps;
  std::vector<Evaluation> validations;
};

TrainOptions options_for(dist::DataParallel* parallel) {
  TrainOptions options;
  options.optimizer = "sgd";  // AdamW would turn a gradient of pure rounding error into a step of lr
  options.lr = 1e-2;
  options.parallel = parallel;
  return options;
}

TEST(Trainer, IsOneProcessThatAccumulates) {
  for (const int64_t accumulate : {1, 2}) {
    RowsTask task, alone;
    dist::DataParallel parallel(task.module(), world->group());
    TrainOptions options = options_for(&parallel), joined = options_for(nullptr);
    options.accumulate = accumulate;
    joined.accumulate = accumulate * size();
    Recorder got, want;
    train(task, options, got);
    train(alone, joined, want);
    ASSERT_EQ(got.steps.size(), want.steps.size());
    for (size_t i = 0; i < want.steps.size(); ++i) {
      EXPECT_NEAR(got.steps[i].loss, want.steps[i].loss, 1e-5) << i;
      EXPECT_NEAR(got.steps[i].grad_norm, want.steps[i].grad_norm, 1e-5) << i;
      EXPECT_EQ(got.steps[i].items, want.steps[i].items) << i;
      EXPECT_EQ(got.steps[i].epoch, want.steps[i].epoch) << i;
    }
    expect_equal_on_all_ranks(task.module().state_dict());
    dist::expect_near(task.module().parameters(), alone.module().parameters(), 1e-5);
  }
}

/// Sums of any doubles, divided in any way: the bits of one process.
TEST(Trainer, TalliesAreExact) {
  Generator values(dist::shared_seed() + 9);
  const std::vector<double> losses = (randn({97}, values, {.dtype = float64}) * 1e3).to_vector<double>(),
                            metrics = rand({97}, values, {.dtype = float64}).to_vector<double>();
  Tally all, own;
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto examples = static_cast<int64_t>(i % 4);
    const Score score{.loss = losses[i],
                      .metric = metrics[i],
                      .examples = examples,
                      .not_finite = examples > 2,
                      .outcomes = {.columns = 1,
                                   .outputs = std::vector<float>(i % 4, static_cast<float>(losses[i])),
                                   .targets = std::vector<float>(i % 4, static_cast<float>(metrics[i]))}};
    all.add(score);
    if (static_cast<int>(i * i) % size() == rank()) own.add(score);
  }
  if (rank() == size() - 1) own.stop();
  for (double (*of)(const Outcomes&) : {static_cast<double (*)(const Outcomes&)>(nullptr), comparable_r2}) {
    const Evaluation want = all.result(nullptr, of), got = own.result(world->group().get(), of);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.metric, want.metric);
    EXPECT_EQ(got.examples, want.examples);
    EXPECT_EQ(got.not_finite, want.not_finite);
    EXPECT_TRUE(got.stopped && !want.stopped);
    const NumbersReport a = numbers_report(want.outcomes), b = numbers_report(got.outcomes);
    EXPECT_EQ((std::vector{b.mse, b.mae, b.r2, b.pearson, b.spearman}),
              (std::vector{a.mse, a.mae, a.r2, a.pearson, a.spearman}));
  }
}

TEST(Trainer, ValidationIsOfAllRows) {
  RowsTask task;
  task.own_rows = rank() == 0 && size() > 1 ? 0 : rank() + 2;  // rank 0 has no rows
  task.validates = true;
  dist::DataParallel parallel(task.module(), world->group());
  Recorder recorder;
  const TrainResult result = train(task, options_for(&parallel), recorder);
  double rows = 0, sum = 0;
  for (int r = size() > 1 ? 1 : 0; r < size(); ++r) {
    rows += r + 2;
    sum += (r + 2) * (1.0 + r);
  }
  ASSERT_EQ(recorder.validations.size(), static_cast<size_t>(kEpochs));
  EXPECT_NEAR(recorder.validations[0].loss, sum / rows, 1e-12);
  EXPECT_NEAR(recorder.validations[0].metric, 0.5, 1e-12);
  EXPECT_EQ(recorder.validations[0].examples, static_cast<int64_t>(rows));
  EXPECT_EQ(result.best_epoch, 1);
}

/// The patience is with the metric of all ranks' rows: rank 0's rises once, the others' never.
/// Between validations running statistics are each rank's own.
TEST(Trainer, StatisticsOfRank0AreValidatedAndSaved) {
  RowsTask task(true);
  task.own_rows = 1;
  std::vector<double> means;
  task.validated = [&] {
    expect_equal_on_all_ranks(task.module().state_dict());
    means.push_back(task.module().buffers()[0].tensor.to_vector<double>()[0]);
  };
  task.change = [&](int64_t number, const Tensor& loss) {
    if (number == 3 && size() > 1) {  // of the first epoch
      const Tensor mine = task.module().buffers()[0].tensor.to(float64);
      Tensor sum = mine.clone();
      world->group()->all_reduce(sum);
      EXPECT_NE(sum.to_vector<double>(), (mine * static_cast<double>(size())).to_vector<double>());
    }
    return loss;
  };
  dist::DataParallel parallel(task.module(), world->group());
  TrainOptions options = options_for(&parallel);
  Recorder recorder;
  train(task, options, recorder);
  ASSERT_EQ(means.size(), static_cast<size_t>(kEpochs));
  EXPECT_NE(means[0], means[1]);
}

TEST(Trainer, ThePatienceIsEverybodys) {
  RowsTask task;
  task.own_rows = 1;
  task.metric = [](int64_t epoch) {
    const double first[] = {0.3, 0.2, 0.1};  // the third epoch is left out
    return rank() == 0 ? first[epoch] : 0.9 - 0.01 * static_cast<double>(epoch);
  };
  dist::DataParallel parallel(task.module(), world->group());
  TrainOptions options = options_for(&parallel);
  options.patience = 1;
  Recorder recorder;
  const TrainResult result = train(task, options, recorder);
  EXPECT_EQ(recorder.validations.size(), 2u);
  EXPECT_EQ(result.best_epoch, 1);
  EXPECT_TRUE(result.early);
}

TEST(Trainer, AWishToStopIsEverybodys) {
  RowsTask task;
  dist::DataParallel parallel(task.module(), world->group());
  TrainOptions options = options_for(&parallel);
  int calls = 0;
  options.should_stop = [&] { return ++calls == 3 && rank() == size() - 1; };
  Recorder recorder;
  const TrainResult result = train(task, options, recorder);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 3);
  expect_equal_on_all_ranks(task.module().state_dict());
}

TEST(Trainer, TheFailingRankNamesTheOp) {
  RowsTask task;
  const bool to_blame = rank() == size() - 1;
  task.change = [&](int64_t number, const Tensor& loss) {
    return to_blame && number >= 3 ? loss * log(full({}, -1)) : loss;
  };
  dist::DataParallel parallel(task.module(), world->group());
  Recorder recorder;
  std::string own, of_peer;
  try {
    train(task, options_for(&parallel), recorder);
  } catch (const dist::PeerError& error) {
    of_peer = error.what();
  } catch (const Error& error) {
    own = error.what();
  }
  if (to_blame) {
    expect_contains(own, {"step 3: the loss is nan", "anomaly: log"});
  } else {
    expect_contains(of_peer, {"step 3: the loss is nan; another rank's error names the op"});
  }
  EXPECT_EQ(recorder.steps.size(), 2u);
  expect_equal_on_all_ranks(task.module().state_dict());
}

TEST(Trainer, AnOverflowOnOneRankIsSkippedByAll) {
  RowsTask task;
  task.change = [&](int64_t number, const Tensor& loss) {
    return loss * (rank() == 0 && number == 2 ? 1e37 : 1e-2);  // small, so that 2^16 times it does not overflow
  };
  dist::DataParallel parallel(task.module(), world->group());
  TrainOptions options = options_for(&parallel);
  options.dtype = float16;
  Recorder recorder;
  train(task, options, recorder);
  ASSERT_GE(recorder.steps.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(recorder.steps[i].skipped, i == 1) << i;
  EXPECT_LT(recorder.steps[2].loss_scale, recorder.steps[0].loss_scale);
  expect_equal_on_all_ranks(task.module().state_dict());
}

}  // namespace
}  // namespace tern::models
