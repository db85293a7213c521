// Splits: sizes, disjointness, strata, reproducibility, errors.

#include "tern/data/samplers/split.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tern/data/samplers/shuffle.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Rows = std::vector<int32_t>;
using Sizes = std::array<size_t, 3>;  // of train, validation and test

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

int64_t count(const Rows& rows, const Source& source, int32_t label) {
  return std::count_if(rows.begin(), rows.end(), [&](int32_t row) { return source.labels[row] == label; });
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
  for (const std::string spec : {"80/10/10", "0.8/0.1/0.1", ""}) {
    const Split split = make_split(source, spec, "", fresh_seed());
    EXPECT_EQ(sizes(split), (Sizes{803, 100, 100})) << spec;
    expect_partition(split, 1003, 1003);
  }
  EXPECT_EQ(make_split(source, "80/10/10", "", fresh_seed()).train,
            make_split(source, "0.80/.1/0.1", "", fresh_seed()).train);
  const Split counts = make_split(source, "700/101/202", "", fresh_seed());
  EXPECT_EQ(sizes(counts), (Sizes{700, 101, 202}));
  expect_partition(counts, 1003, 1003);
  const Split fewer = make_split(source, "5/0/7", "", fresh_seed());
  EXPECT_EQ(sizes(fewer), (Sizes{5, 0, 7}));
  expect_partition(fewer, 12, 1003);
  EXPECT_EQ(sizes(make_split(source, "1.0/0/0", "", fresh_seed())), (Sizes{1003, 0, 0}));
  EXPECT_EQ(sizes(make_split(source, "50/0/50", "", fresh_seed())), (Sizes{501, 0, 502}));
}

TEST(Split, DependsOnTheSeedAlone) {
  const Source source = mixed(500, 2);
  EXPECT_EQ(make_split(source, "80/10/10", "", fresh_seed()).test,
            make_split(source, "80/10/10", "", fresh_seed()).test);
  EXPECT_NE(make_split(source, "80/10/10", "", fresh_seed()).test,
            make_split(source, "80/10/10", "", fresh_seed() + 1).test);
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
      const double share =
          static_cast<double>(count(split.train, source, label) + count(split.validation, source, label)) / 10;
      EXPECT_NEAR(static_cast<double>(count(split.validation, source, label)), share, 1.0);
    }
  }
  EXPECT_NE(make_split(source, "", "", fresh_seed()).validation,
            make_split(source, "", "", fresh_seed() + 1).validation);
  source.parts[3] = Part::kValidation;
  EXPECT_EQ(make_split(source, "official", "", fresh_seed()).validation, Rows{3});
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
        const double all = static_cast<double>(std::count(source.labels.begin(), source.labels.end(), label));
        EXPECT_NEAR(static_cast<double>(count(split.test, source, label)), all / k, 1.0);
        const double rest = all - static_cast<double>(count(split.test, source, label));
        // Of the held-out rows each label has its share, rounded up or down.
        const double share = static_cast<double>(split.validation.size()) * rest / (431.0 - split.test.size());
        EXPECT_LT(std::abs(static_cast<double>(count(split.validation, source, label)) - share), 1.0);
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
    EXPECT_TRUE(contains(split_error(source, spec), {"\"" + spec + "\"", "official, 80/10/10", "all"})) << spec;
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

}  // namespace
}  // namespace tern::data
