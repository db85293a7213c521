#include "tern/nn/metrics/metric.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/parameter.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/nn/metrics/exact_sum.h"

namespace tern {
namespace {

constexpr int64_t kSumSize = detail::kExactSize;
constexpr int64_t kMostExamples = int64_t{1} << 53;  // more are not counted in a lifetime, and ratios would be rounded

/// Whether terms can give the sum: words after carry_exact(), the last of them and the numbers of NaN and infinities
/// small, and nothing without terms.
bool is_sum_of(int64_t terms, std::span<const int64_t> words, bool is_signed, double greatest) {
  int64_t beyond = 0;
  bool zero = true;
  for (size_t i = 0; i < words.size(); ++i) {
    zero = zero && words[i] == 0;
    if (i + 1 < detail::kExactWords && (words[i] < 0 || words[i] >> 32 != 0)) return false;
    if (i + 1 == detail::kExactWords && (words[i] >> 32 != 0) && (!is_signed || words[i] >> 32 != -1)) return false;
    if (i < detail::kExactWords) continue;
    if (words[i] < 0 || words[i] > terms - beyond) return false;
    beyond += words[i];
  }
  if (std::isfinite(greatest) && !(detail::value_of_exact(words) <= greatest * static_cast<double>(terms)))
    return false;
  return terms > 0 || zero;
}

}  // namespace

double detail::ratio(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

std::vector<int64_t> detail::metric_integers(const char* name, const char* what, const Tensor& tensor) {
  TERN_CHECK(tensor.defined() && !is_floating(tensor.dtype()), name, ": ", what, " must be integers, got ",
             tensor.defined() ? name_of(tensor.dtype()) : "an undefined tensor", "; convert them with .to(int64)");
  return tensor.detach().to(int64).to(cpu).to_vector<int64_t>();
}

std::vector<double> detail::metric_numbers(const char* name, const char* what, const Tensor& tensor, bool nan_allowed) {
  TERN_CHECK(tensor.defined() && is_floating(tensor.dtype()), name, ": ", what, " must be floating, got ",
             tensor.defined() ? name_of(tensor.dtype()) : "an undefined tensor");
  std::vector<double> values = tensor.detach().to(cpu).to(float64).to_vector<double>();
  for (size_t i = 0; i < values.size() && !nan_allowed; ++i)
    TERN_CHECK(!std::isnan(values[i]), name, ": element ", i, " of ", what, " is NaN");
  return values;
}

namespace nn {

CountMetric::CountMetric(const char* name, const Layout& layout)
    : Metric(name), layout_(layout), width_(layout.counts + layout.sums * kSumSize) {
  detail::check_host_list(name, layout.records * width_);
  counts_.resize(static_cast<size_t>(layout.records * width_));
}

void CountMetric::reset() { std::fill(counts_.begin(), counts_.end(), 0); }

StateView CountMetric::state_dict() const {
  return {{"counts", from_vector(counts_, {static_cast<int64_t>(counts_.size())})}};
}

void CountMetric::load_state_dict(const StateView& state) {
  const StateView loaded = state_dict();
  const Tensor given = find(state, "counts");
  TERN_CHECK(!given.defined() || !is_floating(given.dtype()), name_, ": the state's counts must be integers, got ",
             given.describe());
  load_state(loaded, state);
  const Counts counts = loaded[0].tensor.to_vector<int64_t>();
  TERN_CHECK(is_possible(counts), name_, ": no examples give the state's counts; it is damaged, or of another metric");
  counts_ = counts;
}

CountMetric::Counts CountMetric::total(const GatherRanks& gather) const {
  if (!gather) return counts_;
  Counts all(counts_.size());
  for (const Tensor& part : gather(state_dict()[0].tensor)) {
    const Counts own = part.to_vector<int64_t>();
    TERN_CHECK(own.size() == all.size(), name_, ": the ranks' metrics have different options");
    for (size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  }
  return all;
}

std::span<int64_t> CountMetric::sum(int64_t record, int64_t i) {
  return std::span(counts_).subspan(place(record, layout_.counts + i * kSumSize), kSumSize);
}

std::span<const int64_t> CountMetric::sum_in(const Counts& counts, int64_t record, int64_t i) const {
  return std::span(counts).subspan(place(record, layout_.counts + i * kSumSize), kSumSize);
}

void CountMetric::carry() {
  for (int64_t record = 0; record < layout_.records; ++record)
    for (int64_t i = 0; i < layout_.sums; ++i) detail::carry_exact(sum(record, i));
}

bool CountMetric::is_possible(const Counts& counts) const {
  int64_t all = 0;
  for (int64_t record = 0; record < layout_.records; ++record) {
    const int64_t examples = counts[place(record, 0)];
    if (examples < 0 || examples > kMostExamples - all) return false;
    all += examples;
    for (int64_t i = 1; i < layout_.counts; ++i)
      if (counts[place(record, i)] < 0 || counts[place(record, i)] > examples) return false;
    for (int64_t i = 0; i < layout_.sums; ++i)
      if (!is_sum_of(examples, sum_in(counts, record, i), i < layout_.signed_sums, layout_.greatest)) return false;
  }
  return true;
}

void Share::add(int64_t part, int64_t examples) {
  count(0) += examples;
  count(0, 1) += part;
}

double Share::compute(const GatherRanks& gather) const {
  const Counts all = total(gather);
  return detail::ratio(all[1], all[0]);
}

void Mean::add(double term, int64_t examples) {
  detail::add_exact(sum(0, 0), term);
  count(0) += examples;
}

void Mean::update(const Tensor& values) {
  for (const double value : detail::metric_numbers(name_, "values", values, true)) add(value);
  carry();
}

void Mean::update(double sum, int64_t examples) {
  TERN_CHECK(examples >= 0, name_, ": the number of examples must not be negative, got ", examples);
  if (examples > 0) add(sum, examples);
  carry();
}

double Mean::compute(const GatherRanks& gather) const {
  const Counts all = total(gather);
  return detail::value_of_exact(sum_in(all, 0, 0)) / static_cast<double>(all[0]);
}

void ScoreMetric::reset() {
  scores_.clear();
  targets_.clear();
}

void ScoreMetric::add(const std::vector<double>& scores, const std::vector<double>& targets) {
  scores_.insert(scores_.end(), scores.begin(), scores.end());
  targets_.insert(targets_.end(), targets.begin(), targets.end());
}

StateView ScoreMetric::state_dict() const {
  const auto rows = static_cast<int64_t>(targets_.size());
  return {{"scores", from_vector(scores_, {rows, columns_})}, {"targets", from_vector(targets_, {rows})}};
}

void ScoreMetric::load_state_dict(const StateView& state) {
  const Tensor scores = find(state, "scores"), targets = find(state, "targets");
  TERN_CHECK(state.size() == 2 && scores.defined() && targets.defined() && scores.dtype() == float64 &&
                 scores.dim() == 2 && scores.size(1) == columns_ && targets.dtype() == float64 &&
                 targets.shape() == Shape({scores.size(0)}),
             name_, ": the state must be \"scores\", float64 [n, ", columns_, "], and \"targets\", float64 [n]");
  const std::vector<double> values = scores.to_vector<double>(), wanted = targets.to_vector<double>();
  check(values, wanted);
  scores_ = values;
  targets_ = wanted;
}

double ScoreMetric::compute(const GatherRanks& gather) const {
  if (!gather) return of(scores_, targets_);
  const auto all = [&](const std::vector<double>& own) {
    std::vector<double> joined;
    for (const Tensor& part : gather(from_vector(own, {static_cast<int64_t>(own.size())}))) {
      const std::vector<double> values = part.to_vector<double>();
      joined.insert(joined.end(), values.begin(), values.end());
    }
    return joined;
  };
  const std::vector<double> scores = all(scores_), targets = all(targets_);
  return of(scores, targets);
}

}  // namespace nn
}  // namespace tern
