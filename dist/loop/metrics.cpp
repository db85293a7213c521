#include "tern/dist/loop/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tern/core/autograd/parameter.h"
#include "tern/core/tensor/size_checks.h"
#include "tern/dist/collectives/exact_sum.h"
#include "tern/dist/collectives/gather_tensors.h"

namespace tern::dist {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kSumSize = detail::kExactSize;
constexpr int64_t kMostExamples = int64_t{1} << 53;  // more are not counted in a lifetime, and ratios would be rounded

double ratio(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

std::vector<int64_t> integers_of(const char* name, const char* what, const Tensor& tensor) {
  TERN_CHECK(tensor.defined() && !is_floating(tensor.dtype()), name, ": ", what, " must be integers, got ",
             tensor.defined() ? name_of(tensor.dtype()) : "an undefined tensor", "; convert them with .to(int64)");
  return tensor.detach().to(int64).to(cpu).to_vector<int64_t>();
}

/// Floating values on the host, without NaN unless it is allowed.
std::vector<double> numbers_of(const char* name, const char* what, const Tensor& tensor, bool nan_allowed = false) {
  TERN_CHECK(tensor.defined() && is_floating(tensor.dtype()), name, ": ", what, " must be floating, got ",
             tensor.defined() ? name_of(tensor.dtype()) : "an undefined tensor");
  std::vector<double> values = tensor.detach().to(cpu).to(float64).to_vector<double>();
  for (size_t i = 0; i < values.size() && !nan_allowed; ++i)
    TERN_CHECK(!std::isnan(values[i]), name, ": element ", i, " of ", what, " is NaN");
  return values;
}

std::vector<int64_t> targets_of(const char* name, const Tensor& targets, int64_t rows, int64_t classes) {
  const std::vector<int64_t> values = integers_of(name, "targets", targets);
  TERN_CHECK(targets.dim() == 1 && targets.size(0) == rows, name, ": targets must be [", rows, "], got ",
             targets.shape());
  for (size_t i = 0; i < values.size(); ++i)
    TERN_CHECK(values[i] >= 0 && values[i] < classes, name, ": target ", i, " is ", values[i], ", expected 0 to ",
               classes - 1);
  return values;
}

/// Scores [n, columns], row by row. classes: the columns that are needed; 0: any number from 1.
std::vector<double> scores_of(const char* name, const Tensor& scores, int64_t classes) {
  const std::vector<double> values = numbers_of(name, "scores", scores);
  TERN_CHECK(scores.dim() == 2 && (classes > 0 ? scores.size(1) == classes : scores.size(1) > 0), name,
             ": scores must be [n, ", classes > 0 ? std::to_string(classes) : "classes", "], got ", scores.shape());
  return values;
}

/// The first of the greatest in each row.
std::vector<int64_t> greatest_of(const std::vector<double>& scores, int64_t columns) {
  std::vector<int64_t> places;
  for (auto row = scores.begin(); row != scores.end(); row += columns)
    places.push_back(std::max_element(row, row + columns) - row);
  return places;
}

/// Predicted classes below `classes`.
std::vector<int64_t> predicted_classes(const char* name, const Tensor& predictions,
                                       const ClassificationOptions& options) {
  if (predictions.defined() && is_floating(predictions.dtype())) {
    if (options.classes != 2 || predictions.dim() != 1)
      return greatest_of(scores_of(name, predictions, options.classes), options.classes);
    std::vector<int64_t> classes;
    for (const double score : numbers_of(name, "scores", predictions)) classes.push_back(score > options.threshold);
    return classes;
  }
  const std::vector<int64_t> values = integers_of(name, "predictions", predictions);
  TERN_CHECK(predictions.dim() == 1, name, ": predicted classes must be [n], got ", predictions.shape());
  for (size_t i = 0; i < values.size(); ++i)
    TERN_CHECK(values[i] >= 0 && values[i] < options.classes, name, ": prediction ", i, " is ", values[i],
               ", expected 0 to ", options.classes - 1);
  return values;
}

/// Checked elements of predictions and targets, in pairs.
std::vector<std::pair<double, double>> pairs_of(const char* name, const Tensor& predictions, const Tensor& targets) {
  const std::vector<double> p = numbers_of(name, "predictions", predictions, true);
  const std::vector<double> t = numbers_of(name, "targets", targets, true);
  TERN_CHECK(predictions.shape() == targets.shape(), name, ": predictions are ", predictions.shape(), " and targets ",
             targets.shape(), ", expected the same shape");
  std::vector<std::pair<double, double>> pairs;
  for (size_t i = 0; i < p.size(); ++i) pairs.emplace_back(p[i], t[i]);
  return pairs;
}

std::span<int64_t> part_of(std::vector<int64_t>& counts, int64_t first) {
  return std::span(counts).subspan(static_cast<size_t>(first), kSumSize);
}
double sum_in(const std::vector<int64_t>& counts, int64_t first) {
  return detail::value_of_exact(std::span(counts).subspan(static_cast<size_t>(first), kSumSize));
}

/// The elements of a confusion matrix, checked before there are any.
size_t matrix_size(const char* name, int64_t classes) {
  TERN_CHECK(classes >= 2 && classes <= 1 << 15, name, ": classes must be in [2, ", 1 << 15, "], got ", classes);
  detail::check_host_list(name, classes * classes);
  return static_cast<size_t>(classes * classes);
}

/// Whether the first is a part of the second, a number of examples.
bool is_share(int64_t part, int64_t examples) { return part >= 0 && part <= examples && examples <= kMostExamples; }

/// Whether terms can give the sum that begins there: words after carry_exact(), the last of them and the numbers of
/// NaN and infinities small, and nothing without terms. sign > 0: none of the terms is negative.
bool is_sum_of(int64_t terms, const std::vector<int64_t>& counts, int64_t first, int sign) {
  const std::span<const int64_t> words = std::span(counts).subspan(static_cast<size_t>(first), kSumSize);
  int64_t beyond = 0;
  bool zero = true;
  for (size_t i = 0; i < words.size(); ++i) {
    zero = zero && words[i] == 0;
    if (i + 1 < detail::kExactWords && (words[i] < 0 || words[i] >> 32 != 0)) return false;
    if (i + 1 == detail::kExactWords && (words[i] >> 32 != 0) && (sign > 0 || words[i] >> 32 != -1)) return false;
    if (i < detail::kExactWords) continue;
    if (words[i] < 0 || words[i] > terms - beyond) return false;
    beyond += words[i];
  }
  return terms > 0 || zero;
}

/// Area under the ROC curve by ranks (Mann and Whitney): NaN without positive or negative examples.
double area(std::vector<std::pair<double, bool>> examples) {
  std::sort(examples.begin(), examples.end());
  int64_t negatives = 0, twice_wins = 0;  // wins: pairs whose positive example has the greater score, ties half
  for (size_t begin = 0, end = 0; begin < examples.size(); begin = end) {
    int64_t ties[2] = {0, 0};
    for (; end < examples.size() && examples[end].first == examples[begin].first; ++end) ++ties[examples[end].second];
    twice_wins += ties[1] * (2 * negatives + ties[0]);
    negatives += ties[0];
  }
  const int64_t positives = static_cast<int64_t>(examples.size()) - negatives;
  return positives == 0 || negatives == 0 ? kNaN : ratio(twice_wins, 2 * positives * negatives);
}

}  // namespace

void Metric::reset() { std::fill(counts_.begin(), counts_.end(), 0); }

StateView Metric::state_dict() const {
  return {{"counts", from_vector(counts_, {static_cast<int64_t>(counts_.size())})}};
}

void Metric::load_state_dict(const StateView& state) {
  const StateView loaded = state_dict();
  const Tensor given = find(state, "counts");
  TERN_CHECK(!given.defined() || !is_floating(given.dtype()), name_, ": the state's counts must be integers, got ",
             given.describe());
  load_state(loaded, state);
  const std::vector<int64_t> counts = loaded[0].tensor.to_vector<int64_t>();
  TERN_CHECK(is_possible(counts), name_, ": no examples give the state's counts; it is damaged, or of another metric");
  counts_ = counts;
}

std::vector<int64_t> Metric::total(const Group& group) const {
  if (!group || group->size() == 1) return counts_;
  Tensor sum = from_vector(counts_, {static_cast<int64_t>(counts_.size())}).to(group->device());
  group->all_reduce(sum);
  return sum.to(cpu).to_vector<int64_t>();
}

bool Accuracy::is_possible(const std::vector<int64_t>& counts) const { return is_share(counts[0], counts[1]); }
bool TopKAccuracy::is_possible(const std::vector<int64_t>& counts) const { return is_share(counts[0], counts[1]); }

void Accuracy::update(const Tensor& predictions, const Tensor& targets) {
  const bool scored = predictions.defined() && is_floating(predictions.dtype());
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> predicted = scored ? greatest_of(scores_of(name_, predictions, 0), predictions.size(-1))
                                                : predicted_classes(name_, predictions, {.classes = kAny});
  const std::vector<int64_t> wanted =
      targets_of(name_, targets, predictions.size(0), scored ? predictions.size(1) : kAny);
  for (size_t i = 0; i < wanted.size(); ++i) counts_[0] += predicted[i] == wanted[i];
  counts_[1] += static_cast<int64_t>(wanted.size());
}

double Accuracy::compute(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  return ratio(sum[0], sum[1]);
}

TopKAccuracy::TopKAccuracy(int64_t k) : Metric("top-k accuracy", 2), k_(k) {
  TERN_CHECK(k >= 1, name_, ": k must be 1 or more, got ", k);
}

void TopKAccuracy::update(const Tensor& scores, const Tensor& targets) {
  const std::vector<double> values = scores_of(name_, scores, 0);
  const int64_t columns = scores.size(1);
  TERN_CHECK(columns >= k_, name_, ": k is ", k_, ", but there are only ", columns, " classes");
  const std::vector<int64_t> wanted = targets_of(name_, targets, scores.size(0), columns);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double* row = values.data() + static_cast<int64_t>(i) * columns;
    int64_t above = 0;
    for (int64_t c = 0; c < columns; ++c)
      above += row[c] > row[wanted[i]] || (row[c] == row[wanted[i]] && c < wanted[i]);
    counts_[0] += above < k_;
  }
  counts_[1] += static_cast<int64_t>(wanted.size());
}

