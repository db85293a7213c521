// Splits: sizes, disjointness, strata, reproducibility, errors. Batch plans: each row occurs once, budgets are kept,
// little capacity is unused, seed and epoch determine the plan.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tern/data/datasets/split.h"
#include "tern/data/plan/batch_plan.h"
#include "tern/data/plan/sampler.h"
#include "tern/data/plan/shuffle.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Rows = std::vector<int32_t>;
using Sizes = std::array<size_t, 3>;  // of train, validation and test

/// Lengths distributed like IMDB's in WordPieces, truncated: log-normal with median 225.
Rows review_lengths(int32_t n, int32_t maximum) {
  std::mt19937_64 random = fresh_random();
  std::lognormal_distribution<double> length(std::log(225.0), 0.75);
  Rows lengths;
  for (int32_t i = 0; i < n; ++i) lengths.push_back(std::clamp(static_cast<int32_t>(length(random)), 2, maximum));
  return lengths;
}

void expect_every_row_once(const EpochPlan& plan, Rows rows) {
  Rows planned = plan.rows;
  std::sort(planned.begin(), planned.end());
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(planned, rows);
  EXPECT_EQ(plan.starts.front(), 0);
  EXPECT_EQ(plan.starts.back(), static_cast<int64_t>(plan.rows.size()));
  for (int64_t step = 0; step < plan.steps(); ++step) EXPECT_FALSE(plan.batch(step).empty());
}

int64_t tokens(std::span<const int32_t> batch, const Rows& lengths) {
  return std::accumulate(batch.begin(), batch.end(), int64_t{0},
                         [&](int64_t sum, int32_t row) { return sum + lengths[row]; });
}

