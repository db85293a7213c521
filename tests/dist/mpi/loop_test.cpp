// Metrics against loops in double and numbers by hand, the same bits for any division of the examples; the
// state of a loop, which goes on with the same bits.

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "tern/core/io/safetensors.h"
#include "tern/data/loaders/loader.h"
#include "tern/dist/collectives/gather_tensors.h"
#include "tern/dist/gradients/data_parallel.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/dist/loop/loop_state.h"
#include "tern/nn/metrics/classification.h"
#include "tern/nn/metrics/regression.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"
#include "tern/tests/dist/mpi/world_test.h"

namespace tern::dist {
namespace {

using namespace nn;  // metrics
using Doubles = std::vector<double>;
using Integers = std::vector<int64_t>;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Equal on all ranks.
struct Examples {
  explicit Examples(uint64_t salt, int64_t count = 151) : rows(count) {
    Generator generator(shared_seed() + 70 + salt);
    logits = mul(randn({rows, 5}, generator), full({}, 3.0));
    logits = to_quarters(logits);  // with ties
    classes = randint(0, 5, {rows}, generator);
    scores = to_quarters(rand({rows}, generator));
    binary = randint(0, 2, {rows}, generator);
    numbers = randn({rows}, generator);
    // Sums in another order, or of rounded squares, would be rounded otherwise.
    wanted = add(randn({rows}, generator, {.dtype = float64}), full({}, 1e6, {.dtype = float64}));
  }
  static Tensor to_quarters(const Tensor& x) {
    std::vector<double> values = x.to_vector<double>();
    for (double& v : values) v = std::round(4 * v) / 4;
    return from_vector(values, x.shape()).to(float32);
  }
  int64_t rows;
  Tensor logits, classes, scores, binary, numbers, wanted;
};

/// update(metric, begin, end) for all rows on this rank alone, and for random parts of the rows on all ranks: the same
/// bits. Returns the value.
template <class Metric, class Update>
double value_of(const Examples& e, const Metric& fresh, const Update& update) {
  Metric whole = fresh, parts = fresh;
  update(whole, 0, e.rows);
  Generator generator(shared_seed() + 99);
  const Integers cuts = randint(1, 9, {e.rows}, generator).to_vector<int64_t>();
  int64_t part = 0;
  for (int64_t begin = 0; begin < e.rows; ++part) {
    const int64_t end = std::min(e.rows, begin + cuts[static_cast<size_t>(part)]);
    if (part % size() == rank()) update(parts, begin, end);
    begin = end;
  }
  Metric loaded = fresh;
  loaded.load_state_dict(parts.state_dict());
  const double value = whole.compute();
  const GatherRanks all = gather_over(world->group());
  EXPECT_EQ(loaded.compute(all), value);
  parts.reset();
  EXPECT_TRUE(std::isnan(parts.compute(all)));
  return value;
}

struct OneClass {
  double right = 0, predicted = 0, targets = 0;
};
Integers argmax_of(const Tensor& logits) {
  Integers result;
  const Doubles v = logits.to_vector<double>();
  for (int64_t i = 0; i < logits.size(0); ++i) {
    int64_t best = 0;
    for (int64_t c = 1; c < 5; ++c)
      if (v[static_cast<size_t>(i * 5 + c)] > v[static_cast<size_t>(i * 5 + best)]) best = c;
    result.push_back(best);
  }
  return result;
}

TEST(Metrics, OfClassesAreThoseOfLoops) {
  const Examples e(1);
  const Integers predicted = argmax_of(e.logits), targets = e.classes.to_vector<int64_t>();
  std::vector<OneClass> counts(5);
  double hits = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    hits += predicted[i] == targets[i];
    counts[static_cast<size_t>(predicted[i])].predicted += 1;
    counts[static_cast<size_t>(targets[i])].targets += 1;
    if (predicted[i] == targets[i]) counts[static_cast<size_t>(targets[i])].right += 1;
  }
  const auto update = [&](auto& metric, int64_t begin, int64_t end) {
    metric.update(e.logits.slice(0, begin, end), e.classes.slice(0, begin, end));
  };
  const double n = static_cast<double>(targets.size());
  EXPECT_DOUBLE_EQ(value_of(e, Accuracy(), update), hits / n);
  EXPECT_DOUBLE_EQ(value_of(e, TopKAccuracy(1), update), hits / n);
  EXPECT_DOUBLE_EQ(value_of(e, TopKAccuracy(5), update), 1);
  const auto share = [](double a, double b) { return b == 0 ? 0 : a / b; };
  const std::vector<std::function<double(const OneClass&)>> formulas = {
      [&](const OneClass& c) { return share(c.right, c.predicted); },
      [&](const OneClass& c) { return share(c.right, c.targets); },
      [&](const OneClass& c) {
        const double p = share(c.right, c.predicted), r = share(c.right, c.targets);
        return share(2 * p * r, p + r);
      }};
  for (const Average average : {Average::kMicro, Average::kMacro, Average::kWeighted}) {
    const ClassificationOptions options{.classes = 5, .average = average};
    const Doubles got = {value_of(e, Precision(options), update), value_of(e, Recall(options), update),
                         value_of(e, F1(options), update)};
    for (size_t f = 0; f < 3; ++f) {
      double sum = 0, weights = 0;
      for (const OneClass& c : counts) {
        const double weight = average == Average::kWeighted ? c.targets : c.targets + c.predicted > 0;
        sum += weight * formulas[f](c);
        weights += weight;
      }
      EXPECT_NEAR(got[f], average == Average::kMicro ? hits / n : sum / weights, 1e-14);
    }
  }
}

/// A small case by hand: precision_score, recall_score, f1_score (zero_division=0) and confusion_matrix as scikit-learn
/// defines them.
TEST(Metrics, OfClassesAreThoseByHand) {
  const Tensor targets = from_vector(Integers{0, 1, 2, 2, 1, 0}, {6}),
               predictions = from_vector(Integers{0, 2, 2, 2, 1, 1}, {6});
  ClassificationOptions options{.classes = 4};  // class 3 does not occur
  Precision precision(options);
  F1 f1(options);
  precision.update(predictions, targets);
  f1.update(predictions, targets);
  EXPECT_NEAR(precision.compute(), (1 + 0.5 + 2. / 3) / 3, 1e-15);
  EXPECT_NEAR(f1.compute(), (2. / 3 + 0.5 + 0.8) / 3, 1e-15);
  EXPECT_EQ(f1.per_class()[3], 0);
  ConfusionMatrix matrix(4);
  matrix.update(predictions, targets);
  EXPECT_EQ(matrix.matrix().to_vector<int64_t>(), (Integers{1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0}));
  Recall binary({.average = Average::kBinary, .threshold = 0.3});
  binary.update(from_vector(Doubles{0.2, 0.3, 0.4, 0.9}, {4}), from_vector(Integers{1, 1, 1, 0}, {4}));
  EXPECT_DOUBLE_EQ(binary.compute(), 1. / 3);
}

/// Three labels for each example: by loops over the examples.
TEST(Metrics, OfSeveralLabelsAreThoseOfLoops) {
  const Examples e(5);
  const Tensor scores = e.logits.slice(1, 0, 3), labels = (e.logits.slice(1, 2, 5) > 1.0).to(int64);
  const Doubles s = scores.to_vector<double>();
  const Integers t = labels.to_vector<int64_t>();
  std::vector<OneClass> counts(3);
  OneClass all;
  double exact = 0;
  for (size_t row = 0; row < s.size(); row += 3) {
    bool right = true;
    for (size_t c = 0; c < 3; ++c) {
      const bool predicted = s[row + c] > -0.5, wanted = t[row + c] == 1;
      for (OneClass* of : {&counts[c], &all}) {
        of->predicted += predicted;
        of->targets += wanted;
        of->right += predicted && wanted;
      }
      right = right && predicted == wanted;
    }
    exact += right;
  }
  const auto f1 = [](const OneClass& c) { return 2 * c.right / (c.predicted + c.targets); };
  const auto update = [&](auto& m, int64_t begin, int64_t end) {
    m.update(scores.slice(0, begin, end), labels.slice(0, begin, end));
  };
  ClassificationOptions options{.classes = 3, .average = Average::kMicro, .threshold = -0.5, .multilabel = true};
  EXPECT_NEAR(value_of(e, F1(options), update), f1(all), 1e-14);
  EXPECT_NEAR(value_of(e, Precision(options), update), all.right / all.predicted, 1e-14);
  options.average = Average::kMacro;
  EXPECT_NEAR(value_of(e, F1(options), update), (f1(counts[0]) + f1(counts[1]) + f1(counts[2])) / 3, 1e-14);
  EXPECT_NEAR(value_of(e, ExactMatch(-0.5), update), exact / static_cast<double>(e.rows), 1e-14);
  F1 none(options);  // a label that is neither predicted nor a target counts as 0
  none.update(from_vector(Integers{1, 0, 0}, {1, 3}), from_vector(Integers{1, 0, 0}, {1, 3}));
  EXPECT_NEAR(none.compute(), 1. / 3, 1e-15);
}

/// By all pairs of a positive and a negative example.
double pairs_auroc(const Doubles& scores, const std::vector<bool>& positive) {
  double wins = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    for (size_t j = 0; j < scores.size(); ++j)
      if (positive[i] && !positive[j]) {
        pairs += 1;
        wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
  return pairs == 0 ? kNone : wins / pairs;
}

TEST(Metrics, AurocCountsPairs) {
  const Examples e(2);
  std::vector<bool> positive;
  for (const int64_t t : e.binary.to_vector<int64_t>()) positive.push_back(t == 1);
  EXPECT_DOUBLE_EQ(value_of(e, AUROC(),
                            [&](AUROC& m, int64_t begin, int64_t end) {
                              m.update(e.scores.slice(0, begin, end), e.binary.slice(0, begin, end));
                            }),
                   pairs_auroc(e.scores.to_vector<double>(), positive));
  double sum = 0;
  int defined = 0;
  for (int64_t c = 0; c < 5; ++c) {
    positive.clear();
    for (const int64_t t : e.classes.to_vector<int64_t>()) positive.push_back(t == c);
    const double area = pairs_auroc(e.logits.select(1, c).to_vector<double>(), positive);
    if (std::isnan(area)) continue;
    sum += area;
    ++defined;
  }
  EXPECT_NEAR(value_of(e, AUROC(5),
                       [&](AUROC& m, int64_t begin, int64_t end) {
                         m.update(e.logits.slice(0, begin, end), e.classes.slice(0, begin, end));
                       }),
              sum / defined, 1e-14);
  AUROC one_kind;
  one_kind.update(zeros({3}), ones({3}, {.dtype = int64}));
  EXPECT_TRUE(std::isnan(one_kind.compute()));
}

TEST(Metrics, OfNumbersAreThoseOfLoops) {
  const Examples e(3);
  const Doubles p = e.numbers.to_vector<double>(), t = e.wanted.to_vector<double>();
  const double n = static_cast<double>(e.rows), mean = std::accumulate(t.begin(), t.end(), 0.) / n;
  double errors = 0, spread = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    errors += (p[i] - t[i]) * (p[i] - t[i]);
    spread += (t[i] - mean) * (t[i] - mean);
  }
  const auto update = [&](auto& m, int64_t begin, int64_t end) {
    m.update(e.numbers.slice(0, begin, end), e.wanted.slice(0, begin, end));
  };
  EXPECT_NEAR(value_of(e, MeanSquaredError(), update), errors / n, 1e-13 * errors / n);
  const double r2 = 1 - errors / spread;
  EXPECT_NEAR(value_of(e, R2(), update), r2, 1e-8 * std::abs(r2));  // the squares of 1e6 cancel
  double absolute = 0, pt = 0, pp = 0;
  const double p_mean = std::accumulate(p.begin(), p.end(), 0.) / n;
  for (size_t i = 0; i < p.size(); ++i) {
    absolute += std::abs(p[i] - t[i]);
    pt += (p[i] - p_mean) * (t[i] - mean);
    pp += (p[i] - p_mean) * (p[i] - p_mean);
  }
  EXPECT_NEAR(value_of(e, MeanAbsoluteError(), update), absolute / n, 1e-13 * absolute / n);
  EXPECT_NEAR(value_of(e, PearsonCorrelation(), update), pt / std::sqrt(pp * spread), 1e-8);
  EXPECT_NEAR(
      value_of(e, Mean(), [&](Mean& m, int64_t begin, int64_t end) { m.update(e.wanted.slice(0, begin, end)); }), mean,
      1e-15 * mean);
  // Ranks of quarters have ties: the mean of the ranks, counted in another way.
  const auto ranks_of = [](const Doubles& values) {
    Doubles ranks;
    for (const double v : values) {
      const auto less = std::count_if(values.begin(), values.end(), [v](double other) { return other < v; });
      ranks.push_back(static_cast<double>(less) + static_cast<double>(std::count(values.begin(), values.end(), v)) / 2);
    }
    return from_vector(ranks, {std::ssize(ranks)});
  };
  PearsonCorrelation of_ranks;
  of_ranks.update(ranks_of(e.scores.to_vector<double>()), ranks_of(p));
  EXPECT_NEAR(value_of(e, SpearmanCorrelation(),
                       [&](SpearmanCorrelation& m, int64_t begin, int64_t end) {
                         m.update(e.scores.slice(0, begin, end), e.numbers.slice(0, begin, end));
                       }),
              of_ranks.compute(), 1e-14);
  R2 equal;
  equal.update(from_vector(Doubles{1, 2, 3}, {3}), full({3}, 0.1, {.dtype = float64}));
  EXPECT_EQ(equal.compute(), 0);
  MeanSquaredError cancels;  // 2^1000 hides 1 from an ordinary sum
  for (const double x : {1., 0x1p500, 1.})
    cancels.update(full({1}, x, {.dtype = float64}), zeros({1}, {.dtype = float64}));
  EXPECT_EQ(cancels.compute(), 0x1p1000 / 3);
  cancels.update(full({1}, kNone), zeros({1}));
  EXPECT_TRUE(std::isnan(cancels.compute()));
}

TEST(Metrics, PerplexityAndCalibrationAreThoseOfLoops) {
  const Examples e(4);
  const Doubles x = e.logits.to_vector<double>(), s = e.scores.to_vector<double>();
  const Integers t = e.classes.to_vector<int64_t>(), b = e.binary.to_vector<int64_t>();
  double sum = 0, count = 0;
  std::vector<Doubles> bins(9, Doubles(3));
  for (size_t i = 0; i < t.size(); ++i) {
    Doubles& bin = bins[static_cast<size_t>(std::floor(s[i] * 8))];
    bin[0] += 1, bin[1] += static_cast<double>(b[i]), bin[2] += s[i];
    if (t[i] == 2) continue;
    double all = 0;
    for (size_t c = 0; c < 5; ++c) all += std::exp(x[i * 5 + c]);
    sum -= std::log(std::exp(x[i * 5 + static_cast<size_t>(t[i])]) / all);
    count += 1;
  }
  const double perplexity = value_of(e, Perplexity(2), [&](Perplexity& m, int64_t begin, int64_t end) {
    m.update(e.logits.slice(0, begin, end), e.classes.slice(0, begin, end));
  });
  EXPECT_NEAR(perplexity, std::exp(sum / count), 1e-12 * perplexity);
  double error = 0;
  for (const Doubles& bin : bins)
    if (bin[0] > 0) error += std::abs(bin[1] / bin[0] - bin[2] / bin[0]) * bin[0] / static_cast<double>(e.rows);
  EXPECT_NEAR(value_of(e, CalibrationError(8),
                       [&](CalibrationError& m, int64_t begin, int64_t end) {
                         m.update(e.scores.slice(0, begin, end), e.binary.slice(0, begin, end));
                       }),
              error, 1e-14);
}

TEST(Metrics, ErrorsSayWhatIsWrong) {
  const Tensor logits = zeros({2, 3}), targets = from_vector(Integers{0, 3}, {2});
  test::expect_error([&] { Accuracy().update(logits, targets); }, {"accuracy: target 1 is 3, expected 0 to 2"});
  test::expect_error([&] { Accuracy().update(logits, zeros({3}, {.dtype = int64})); }, {"must be [2], got [3]"});
  test::expect_error([&] { F1({.classes = 3}).update(full({2, 3}, kNone), targets); }, {"element 0 of scores is NaN"});
  test::expect_error([&] { F1({.classes = 3, .average = Average::kBinary}); }, {"f1: ", "two classes, got 3"});
  test::expect_error([&] { F1({.classes = 3, .multilabel = true}).update(logits, targets); },
                     {"f1: target 1 is 3, expected 0 to 1"});
  test::expect_error(
      [&] {
        ExactMatch().update(logits, zeros({3, 2}, {.dtype = int64}));
      },
      {"predictions are [2, 3] and targets [3, 2]"});
  test::expect_error([&] { Mean().update(1, -1); }, {"mean: the number of examples must not be negative, got -1"});
  test::expect_error([&] { TopKAccuracy(4).update(logits, targets); }, {"k is 4", "only 3 classes"});
  test::expect_error([&] { AUROC().update(zeros({2}), zeros({2})); },
                     {"auroc: targets must be integers, got float32", ".to(int64)"});
  test::expect_error([&] { Perplexity().update(logits, targets); }, {"target 1 is 3, expected 0 to 2 or -100"});
  test::expect_error([&] { MeanSquaredError().update(logits, zeros({2})); }, {"[2, 3]", "[2]", "the same shape"});
  test::expect_error([&] { CalibrationError().update(full({1}, 1.5), zeros({1}, {.dtype = int64})); }, {"is 1.5"});
  test::expect_error([&] { Accuracy().load_state_dict(R2().state_dict()); }, {"counts"});
}

/// Everything that a loop by hand has. Each rank has its own dropout masks and batches.
struct Loop {
  explicit Loop(uint64_t salt, int64_t width = 16, bool nesterov = false)
      : masks(salt + static_cast<uint64_t>(rank())),
        net(nn::Scope({.generator = Generator(salt)}), 7, width),
        head(nn::Scope({.generator = Generator(salt + 1)}), width, 3),
        trained(optim::join_parameters({{"net", net.parameters()}, {"head", head.parameters()}})),
        optimizer(trained, {.lr = 0.05, .momentum = 0.9, .nesterov = nesterov}),
        schedule(optimizer, optim::step_lr({.step_size = 2, .gamma = 0.5})),
        scaler({.init_scale = 1024, .growth_interval = 2}),
        ema(trained, {.decay = 0.7}),
        parallel_net(net, world->group()),
        parallel_head(head, world->group()),
        state(world->group()) {
    state.add("net", net);
    state.add("head", head);
    state.add("optimizer", optimizer);
    state.add("schedule", schedule);
    state.add("scaler", scaler);
    state.add("ema", ema);
    state.add("masks", masks);
    state.add("accuracy", accuracy);
    state.add("auroc", auroc);
    state.add("epoch", epoch);
    state.add("batch", batch);
    state.add_per_rank("seen", seen);
    state.add_per_rank("sum", sum_of_losses);
  }