double TopKAccuracy::compute(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  return ratio(sum[0], sum[1]);
}

ConfusionMatrix::ConfusionMatrix(const char* name, const ClassificationOptions& options)
    : Metric(name, matrix_size(name, options.classes)), options_(options) {
  TERN_CHECK(options.average != Average::kBinary || options.classes == 2, name,
             ": Average::kBinary is for two classes, got ", options.classes);
}

bool ConfusionMatrix::is_possible(const std::vector<int64_t>& counts) const {
  int64_t examples = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > kMostExamples - examples) return false;
    examples += count;
  }
  return true;
}

void ConfusionMatrix::update(const Tensor& predictions, const Tensor& targets) {
  const std::vector<int64_t> predicted = predicted_classes(name_, predictions, options_);
  const std::vector<int64_t> wanted =
      targets_of(name_, targets, static_cast<int64_t>(predicted.size()), options_.classes);
  for (size_t i = 0; i < wanted.size(); ++i)
    ++counts_[static_cast<size_t>(wanted[i] * options_.classes + predicted[i])];
}

Tensor ConfusionMatrix::matrix(const Group& group) const {
  return from_vector(total(group), {options_.classes, options_.classes});
}

std::vector<ConfusionMatrix::ClassCounts> ConfusionMatrix::class_counts(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  const auto classes = static_cast<size_t>(options_.classes);
  std::vector<ClassCounts> counts(classes);
  for (size_t t = 0; t < classes; ++t)
    for (size_t p = 0; p < classes; ++p) {
      const int64_t count = sum[t * classes + p];
      counts[t].targets += count;
      counts[p].predicted += count;
      if (t == p) counts[t].right = count;
    }
  return counts;
}