TEST(PackedPlan, KeepsBudgetWithLittleWaste) {
  for (const int32_t budget : {512, 1024, 4096, 8192}) {
    const Rows lengths = review_lengths(10'000, 512);
    const BatchPlan plan(rows_below(10'000), lengths, {.batch_tokens = budget, .seed = fresh_seed()}, 2);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      expect_every_row_once(*plan.epoch(epoch), rows_below(10'000));
      for (int64_t step = 0; step < plan.steps(epoch); ++step)
        EXPECT_LE(tokens(plan.epoch(epoch)->batch(step), lengths), budget);
    }
    const double all = static_cast<double>(2 * std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    EXPECT_DOUBLE_EQ(plan.fill(), all / static_cast<double>(plan.total_steps() * budget));
    EXPECT_GE(plan.fill(), 0.97) << budget;
    EXPECT_EQ(plan.total_steps(), plan.steps(0) + plan.steps(1));
  }
}

TEST(PackedPlan, OrderStaysRandom) {
  // Long and short rows are spread over the epoch: the mean length of each tenth of the steps is that of the whole.
  const Rows lengths = review_lengths(20'000, 512);
  const BatchPlan plan(rows_below(20'000), lengths, {.batch_tokens = 2048, .seed = fresh_seed()}, 1);
  const EpochPlan epoch = *plan.epoch(0);
  const double mean = static_cast<double>(tokens(epoch.rows, lengths)) / 20'000;
  for (int tenth = 0; tenth < 10; ++tenth) {
    const auto part = std::span(epoch.rows).subspan(static_cast<size_t>(tenth) * 2000, 2000);
    EXPECT_NEAR(static_cast<double>(tokens(part, lengths)) / 2000, mean, 0.1 * mean) << tenth;
  }
  double low_rows = 0;  // half of the rows in the first half of the epoch are from the first half of the set
  for (size_t i = 0; i < 10'000; ++i) low_rows += epoch.rows[i] < 10'000;
  EXPECT_NEAR(low_rows, 5000, 250);
}

TEST(PackedPlan, RandomInputs) {
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < 300; ++trial) {
    const int32_t n = static_cast<int32_t>(random() % 60);
    const int32_t budget = 1 + static_cast<int32_t>(random() % 50);
    Rows lengths, rows;
    for (int32_t i = 0; i < 2 * n; ++i)
      lengths.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(budget + 1)));
    for (int32_t i = 0; i < n; ++i) rows.push_back(2 * i);
    const BatchPlanOptions options{.batch_tokens = budget,
                                   .max_sequences = static_cast<int64_t>(random() % 4),
                                   .shuffle = random() % 2 == 0,
                                   .window = 1 + static_cast<int64_t>(random() % 20),
                                   .seed = random()};
    const BatchPlan plan(rows, lengths, options, 1);
    expect_every_row_once(*plan.epoch(0), rows);
    int64_t maximum = 0, longest = 0;
    for (int64_t step = 0; step < plan.steps(0); ++step) {
      const auto batch = plan.epoch(0)->batch(step);
      EXPECT_LE(tokens(batch, lengths), budget);
      maximum = std::max(maximum, static_cast<int64_t>(batch.size()));
    }
    for (const int32_t row : rows) longest = std::max<int64_t>(longest, lengths[row]);
    EXPECT_EQ(plan.max_batch_sequences(), maximum);
    EXPECT_EQ(plan.longest(), longest);
    EXPECT_LE(maximum, options.max_sequences > 0 ? options.max_sequences : n);
  }
}

TEST(PackedPlan, WithoutShuffleKeepsTheOrder) {
  const EpochPlan plan = plan_epoch(rows_below(5), Rows{3, 3, 3, 3, 3}, {.batch_tokens = 7, .shuffle = false}, 0);
  EXPECT_EQ(plan.rows, rows_below(5));
  EXPECT_EQ(plan.starts, (std::vector<int64_t>{0, 2, 4, 5}));
  // A row that does not fit stays first in line; the longest of the others that fits is taken instead.
  const EpochPlan filled = plan_epoch(rows_below(5), Rows{5, 6, 1, 3, 2}, {.batch_tokens = 8, .shuffle = false}, 0);
  EXPECT_EQ(filled.rows, (Rows{0, 3, 1, 2, 4}));
  EXPECT_EQ(filled.starts, (std::vector<int64_t>{0, 2, 4, 5}));
}

TEST(Plans, DependOnSeedAndEpochAlone) {
  const Rows lengths = review_lengths(300, 128);
  for (const BatchPlanOptions base : {BatchPlanOptions{.batch_tokens = 512}, BatchPlanOptions{.batch_size = 7},
                                      BatchPlanOptions{.batch_size = 7, .group_by_length = true}}) {
    BatchPlanOptions options = base;
    options.seed = fresh_seed();
    const BatchPlan plan(rows_below(300), lengths, options, 3);
    EXPECT_EQ(plan.epoch(2)->rows, plan_epoch(rows_below(300), lengths, options, 2).rows);
    EXPECT_NE(plan.epoch(0)->rows, plan.epoch(1)->rows);
    options.seed = fresh_seed() + 1;
    EXPECT_NE(plan.epoch(0)->rows, plan_epoch(rows_below(300), lengths, options, 0).rows);
    options.shuffle = false;
    const BatchPlan fixed(rows_below(300), lengths, options, 2);
    EXPECT_EQ(fixed.epoch(0)->rows, fixed.epoch(1)->rows);
  }
}

/// The plans of all of them would be 40 GB.
TEST(Plans, OfManyEpochsAreMadeOneByOne) {
  constexpr int64_t kEpochs = 1'000'000;
  const BatchPlanOptions options{.batch_size = 3, .seed = fresh_seed()};
  const BatchPlan plan(rows_below(10'000), {}, options, kEpochs);
  EXPECT_EQ(plan.total_steps(), kEpochs * 3334);
  EXPECT_EQ(plan.max_batch_sequences(), 3);
  const std::shared_ptr<const EpochPlan> first = plan.epoch(0);
  for (const int64_t epoch : {kEpochs - 1, int64_t{77}, int64_t{0}, int64_t{78}}) {
    EXPECT_EQ(plan.steps(epoch), 3334);
    const std::shared_ptr<const EpochPlan> made = plan.epoch(epoch);
    const EpochPlan want = plan_epoch(rows_below(10'000), {}, options, epoch);
    EXPECT_EQ(made->rows, want.rows) << epoch;
    EXPECT_EQ(made->starts, want.starts) << epoch;
  }
  EXPECT_EQ(first->rows, plan_epoch(rows_below(10'000), {}, options, 0).rows);  // others were made since
  EXPECT_TRUE(
      fails([&] { BatchPlan(rows_below(2), {}, options, BatchPlan::kMaxEpochs + 1); }, {"epochs", "100000001"}));
}

TEST(Plans, PackedBatchesAreCountedAndCountingCanBeEnded) {
  const Rows lengths = review_lengths(500, 128);
  const BatchPlanOptions options{.batch_tokens = 300, .seed = fresh_seed()};
  int64_t calls = 0;
  const BatchPlan plan(rows_below(500), lengths, options, 20, [&] { ++calls; });
  EXPECT_EQ(calls, 20);
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const EpochPlan want = plan_epoch(rows_below(500), lengths, options, epoch);
    EXPECT_EQ(plan.steps(epoch), want.steps()) << epoch;
    EXPECT_EQ(plan.epoch(epoch)->rows, want.rows) << epoch;
    steps += want.steps();
  }
  EXPECT_EQ(plan.total_steps(), steps);
  struct Ended {};
  calls = 0;
  EXPECT_THROW(BatchPlan(rows_below(500), lengths, options, BatchPlan::kMaxEpochs,
                         [&] {
                           if (++calls == 5) throw Ended();
                         }),
               Ended);
}

TEST(PaddedPlan, SizesAndDropLast) {
  const EpochPlan plan = plan_epoch(rows_below(10), {}, {.batch_size = 4, .shuffle = false}, 0);
  EXPECT_EQ(plan.rows, rows_below(10));
  EXPECT_EQ(plan.starts, (std::vector<int64_t>{0, 4, 8, 10}));
  const EpochPlan whole = plan_epoch(rows_below(10), {}, {.batch_size = 4, .shuffle = false, .drop_last = true}, 0);
  EXPECT_EQ(whole.starts, (std::vector<int64_t>{0, 4, 8}));
  EXPECT_EQ(plan_epoch(rows_below(10), {}, {.batch_size = 5, .drop_last = true}, 0).steps(), 2);
  EXPECT_EQ(plan_epoch(rows_below(3), {}, {.batch_size = INT64_MAX, .group_by_length = false}, 0).steps(), 1);
  EXPECT_EQ(plan_epoch(rows_below(3), Rows{1, 2, 3}, {.batch_size = INT64_MAX, .group_by_length = true}, 0).steps(), 1);
  EXPECT_EQ(plan_epoch({}, {}, {.batch_size = 4}, 0).steps(), 0);
  EXPECT_EQ(plan_epoch({}, {}, {.batch_size = 4, .drop_last = true}, 0).steps(), 0);
  EXPECT_EQ(plan_epoch({}, {}, {.batch_tokens = 4}, 0).steps(), 0);
}

TEST(PaddedPlan, GroupsByLength) {
  const Rows lengths = review_lengths(5'003, 512);
  const BatchPlan plain(rows_below(5'003), lengths, {.batch_size = 16, .seed = fresh_seed()}, 1);
  const BatchPlan grouped(rows_below(5'003), lengths, {.batch_size = 16, .group_by_length = true, .seed = fresh_seed()},
                          1);
  expect_every_row_once(*grouped.epoch(0), rows_below(5'003));
  EXPECT_EQ(grouped.steps(0), plain.steps(0));
  EXPECT_GT(grouped.fill(), 0.95);
  EXPECT_LT(plain.fill(), 0.75);
  EXPECT_EQ(lengths[grouped.epoch(0)->batch(0)[0]], grouped.longest());
  const EpochPlan sorted =
      plan_epoch(rows_below(5'003), lengths, {.batch_size = 16, .shuffle = false, .group_by_length = true}, 0);
  for (size_t i = 1; i < sorted.rows.size(); ++i) {
    const int32_t a = sorted.rows[i - 1], b = sorted.rows[i];
    EXPECT_TRUE(lengths[a] > lengths[b] || (lengths[a] == lengths[b] && a < b));
  }
}

TEST(Plans, Errors) {
  const Rows lengths = {5, 9, 3};
  const auto plan_error = [&](const BatchPlanOptions& options, const Rows& rows) {
    return error_of([&] { BatchPlan(rows, lengths, options, 1); });
  };
  EXPECT_TRUE(contains(plan_error({}, {0}), {"either a batch size or a token budget"}));
  EXPECT_TRUE(
      contains(plan_error({.batch_size = 1, .batch_tokens = 1}, {0}), {"either a batch size or a token budget"}));
  EXPECT_TRUE(contains(plan_error({.batch_size = -1}, {0}), {"-1"}));
  EXPECT_TRUE(
      contains(plan_error({.batch_tokens = 8}, {0, 1}), {"8 tokens", "9 tokens", "--batch-tokens", "--max-length"}));
  EXPECT_EQ(plan_error({.batch_tokens = 8}, {0, 2}), "no error");
  EXPECT_TRUE(contains(plan_error({.batch_tokens = 8}, {3}), {"row 3 of 3"}));
  EXPECT_TRUE(contains(plan_error({.batch_size = 8}, {-1}), {"row -1 of 3"}));
  EXPECT_TRUE(contains(plan_error({.batch_tokens = 9, .window = 0}, {0}), {"window"}));
  EXPECT_TRUE(fails([&] { BatchPlan({}, {}, {.batch_size = 1}, -1); }, {"-1"}));
  const BatchPlan plan(Rows{0}, lengths, {.batch_size = 1}, 2);
  EXPECT_TRUE(fails([&] { plan.epoch(2); }, {"epoch 2 of 2"}));
  EXPECT_TRUE(fails([&] { plan.epoch(-1); }, {"epoch -1 of 2"}));
}

struct Source {
  Rows labels;
  std::vector<Part> parts;
  operator LabelledSet() const { return {"set", labels, {}, parts}; }
};

/// Class c appears about c + 1 times as often as class 0, in a fixed mixed order.
Source mixed(int32_t n, int32_t classes) {
  Source source;
  for (int32_t row = 0; row < n; ++row) {
    const uint64_t draw =
        RandomStream(fresh_seed(), Draw::kSplit, static_cast<uint64_t>(row)).below(classes * (classes + 1) / 2);
    int32_t label = 0;
    for (uint64_t end = 1; draw >= end; end += static_cast<uint64_t>(label) + 1) ++label;
    source.labels.push_back(label);
  }
  return source;
}

double count(const Rows& rows, const Source& source, int32_t label) {
  return static_cast<double>(
      std::count_if(rows.begin(), rows.end(), [&](int32_t row) { return source.labels[row] == label; }));
}

/// Checks that each part is ascending and all rows are distinct.
void expect_partition(const Split& split, size_t total, int32_t n) {
  std::set<int32_t> seen;
  size_t rows = 0;
  for (const Rows* part : {&split.train, &split.validation, &split.test}) {
    EXPECT_TRUE(std::is_sorted(part->begin(), part->end()));
    seen.insert(part->begin(), part->end());
    rows += part->size();
  }
  EXPECT_EQ(rows, total);
  EXPECT_EQ(seen.size(), total);
  EXPECT_TRUE(seen.empty() || (*seen.begin() >= 0 && *seen.rbegin() < n));
}

Sizes sizes(const Split& split) { return {split.train.size(), split.validation.size(), split.test.size()}; }

std::string split_error(const Source& source, const std::string& spec, const std::string& fold = "") {
  return error_of([&] { make_split(source, spec, fold, 1); });
}

TEST(Shuffle, IsAFixedPermutation) {
  Rows rows = rows_below(10), again = rows, other = rows;
  shuffle(std::span(rows), RandomStream(fresh_seed(), Draw::kEpoch, 3));
  shuffle(std::span(again), RandomStream(fresh_seed(), Draw::kEpoch, 3));
  EXPECT_EQ(rows, again);
  shuffle(std::span(other), RandomStream(fresh_seed(), Draw::kEpoch, 4));
  EXPECT_NE(rows, other);
  EXPECT_TRUE(std::is_permutation(rows.begin(), rows.end(), other.begin()));
  shuffle(std::span(rows).first(0), RandomStream(1, Draw::kEpoch, 0));
}

TEST(Shuffle, EveryOrderIsEquallyLikely) {
  std::map<Rows, int> counts;
  constexpr int kTrials = 24'000;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    Rows rows = {0, 1, 2, 3};
    shuffle(std::span(rows), RandomStream(fresh_seed() + trial, Draw::kEpoch, 0));
    ++counts[rows];
  }
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0;  // 23 degrees of freedom: above 100 with a probability of 1e-11
  for (const auto& [order, n] : counts) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 100);
}

TEST(Shuffle, NumbersBelowABound) {
  RandomStream stream(fresh_seed(), Draw::kSplit, 0);
  const uint64_t bound = (uint64_t{1} << 63) + 1;  // half of all draws are rejected
  for (int i = 0; i < 1000; ++i) EXPECT_LT(stream.below(bound), bound);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.below(1), 0u);
}

TEST(Split, PercentFractionsAndCounts) {
  const Source source = mixed(1003, 3);
  for (const auto& [spec, expected] : {std::pair("80/10/10", Sizes{803, 100, 100}),
                                       {"0.8/0.1/0.1", {803, 100, 100}},
                                       {"", {803, 100, 100}},
                                       {"700/101/202", {700, 101, 202}},
                                       {"5/0/7", {5, 0, 7}},
                                       {"1.0/0/0", {1003, 0, 0}},
                                       {"33.3/33.3/33.4", {334, 334, 335}},
                                       {"99.5/0.5/0", {998, 5, 0}},
                                       {"50/0/50", {501, 0, 502}}}) {
    SCOPED_TRACE(spec);
    const Split split = make_split(source, spec, "", fresh_seed());
    EXPECT_EQ(sizes(split), expected);
    expect_partition(split, expected[0] + expected[1] + expected[2], 1003);
  }
}

TEST(Split, DependsOnTheSeedAlone) {
  const Source source = mixed(500, 2);
  const Split split = make_split(source, "80/10/10", "", fresh_seed());
  const Split again = make_split(source, "0.80/.1/0.1", "", fresh_seed());
  EXPECT_EQ(again.train, split.train);
  EXPECT_EQ(again.test, split.test);
  EXPECT_NE(make_split(source, "80/10/10", "", fresh_seed() + 1).test, split.test);
}

TEST(Split, OfficialHoldsOutATenth) {
  Source source = mixed(1000, 2);
  for (int32_t row = 0; row < 1000; ++row) source.parts.push_back(row < 600 ? Part::kTrain : Part::kTest);
  for (const std::string spec : {"official", ""}) {
    const Split split = make_split(source, spec, "", fresh_seed());
    EXPECT_EQ(sizes(split), (Sizes{540, 60, 400}));
    expect_partition(split, 1000, 1000);
    EXPECT_EQ(split.test.front(), 600);
    for (int32_t label = 0; label < 2; ++label) {
      const double held_out = count(split.validation, source, label);
      EXPECT_NEAR(held_out, (count(split.train, source, label) + held_out) / 10, 1.0);
    }
  }
  EXPECT_NE(make_split(source, "", "", fresh_seed()).validation,
            make_split(source, "", "", fresh_seed() + 1).validation);
  source.parts[3] = Part::kValidation;
  EXPECT_EQ(make_split(source, "official", "", fresh_seed()).validation, Rows{3});
}

TEST(Split, TrainAndTestAlone) {
  Source source = mixed(1000, 2);
  for (int32_t row = 0; row < 1000; ++row)
    source.parts.push_back(row % 5 == 4 ? Part::kTest : row % 3 == 1 ? Part::kValidation : Part::kTrain);
  const Split split = make_split(source, "train-test", "", fresh_seed());
  EXPECT_EQ(sizes(split), (Sizes{800, 0, 200}));
  expect_partition(split, 1000, 1000);
  for (const int32_t row : split.test) EXPECT_EQ(row % 5, 4);
  source.parts.clear();
  EXPECT_TRUE(contains(split_error(source, "train-test"), {"train-test", "no official split"}));
}

TEST(Split, Folds) {
  for (const int32_t k : {2, 3, 7, 10}) {
    const Source source = mixed(431, 4);
    std::vector<int> tested(431, 0);
    for (int32_t i = 1; i <= k; ++i) {
      const Split split = make_split(source, "", std::to_string(i) + "/" + std::to_string(k), fresh_seed());
      expect_partition(split, 431, 431);
      EXPECT_NEAR(static_cast<double>(split.test.size()), 431.0 / k, 1.0);
      EXPECT_NEAR(static_cast<double>(split.validation.size()), (431.0 - split.test.size()) / 10, 0.5);
      for (const int32_t row : split.test) ++tested[row];
      for (int32_t label = 0; label < 4; ++label) {
        const double all = count(rows_below(431), source, label), rest = all - count(split.test, source, label);
        EXPECT_NEAR(all - rest, all / k, 1.0);
        // Each label has its share of the held-out rows, rounded up or down.
        const double share = static_cast<double>(split.validation.size()) * rest / (431.0 - split.test.size());
        EXPECT_LT(std::abs(count(split.validation, source, label) - share), 1.0);
      }
    }
    EXPECT_EQ(std::count(tested.begin(), tested.end(), 1), 431);
  }
}

TEST(Split, HoldOutTakesExactlyTheCount) {
  const Source source = mixed(97, 3);
  const Rows rows = rows_below(97);
  for (const int64_t n : {0, 1, 50, 96, 97}) {
    const auto [taken, left] = hold_out(rows, source.labels, n, fresh_seed(), 2);
    EXPECT_EQ(taken.size(), static_cast<size_t>(n));
    expect_partition({taken, left, {}}, 97, 97);
  }
  EXPECT_TRUE(fails([&] { hold_out(rows, source.labels, 98, 1, 2); }, {"98 of 97"}));
}

TEST(Split, Errors) {
  const Source source = mixed(100, 2);
  for (const std::string spec : {"80/20", "80/10/10/0", "a/b/c", "80//20", "-1/2/3", "1e1/2/3", "80/10/10 ", "/",
                                 "random", "..1/1/1", "1/2/."}) {
    EXPECT_TRUE(contains(split_error(source, spec), {"\"" + spec + "\"", "official, train-test, 80/10/10", "all"}))
        << spec;
  }
  EXPECT_TRUE(contains(split_error(source, "0.8/0.1/0.2"), {"sum to 1", "1.1"}));
  EXPECT_TRUE(contains(split_error(source, "80/10/11"), {"needs 101 rows", "has 100"}));
  EXPECT_TRUE(contains(split_error(source, "99999999999999999999999999/1/1"), {"rows", "has 100"}));
  EXPECT_TRUE(contains(split_error(source, "0/50/50"), {"no row to train on"}));
  EXPECT_TRUE(contains(split_error(source, "official"), {"no official split"}));
  for (const std::string fold :
       {"0/5", "6/5", "1/1", "1", "1/", "/5", "a/5", "1/5x", "-1/5", "1/99999999999999999999"}) {
    EXPECT_TRUE(contains(split_error(source, "", fold), {"\"" + fold + "\"", "i/k"})) << fold;
  }
  EXPECT_TRUE(contains(split_error(source, "", "1/101"), {"only 100 rows"}));
  EXPECT_TRUE(contains(split_error(source, "all", "1/5"), {"exclude each other"}));
  EXPECT_TRUE(contains(split_error({}, ""), {"no row to train on", "0 rows"}));
  EXPECT_TRUE(contains(split_error({{0, 1}, {Part::kTest}}, ""), {"2 labels", "1 official"}));
}

TEST(Split, AllAndTinySets) {
  EXPECT_EQ(sizes(make_split(mixed(10, 2), "all", "", fresh_seed())), (Sizes{10, 0, 0}));
  EXPECT_EQ(sizes(make_split(mixed(1, 1), "", "", 0)), (Sizes{1, 0, 0}));
  EXPECT_EQ(sizes(make_split(mixed(5, 2), "", "", 0)), (Sizes{3, 1, 1}));
  EXPECT_EQ(sizes(make_split(mixed(2, 1), "", "1/2", 0)), (Sizes{1, 0, 1}));
}

/// Fails unless `hits` of `draws` are within six standard deviations of the probability.
void expect_share(int64_t hits, int64_t draws, double probability) {
  const double n = static_cast<double>(draws), deviation = std::sqrt(n * probability * (1 - probability));
  EXPECT_NEAR(static_cast<double>(hits), n * probability, 6 * deviation);
}

TEST(Sampler, WeightedDrawsHaveTheProbabilitiesOfTheirWeights) {
  const std::vector<double> weights = {0, 1, 4, 0, 2.5, 0.5, 0};
  constexpr int64_t kDraws = 40000;
  const Sampler with = weighted_sampler(weights, {.samples = kDraws, .seed = fresh_seed()});
  const Rows rows = with.order(3);
  EXPECT_EQ(rows, with.order(3));
  EXPECT_NE(rows, with.order(4));
  ASSERT_EQ(rows.size(), static_cast<size_t>(kDraws));
  const Sampler without = weighted_sampler(weights, {.samples = 4, .replacement = false, .seed = fresh_seed()});
  std::map<int32_t, int64_t> first;
  std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
  for (int64_t epoch = 0; epoch < kDraws; ++epoch) {
    const Rows drawn = without.order(epoch);
    ASSERT_EQ(std::set<int32_t>(drawn.begin(), drawn.end()), (std::set<int32_t>{1, 2, 4, 5}));
    ++first[drawn[0]];
    ++pairs[{drawn[0], drawn[1]}];
  }
  for (int32_t row = 0; row < 7; ++row) {
    expect_share(std::count(rows.begin(), rows.end(), row), kDraws, weights[row] / 8);
    expect_share(first[row], kDraws, weights[row] / 8);
    for (int32_t next = 0; next < 7; ++next)
      expect_share(pairs[{row, next}], kDraws, row == next ? 0 : weights[row] / 8 * weights[next] / (8 - weights[row]));
  }
}

TEST(Sampler, RanksShareRowsAsPyTorchsDistributedSampler) {
  for (const int64_t size : {0, 1, 3, 10, 12, 13})
    for (const bool drop_last : {false, true}) {
      const Sampler all = random_sampler(size, fresh_seed());
      // torch/utils/data/distributed.py: total_size, padding and the slice of a rank.
      Rows indices = all.order(2);
      if (size > 0) expect_every_row_once({indices, {0, size}}, rows_below(static_cast<int32_t>(size)));
      const int64_t total = drop_last ? size / 4 * 4 : (size + 3) / 4 * 4;
      for (size_t i = 0; static_cast<int64_t>(indices.size()) < total; ++i) indices.push_back(indices[i]);
      for (int64_t rank = 0; rank < 4; ++rank) {
        Rows expected;
        for (int64_t i = rank; i < total; i += 4) expected.push_back(indices[static_cast<size_t>(i)]);
        const Sampler share = distributed_sampler(all, {.rank = rank, .ranks = 4, .drop_last = drop_last});
        EXPECT_EQ(share.order(2), expected);
        EXPECT_EQ(share.size, static_cast<int64_t>(expected.size()));
      }
    }
}

TEST(Sampler, OrdersAndErrors) {
  EXPECT_EQ(sequential_sampler(3).order(7), rows_below(3));
  EXPECT_TRUE(weighted_sampler({}, {}).order(0).empty());
  const Sampler subset = subset_sampler({9, 4, 7, 5, 1, 2, 8, 3}, fresh_seed());
  EXPECT_NE(subset.order(0), subset.order(1));
  Rows rows = subset.order(0);
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (Rows{1, 2, 3, 4, 5, 7, 8, 9}));
  EXPECT_TRUE(fails([] { sequential_sampler(-1); }, {"sequential_sampler", "-1"}));
  EXPECT_TRUE(fails([] { random_sampler(int64_t{1} << 31, 0); }, {"random_sampler", "2147483648"}));
  const auto weighted = [](std::vector<double> weights, const WeightedOptions& options) {
    return [=] { weighted_sampler(weights, options); };
  };
  EXPECT_TRUE(fails(weighted({1, -1}, {}), {"row 1", ">= 0", "-1"}));
  EXPECT_TRUE(fails(weighted({NAN}, {}), {"row 0", "nan"}));
  EXPECT_TRUE(fails(weighted({1, INFINITY}, {}), {"row 1", "inf"}));
  EXPECT_TRUE(fails(weighted({1e308, 1e308}, {.samples = 1}), {"sum"}));
  EXPECT_TRUE(fails(weighted({0, 0}, {.samples = 1}), {"1 samples need a positive weight"}));
  EXPECT_TRUE(fails(weighted({1, 0, 1}, {.samples = 3, .replacement = false}), {"3 samples", "got 2"}));
  EXPECT_TRUE(fails([] { distributed_sampler(sequential_sampler(3), {.rank = 2, .ranks = 2}); }, {"rank 2 of 2"}));
  EXPECT_TRUE(fails([] { distributed_sampler({}, {}); }, {"no sampler"}));
  const Sampler short_one{4, [](int64_t) { return rows_below(0); }};
  EXPECT_TRUE(fails([&] { distributed_sampler(short_one, {}).order(1); }, {"of 4 rows gave 0 in epoch 1"}));
}

}  // namespace
}  // namespace tern::data