  /// Returns the losses of so many steps. An epoch has 4 batches for each rank.
  Doubles run(int64_t steps) {
    Generator values(shared_seed() + 5);
    const int64_t rows = 4 * 5 * size();
    const std::vector<Tensor> tensors = {randn({rows, 7}, values), randint(0, 3, {rows}, values)};
    const data::Loader loader(data::TensorDataset(tensors), {.batch_size = 5, .shuffle = true, .seed = 3});
    Doubles losses;
    for (; steps > 0; ++epoch, batch = 0)
      for (const auto& rows_of :
           loader.epoch(epoch, {.first = batch * size() + rank(), .stride = size(), .count = 4 - batch})) {
        losses.push_back(step(rows_of[0], rows_of[1]));
        ++batch;
        if (--steps == 0) return losses;
      }
    return losses;
  }

  double step(const Tensor& x, const Tensor& y) {
    const Tensor hidden = dropout(relu(net.forward(x)), {.p = 0.3, .generator = &masks});
    const Tensor logits = head.forward(hidden), loss = cross_entropy(logits, y);
    scaler.scale(loss).backward();
    scaler.clip_grad_norm(optimizer, 0.5);
    ema.update(scaler.step(optimizer));
    scaler.update();
    optimizer.zero_grad();
    schedule.step();
    accuracy.update(logits, y);
    if (rank() == 0) auroc.update(logits.select(1, 0).detach(), eq(y, 0).to(int64));
    seen += 1 + rank();
    sum_of_losses += loss.item<double>();
    return loss.item<double>();
  }