double ClassAverage::compute(const Group& group) const {
  const std::vector<ClassCounts> counts = class_counts(group);
  ClassCounts all;
  double sum = 0;
  int64_t weights = 0;
  for (const ClassCounts& c : counts) {
    all = {all.right + c.right, all.predicted + c.predicted, all.targets + c.targets};
    const int64_t seen = c.predicted + c.targets > 0 ? 1 : 0;
    const int64_t weight = options_.average == Average::kWeighted ? c.targets : seen;
    sum += static_cast<double>(weight) * of(c);
    weights += weight;
  }
  if (all.targets == 0) return kNaN;
  if (options_.average == Average::kMicro) return of(all);
  return options_.average == Average::kBinary ? of(counts[1]) : sum / static_cast<double>(weights);
}

std::vector<double> ClassAverage::per_class(const Group& group) const {
  std::vector<double> values;
  int64_t examples = 0;
  for (const ClassCounts& c : class_counts(group)) {
    values.push_back(of(c));
    examples += c.targets;
  }
  if (examples == 0) std::fill(values.begin(), values.end(), kNaN);
  return values;
}

double Precision::of(const ClassCounts& c) const { return c.predicted == 0 ? 0 : ratio(c.right, c.predicted); }
double Recall::of(const ClassCounts& c) const { return c.targets == 0 ? 0 : ratio(c.right, c.targets); }
double F1::of(const ClassCounts& c) const {
  return c.predicted + c.targets == 0 ? 0 : ratio(2 * c.right, c.predicted + c.targets);
}

