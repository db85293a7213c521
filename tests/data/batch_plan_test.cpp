// Batch plans: each row occurs once, budgets are kept, little capacity is unused, seed and epoch determine the plan.

#include "tern/data/samplers/batch_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Rows = std::vector<int32_t>;

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
      expect_every_row_once(plan.epoch(epoch), rows_below(10'000));
      for (int64_t step = 0; step < plan.steps(epoch); ++step) {
        EXPECT_LE(tokens(plan.epoch(epoch).batch(step), lengths), budget);
      }
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
  const EpochPlan& epoch = plan.epoch(0);
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
    BatchPlanOptions options;
    options.batch_tokens = budget;
    options.max_sequences = static_cast<int64_t>(random() % 4);
    options.shuffle = random() % 2 == 0;
    options.window = 1 + static_cast<int64_t>(random() % 20);
    options.seed = random();
    const BatchPlan plan(rows, lengths, options, 1);
    expect_every_row_once(plan.epoch(0), rows);
    int64_t maximum = 0, longest = 0;
    for (int64_t step = 0; step < plan.steps(0); ++step) {
      const auto batch = plan.epoch(0).batch(step);
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
  const Rows lengths = {3, 3, 3, 3, 3};
  const EpochPlan plan = plan_epoch(rows_below(5), lengths, {.batch_tokens = 7, .shuffle = false}, 0);
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
    EXPECT_EQ(plan.epoch(2).rows, plan_epoch(rows_below(300), lengths, options, 2).rows);
    EXPECT_NE(plan.epoch(0).rows, plan.epoch(1).rows);
    options.seed = fresh_seed() + 1;
    EXPECT_NE(plan.epoch(0).rows, plan_epoch(rows_below(300), lengths, options, 0).rows);
    options.shuffle = false;
    const BatchPlan fixed(rows_below(300), lengths, options, 2);
    EXPECT_EQ(fixed.epoch(0).rows, fixed.epoch(1).rows);
  }
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
  expect_every_row_once(grouped.epoch(0), rows_below(5'003));
  EXPECT_EQ(grouped.steps(0), plain.steps(0));
  EXPECT_GT(grouped.fill(), 0.95);
  EXPECT_LT(plain.fill(), 0.75);
  EXPECT_EQ(lengths[grouped.epoch(0).batch(0)[0]], grouped.longest());
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

}  // namespace
}  // namespace tern::data
