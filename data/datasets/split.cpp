#include "tern/data/datasets/split.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string_view>
#include <tuple>

#include "tern/core/io/pickle.h"
#include "tern/data/plan/shuffle.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr const char* kForms =
    "; accepted: official, train-test, 80/10/10 or 33.3/33.3/33.4 (percent), 0.8/0.1/0.1, 35000/5000/10000 (rows of "
    "train/validation/test), all";

std::vector<int32_t> range(int64_t begin, int64_t end) {
  std::vector<int32_t> rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(begin));
  return rows;
}

/// Shuffles the rows, orders them by class and deals them round-robin to `piles` piles: each pile has every class's
/// share up to one row, and pile sizes differ by at most one.
std::vector<int32_t> stratified_deal(const std::vector<int32_t>& rows, const std::vector<int32_t>& labels,
                                     int64_t piles, RandomStream stream) {
  std::vector<int32_t> order = range(0, static_cast<int64_t>(rows.size()));
  shuffle(std::span(order), stream);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return labels[rows[a]] < labels[rows[b]]; });
  std::vector<int32_t> hand(rows.size());
  for (size_t i = 0; i < order.size(); ++i) hand[order[i]] = static_cast<int32_t>(i % static_cast<size_t>(piles));
  return hand;
}

struct Numbers {
  std::array<double, 3> value{};
  bool decimal = false;
};

/// Parses "a/b/c", three non-negative numbers.
bool parse_three(const std::string& spec, Numbers& numbers) {
  std::string_view rest = spec;
  for (int i = 0; i < 3; ++i) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if ((slash == rest.npos) != (i == 2) || part.find_first_not_of("0123456789.") != part.npos) return false;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), numbers.value[i]);
    if (error != std::errc() || end != part.data() + part.size()) return false;
    numbers.decimal = numbers.decimal || part.find('.') != part.npos;
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  }
  return true;
}

/// Parses "i/k".
bool parse_fold(const std::string& fold, uint32_t& i, uint32_t& k) {
  const char* const end = fold.data() + fold.size();
  const auto first = std::from_chars(fold.data(), end, i);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '/') return false;
  const auto second = std::from_chars(first.ptr + 1, end, k);
  return second.ec == std::errc() && second.ptr == end;
}

/// Numbers of train, validation and test rows out of n.
std::array<int64_t, 3> part_sizes(const LabelledSet& set, const std::string& spec, int64_t n) {
  Numbers numbers;
  TERN_CHECK(parse_three(spec, numbers), "split \"", detail::printable(spec), "\" is not understood", kForms);
  const auto& [train, validation, test] = numbers.value;
  const double sum = train + validation + test;
  double whole = 0;  // the total that corresponds to all rows
  if (numbers.decimal) {
    whole = std::abs(sum - 100) < 1e-4 ? 100 : 1;
    TERN_CHECK(std::abs(sum - whole) < 1e-6 * whole, "split \"", detail::printable(spec),
               "\": the fractions must sum to 1, or ", "as percent to 100, not ", sum, kForms);
  } else if (sum == 100) {
    whole = 100;
  }
  if (whole == 0) {
    TERN_CHECK(sum <= static_cast<double>(n), "split \"", detail::printable(spec), "\": needs ",
               static_cast<int64_t>(std::min(sum, 1e18)), " rows, but ", set.name, " has ", n);
    return {static_cast<int64_t>(train), static_cast<int64_t>(validation), static_cast<int64_t>(test)};
  }
  const int64_t validation_rows = std::min<int64_t>(n, std::llround(static_cast<double>(n) * validation / whole));
  const int64_t test_rows = std::min<int64_t>(n - validation_rows, std::llround(static_cast<double>(n) * test / whole));
  return {n - validation_rows - test_rows, validation_rows, test_rows};
}