AUROC::AUROC(int64_t classes) : Metric("auroc", 0), classes_(classes) {
  TERN_CHECK(classes >= 2, name_, ": classes must be 2 or more, got ", classes);
}

void AUROC::update(const Tensor& scores, const Tensor& targets) {
  const bool binary = classes_ == 2;
  const std::vector<double> values = binary ? numbers_of(name_, "scores", scores) : scores_of(name_, scores, classes_);
  TERN_CHECK(!binary || scores.dim() == 1, name_, ": scores of two classes must be [n], those of class 1, got ",
             scores.shape());
  const std::vector<int64_t> wanted = targets_of(name_, targets, scores.size(0), classes_);
  scores_.insert(scores_.end(), values.begin(), values.end());
  targets_.insert(targets_.end(), wanted.begin(), wanted.end());
}

void AUROC::reset() {
  scores_.clear();
  targets_.clear();
}

StateView AUROC::state_dict() const {
  const auto rows = static_cast<int64_t>(targets_.size());
  return {{"scores", from_vector(scores_, {rows, columns()})}, {"targets", from_vector(targets_, {rows})}};
}

void AUROC::load_state_dict(const StateView& state) {
  const Tensor scores = find(state, "scores"), targets = find(state, "targets");
  TERN_CHECK(state.size() == 2 && scores.defined() && targets.defined() && scores.dtype() == float64 &&
                 scores.dim() == 2 && scores.size(1) == columns() && !is_floating(targets.dtype()),
             name_, ": the state must be \"scores\", float64 [n, ", columns(), "], and \"targets\", int64 [n]");
  const std::vector<double> values = numbers_of(name_, "the state's scores", scores);
  targets_ = targets_of(name_, targets, scores.size(0), classes_);
  scores_ = values;
}