  StateView weights() const { return copy_of(ema.state_dict()); }

  Generator masks;
  nn::Linear net, head;
  StateView trained;
  optim::SGD optimizer;
  optim::LRScheduler schedule;
  optim::GradScaler scaler;
  optim::EMA ema;
  DataParallel parallel_net, parallel_head;
  Accuracy accuracy;
  AUROC auroc;
  int64_t epoch = 0, batch = 0, seen = 0;
  double sum_of_losses = 0;
  LoopState state;
};

/// A path that all ranks know; rank 0 removes the folder at the end.
struct SharedFolder {
  SharedFolder() : name("tern-loop-" + std::to_string(shared_seed()) + "-" + std::to_string(size())) {
    path = std::filesystem::temp_directory_path() / name;
    if (rank() == 0) std::filesystem::create_directories(path);
    group().barrier();
  }
  ~SharedFolder() {
    group().barrier();
    if (rank() == 0) std::filesystem::remove_all(path);
  }
  std::string operator/(const std::string& file) const { return (path / file).string(); }
  std::string name;
  std::filesystem::path path;
};

TEST(LoopState, GoesOnWithTheSameBits) {
  const SharedFolder folder;
  const std::string path = folder / "loop";
  Loop whole(11), begun(11), other(500);
  const Doubles losses = whole.run(6);
  Doubles parts = begun.run(3);
  EXPECT_FALSE(begun.state.exists(path));
  begun.optimizer.set_group_momentum({0.8});  // kept too
  whole.optimizer.set_group_momentum({0.8});
  begun.state.save(path);
  EXPECT_TRUE(other.state.exists(path));
  other.run(2);  // what it holds is replaced
  other.state.load(path);
  EXPECT_EQ(other.optimizer.param_groups()[0].momentum, 0.8);
  EXPECT_EQ(other.seen, 3 * (1 + rank()));
  other.optimizer.set_group_momentum({0.9});
  for (const double loss : other.run(3)) parts.push_back(loss);
  EXPECT_EQ(parts, losses);
  EXPECT_EQ(other.epoch, 1);
  EXPECT_EQ(other.batch, 2);
  EXPECT_EQ(other.sum_of_losses, whole.sum_of_losses);
  const GatherRanks all = gather_over(world->group());
  EXPECT_EQ(other.accuracy.compute(all), whole.accuracy.compute(all));
  EXPECT_EQ(other.auroc.compute(all), whole.auroc.compute(all));
  EXPECT_EQ(other.masks.offset(), whole.masks.offset());
  EXPECT_EQ(other.scaler.current_scale(), whole.scaler.current_scale());
  expect_equal(other.weights(), whole.weights());
}

/// load() throws with these parts of a message on rank 0, and nothing has changed.
void expect_refused(Loop& loop, const std::string& path, const std::vector<std::string>& parts) {
  const StateView before = loop.weights();
  const std::string message = test::error_of([&] { loop.state.load(path); });
  EXPECT_NE(message, "no error");
  if (rank() == 0) test::expect_contains(message, parts);
  expect_equal(loop.weights(), before);
}

TEST(LoopState, OtherFilesAreRefused) {
  const SharedFolder folder;
  const std::string path = folder / "loop", bad = folder / "bad";
  Loop loop(11), wide(11, 17);
  loop.run(2);
  loop.state.save(path);
  expect_refused(wide, path, {path, "entry 'net'", "'weight' is [16, 7] in the file and [17, 7] here"});

  int64_t number = 0;
  double real = 0;
  wide.state.add("more", number);
  expect_refused(wide, path, {"no entry 'more'"});
  LoopState few(world->group()), kinds(world->group());
  few.add("epoch", number);
  test::expect_error([&] { few.load(path); }, {"entry '", "which this loop does not add"});
  kinds.add("epoch", real);
  kinds.save(bad);
  test::expect_error([&] { few.load(bad); }, {"'epoch' is of kind 'number', this loop's is of kind 'integer'"});
  test::expect_error([&] { few.add("epoch", real); }, {"already an entry 'epoch'"});
  test::expect_error([&] { few.add("a/b", real); }, {"'a/b'", "must not"});

  optim::AdamW adamw(loop.trained, {});
  optim::SGD sgd(loop.trained, {});
  LoopState of_adamw(world->group()), of_sgd(world->group());
  of_adamw.add("optimizer", adamw);
  of_sgd.add("optimizer", sgd);
  of_adamw.save(bad);
  test::expect_error([&] { of_sgd.load(bad); }, {"entry 'optimizer' is of kind 'optimizer adamw'", "'optimizer sgd'"});
}

/// Damage, and an object that refuses its state after others have taken theirs.
TEST(LoopState, AFailureChangesNothing) {
  const SharedFolder folder;
  const std::string path = folder / "loop", bad = folder / "bad";
  Loop loop(11), other(400);
  loop.run(2);
  loop.state.save(path);
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = text.str();
  const auto write = [&](const std::string& damaged) {
    group().barrier();
    if (rank() == 0) std::ofstream(bad, std::ios::binary) << damaged;
    group().barrier();
  };
  write(bytes.substr(0, bytes.size() - 1));
  expect_refused(other, bad, {bad});
  std::string flipped = bytes;
  flipped[bytes.size() - 9] ^= 1;
  write(flipped);
  expect_refused(other, bad, {bad, "checksum"});
  group().barrier();
  if (rank() == 0) save_safetensors({}, bad);
  group().barrier();
  expect_refused(other, bad, {"not the state of a loop"});

  // The schedule comes after the nets and the optimizer, and has another gamma.
  optim::LRScheduler schedule(other.optimizer, optim::step_lr({.step_size = 2, .gamma = 0.25}));
  LoopState refusing(world->group()), saved(world->group());
  saved.add("net", loop.net);
  saved.add("schedule", loop.schedule);
  saved.save(bad);
  refusing.add("net", other.net);
  refusing.add("schedule", schedule);
  const StateView before = copy_of(other.net.state_dict());
  test::expect_error([&] { refusing.load(bad); }, {"entry 'schedule'"});
  expect_equal(other.net.state_dict(), before);

  const std::string missing = folder / "no/such/folder";
  EXPECT_NE(test::error_of([&] { loop.state.save(missing); }), "no error");  // on all ranks
  other.state.load(path);
  expect_equal(other.weights(), loop.weights());
}

/// A divided optimizer is saved whole.
TEST(LoopState, ShardedOptimizersAreKept) {
  const SharedFolder folder;
  nn::Linear net(nn::Scope({.generator = Generator(3)}), 33, 5);
  DataParallel parallel(net, world->group(), {.shard = true});
  ShardedOptimizer optimizer(parallel, {{net.parameters()}}, optim::AdamWOptions{.lr = 0.1});
  const auto step = [&] {
    sum(net.forward(values_of(rank(), 7, {4, 33}, float32))).backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  LoopState state(world->group());
  state.add("net", net);
  state.add("optimizer", optimizer);
  step();
  state.save(folder / "loop");
  step();
  const StateView want = copy_of(net.state_dict());
  step();
  state.load(folder / "loop");
  step();
  expect_equal(net.state_dict(), want);
}

}  // namespace
}  // namespace tern::dist