Split random_split(const LabelledSet& set, const std::string& spec, uint64_t seed) {
  const int64_t n = set.size();
  const auto [train, validation, test] = part_sizes(set, spec, n);
  std::vector<int32_t> order = range(0, n);
  shuffle(std::span(order), RandomStream(seed, Draw::kSplit, 0));
  auto take = [at = order.begin()](int64_t count) mutable {
    std::vector<int32_t> rows(at, at + count);
    at += count;
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  Split split;
  split.train = take(train);
  split.validation = take(validation);
  split.test = take(test);
  return split;
}

int64_t tenth(const std::vector<int32_t>& rows) { return std::llround(static_cast<double>(rows.size()) / 10); }

/// The official parts as they are.
Split official_parts(const LabelledSet& set, const char* spec) {
  TERN_CHECK(!set.parts.empty(), "split \"", spec, "\": ", set.name, " has no official split", kForms);
  Split split;
  for (size_t row = 0; row < set.parts.size(); ++row) {
    const Part part = set.parts[row];
    auto& rows = part == Part::kTrain ? split.train : part == Part::kValidation ? split.validation : split.test;
    rows.push_back(static_cast<int32_t>(row));
  }
  return split;
}

Split official_split(const LabelledSet& set, uint64_t seed) {
  Split split = official_parts(set, "official");
  if (!split.validation.empty()) return split;
  std::tie(split.validation, split.train) = hold_out(split.train, set.labels, tenth(split.train), seed, 0);
  return split;
}

Split train_test_split(const LabelledSet& set) {
  Split split = official_parts(set, "train-test");
  std::vector<int32_t> train;
  std::ranges::merge(split.train, split.validation, std::back_inserter(train));
  return {.train = std::move(train), .validation = {}, .test = std::move(split.test)};
}

Split fold_split(const LabelledSet& set, const std::string& fold, uint64_t seed) {
  const int64_t n = set.size();
  uint32_t i = 0, k = 0;
  TERN_CHECK(parse_fold(fold, i, k) && k >= 2 && i >= 1 && i <= k, "fold \"", detail::printable(fold),
             "\" is not understood; accepted: i/k with 2 <= k and 1 <= i <= k, for example 1/5");
  TERN_CHECK(k <= n, "fold \"", detail::printable(fold), "\": ", set.name, " has only ", n, " rows");
  const std::vector<int32_t> hand = stratified_deal(range(0, n), set.labels, k, RandomStream(seed, Draw::kFold, k));
  Split split;
  for (int32_t row = 0; row < n; ++row)
    (hand[row] + 1 == static_cast<int32_t>(i) ? split.test : split.train).push_back(row);
  std::tie(split.validation, split.train) = hold_out(split.train, set.labels, tenth(split.train), seed, i);
  return split;
}

}  // namespace

bool is_split(const std::string& text) {
  Numbers numbers;
  return text == "official" || text == "train-test" || text == "all" || parse_three(text, numbers);
}

bool is_fold(const std::string& text) {
  uint32_t i = 0, k = 0;
  return parse_fold(text, i, k);
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> hold_out(const std::vector<int32_t>& rows,
                                                               const std::vector<int32_t>& labels, int64_t count,
                                                               uint64_t seed, uint64_t index) {
  // Every (rows / count)-th row in shuffled order, sorted by class: the quantiles of that order.
  std::vector<int32_t> order = rows;
  shuffle(std::span(order), RandomStream(seed, Draw::kHoldOut, index));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return labels[a] < labels[b]; });
  const int64_t n = static_cast<int64_t>(order.size());
  TERN_CHECK(count >= 0 && count <= n, "hold_out: cannot take ", count, " of ", n, " rows");
  std::pair<std::vector<int32_t>, std::vector<int32_t>> parts;
  for (int64_t i = 0; i < n; ++i) {
    const bool taken = (i + 1) * count / n > i * count / n;
    (taken ? parts.first : parts.second).push_back(order[i]);
  }
  std::sort(parts.first.begin(), parts.first.end());
  std::sort(parts.second.begin(), parts.second.end());
  return parts;
}

Split make_split(const LabelledSet& set, const std::string& spec, const std::string& fold, uint64_t seed) {
  TERN_CHECK(set.parts.empty() || set.parts.size() == set.labels.size(), set.name, ": ", set.labels.size(),
             " labels but ", set.parts.size(), " official parts");
  TERN_CHECK(fold.empty() || spec.empty(), "split \"", detail::printable(spec), "\" and fold \"", fold,
             "\" exclude each other: give one");
  Split split;
  if (!fold.empty()) {
    split = fold_split(set, fold, seed);
  } else if (spec == "all") {
    split.train = range(0, set.size());
  } else if (spec == "train-test") {
    split = train_test_split(set);
  } else if (spec == "official" || (spec.empty() && !set.parts.empty())) {
    split = official_split(set, seed);
  } else {
    split = random_split(set, spec.empty() ? "80/10/10" : spec, seed);
  }
  TERN_CHECK(!split.train.empty(), set.name, ": the split leaves no row to train on (", set.labels.size(),
             " rows, split \"", detail::printable(spec.empty() ? fold : spec), "\")");
  return split;
}

}  // namespace tern::data