double AUROC::compute(const Group& group) const {
  std::vector<double> scores = scores_;
  std::vector<int64_t> targets = targets_;
  if (group && group->size() > 1) {
    scores.clear();
    targets.clear();
    const StateView own = state_dict();
    for (const Tensor& part : detail::gather_tensors(*group, own[0].tensor))
      for (const double score : part.to_vector<double>()) scores.push_back(score);
    for (const Tensor& part : detail::gather_tensors(*group, own[1].tensor))
      for (const int64_t target : part.to_vector<int64_t>()) targets.push_back(target);
  }
  if (targets.empty()) return kNaN;  // without a look at each of the classes
  double sum = 0;
  int64_t defined = 0;
  const auto width = static_cast<size_t>(columns());
  for (size_t c = 0; c < width; ++c) {
    std::vector<std::pair<double, bool>> examples;
    const int64_t positive = classes_ == 2 ? 1 : static_cast<int64_t>(c);
    for (size_t i = 0; i < targets.size(); ++i) examples.emplace_back(scores[i * width + c], targets[i] == positive);
    const double of_class = area(std::move(examples));
    if (std::isnan(of_class)) continue;
    sum += of_class;
    ++defined;
  }
  return sum / static_cast<double>(defined);
}

Perplexity::Perplexity(int64_t ignore_index) : Metric("perplexity", 1 + kSumSize), ignore_index_(ignore_index) {}

bool Perplexity::is_possible(const std::vector<int64_t>& counts) const {
  return is_share(0, counts[0]) && is_sum_of(counts[0], counts, 1, 1);
}

void Perplexity::update(const Tensor& logits, const Tensor& targets) {
  const std::vector<double> values = numbers_of(name_, "logits", logits);
  const std::vector<int64_t> wanted = integers_of(name_, "targets", targets);
  TERN_CHECK(logits.dim() >= 1 && logits.size(-1) > 0 && logits.dim() == targets.dim() + 1 &&
                 std::equal(targets.shape().begin(), targets.shape().end(), logits.shape().begin()),
             name_, ": logits must be [..., classes] and targets [...], got ", logits.shape(), " and ",
             targets.shape());
  const int64_t classes = logits.size(-1);
  for (size_t i = 0; i < wanted.size(); ++i)
    TERN_CHECK(wanted[i] == ignore_index_ || (wanted[i] >= 0 && wanted[i] < classes), name_, ": target ", i, " is ",
               wanted[i], ", expected 0 to ", classes - 1, " or ", ignore_index_);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == ignore_index_) continue;
    const double* row = values.data() + static_cast<int64_t>(i) * classes;
    const double greatest = *std::max_element(row, row + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - greatest);
    detail::add_exact(part_of(counts_, 1), std::log(sum) + greatest - row[wanted[i]]);
    ++counts_[0];
  }
  detail::carry_exact(part_of(counts_, 1));
}

double Perplexity::compute(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  return std::exp(sum_in(sum, 1) / static_cast<double>(sum[0]));
}

MeanSquaredError::MeanSquaredError() : Metric("mean squared error", 1 + kSumSize) {}

bool MeanSquaredError::is_possible(const std::vector<int64_t>& counts) const {
  return is_share(0, counts[0]) && is_sum_of(counts[0], counts, 1, 1);
}

void MeanSquaredError::update(const Tensor& predictions, const Tensor& targets) {
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) {
    detail::add_exact(part_of(counts_, 1), (p - t) * (p - t));
    ++counts_[0];
  }
  detail::carry_exact(part_of(counts_, 1));
}

double MeanSquaredError::compute(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  return sum_in(sum, 1) / static_cast<double>(sum[0]);
}

// Counts: elements; then the sums of targets, of their squares and of squared errors.
R2::R2() : Metric("r2", 1 + 3 * kSumSize) {}

bool R2::is_possible(const std::vector<int64_t>& counts) const {
  return is_share(0, counts[0]) && is_sum_of(counts[0], counts, 1, 0) &&
         is_sum_of(counts[0], counts, 1 + kSumSize, 1) && is_sum_of(counts[0], counts, 1 + 2 * kSumSize, 1);
}

void R2::update(const Tensor& predictions, const Tensor& targets) {
  for (const auto& [p, t] : pairs_of(name_, predictions, targets)) {
    detail::add_exact(part_of(counts_, 1), t);
    detail::add_exact(part_of(counts_, 1 + kSumSize), t * t);
    detail::add_exact(part_of(counts_, 1 + 2 * kSumSize), (t - p) * (t - p));
    ++counts_[0];
  }
  for (int64_t k = 0; k < 3; ++k) detail::carry_exact(part_of(counts_, 1 + k * kSumSize));
}

double R2::compute(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  if (sum[0] < 2) return kNaN;
  const double of_targets = sum_in(sum, 1), errors = sum_in(sum, 1 + 2 * kSumSize);
  const double squares = sum_in(sum, 1 + kSumSize);
  const double spread = squares - of_targets * of_targets / static_cast<double>(sum[0]);
  constexpr double kRounding = 8 * std::numeric_limits<double>::epsilon();
  if (spread <= kRounding * squares) return errors == 0 ? 1 : 0;
  return 1 - errors / spread;
}

// Counts of a bin: examples, right ones, the sum of confidences.
CalibrationError::CalibrationError(int64_t bins)
    : Metric("calibration error", static_cast<size_t>(std::clamp<int64_t>(bins, 0, 10'000) + 1) * (2 + kSumSize)),
      bins_(bins) {
  TERN_CHECK(bins >= 1 && bins <= 10'000, name_, ": bins must be in [1, 10000], got ", bins);
}

bool CalibrationError::is_possible(const std::vector<int64_t>& counts) const {
  for (int64_t i = 0; i <= bins_; ++i) {
    const int64_t first = i * (2 + kSumSize), examples = counts[static_cast<size_t>(first)];
    const int64_t right = counts[static_cast<size_t>(first) + 1];
    if (!is_share(right, examples) || !is_sum_of(examples, counts, first + 2, 1) ||
        !(sum_in(counts, first + 2) <= static_cast<double>(examples)))
      return false;
  }
  return true;
}

std::span<int64_t> CalibrationError::bin(int64_t i) {
  return std::span(counts_).subspan(static_cast<size_t>(i * (2 + kSumSize)), 2 + kSumSize);
}

void CalibrationError::update(const Tensor& probabilities, const Tensor& targets) {
  const bool binary = probabilities.defined() && probabilities.dim() == 1;
  const std::vector<double> values =
      binary ? numbers_of(name_, "scores", probabilities) : scores_of(name_, probabilities, 0);
  for (size_t i = 0; i < values.size(); ++i)
    TERN_CHECK(values[i] >= 0 && values[i] <= 1, name_, ": probability ", i, " is ", values[i],
               "; apply softmax or sigmoid to logits");
  const int64_t columns = binary ? 1 : probabilities.size(1);
  const std::vector<int64_t> wanted = targets_of(name_, targets, probabilities.size(0), binary ? 2 : columns);
  const std::vector<int64_t> predicted = greatest_of(values, columns);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double confidence = values[i * static_cast<size_t>(columns) + static_cast<size_t>(predicted[i])];
    const auto n = static_cast<double>(bins_);
    auto place = static_cast<int64_t>(confidence * n);  // off by one at most
    if (static_cast<double>(place) / n > confidence) --place;
    if (place < bins_ && static_cast<double>(place + 1) / n <= confidence) ++place;
    const std::span<int64_t> counts = bin(place);
    ++counts[0];
    counts[1] += binary ? wanted[i] : predicted[i] == wanted[i];
    detail::add_exact(counts.subspan(2), confidence);
  }
  for (int64_t i = 0; i <= bins_; ++i) detail::carry_exact(bin(i).subspan(2));
}

double CalibrationError::compute(const Group& group) const {
  const std::vector<int64_t> sum = total(group);
  double weighted = 0;
  int64_t examples = 0;
  for (int64_t i = 0; i <= bins_; ++i) {
    const auto first = static_cast<size_t>(i * (2 + kSumSize));
    weighted += std::abs(static_cast<double>(sum[first + 1]) - sum_in(sum, static_cast<int64_t>(first) + 2));
    examples += sum[first];
  }
  return weighted / static_cast<double>(examples);
}

}  // namespace tern::dist
