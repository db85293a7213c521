#include "tern/nn/metrics/classification.h"

#include <algorithm>
#include <cmath>

#include "tern/nn/metrics/exact_sum.h"

namespace tern::nn {
namespace {

using tern::detail::metric_integers, tern::detail::metric_numbers, tern::detail::ratio;

constexpr double kNotDefined = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kAnyClass = std::numeric_limits<int64_t>::max();

std::vector<int64_t> below(const char* name, const char* what, std::vector<int64_t> values, int64_t classes) {
  for (size_t i = 0; i < values.size(); ++i)
    TERN_CHECK(values[i] >= 0 && values[i] < classes, name, ": ", what, " ", i, " is ", values[i], ", expected 0 to ",
               classes - 1);
  return values;
}

std::vector<int64_t> targets_of(const char* name, const Tensor& targets, int64_t rows, int64_t classes) {
  const std::vector<int64_t> values = metric_integers(name, "targets", targets);
  TERN_CHECK(targets.dim() == 1 && targets.size(0) == rows, name, ": targets must be [", rows, "], got ",
             targets.shape());
  return below(name, "target", values, classes);
}

/// Scores [n, columns], row by row. classes: the columns that are needed; 0: any number from 1.
std::vector<double> scores_of(const char* name, const Tensor& scores, int64_t classes) {
  const std::vector<double> values = metric_numbers(name, "scores", scores);
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

std::vector<int64_t> above(const std::vector<double>& scores, double threshold) {
  std::vector<int64_t> classes;
  for (const double score : scores) classes.push_back(score > threshold);
  return classes;
}

/// Predicted classes below `classes`.
std::vector<int64_t> predicted_classes(const char* name, const Tensor& predictions, int64_t classes, double threshold) {
  if (predictions.defined() && is_floating(predictions.dtype())) {
    if (classes == 2 && predictions.dim() == 1) return above(metric_numbers(name, "scores", predictions), threshold);
    return greatest_of(scores_of(name, predictions, classes), classes);
  }
  const std::vector<int64_t> values = metric_integers(name, "predictions", predictions);
  TERN_CHECK(predictions.dim() == 1, name, ": predicted classes must be [n], got ", predictions.shape());
  return below(name, "prediction", values, classes);
}

/// Predicted and wanted labels, 0 or 1, row by row. labels: the columns that are needed; 0: any number from 1.
std::pair<std::vector<int64_t>, std::vector<int64_t>> labels_of(const char* name, const Tensor& predictions,
                                                                const Tensor& targets, int64_t labels,
                                                                double threshold) {
  std::vector<int64_t> wanted = below(name, "target", metric_integers(name, "targets", targets), 2);
  TERN_CHECK(targets.dim() == 2 && (labels > 0 ? targets.size(1) == labels : targets.size(1) > 0), name,
             ": targets must be [n, ", labels > 0 ? std::to_string(labels) : "labels", "], got ", targets.shape());
  const bool scored = predictions.defined() && is_floating(predictions.dtype());
  std::vector<int64_t> predicted =
      scored ? above(metric_numbers(name, "scores", predictions), threshold)
             : below(name, "prediction", metric_integers(name, "predictions", predictions), 2);
  TERN_CHECK(predictions.shape() == targets.shape(), name, ": predictions are ", predictions.shape(), " and targets ",
             targets.shape(), ", expected the same shape");
  return {std::move(predicted), std::move(wanted)};
}

int64_t checked_classes(const char* name, int64_t classes, int64_t most) {
  TERN_CHECK(classes >= 1 && classes <= most, name, ": classes must be in [1, ", most, "], got ", classes);
  return classes;
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
  return ratio(twice_wins, 2 * positives * negatives);
}

}  // namespace

void Accuracy::update(const Tensor& predictions, const Tensor& targets) {
  const bool scored = predictions.defined() && is_floating(predictions.dtype());
  const std::vector<int64_t> predicted = scored ? greatest_of(scores_of(name_, predictions, 0), predictions.size(-1))
                                                : predicted_classes(name_, predictions, kAnyClass, 0);
  const std::vector<int64_t> wanted =
      targets_of(name_, targets, predictions.size(0), scored ? predictions.size(1) : kAnyClass);
  int64_t right = 0;
  for (size_t i = 0; i < wanted.size(); ++i) right += predicted[i] == wanted[i];
  add(right, std::ssize(wanted));
}

TopKAccuracy::TopKAccuracy(int64_t k) : Share("top-k accuracy"), k_(k) {
  TERN_CHECK(k >= 1, name_, ": k must be 1 or more, got ", k);
}

void TopKAccuracy::update(const Tensor& scores, const Tensor& targets) {
  const std::vector<double> values = scores_of(name_, scores, 0);
  const int64_t columns = scores.size(1);
  TERN_CHECK(columns >= k_, name_, ": k is ", k_, ", but there are only ", columns, " classes");
  const std::vector<int64_t> wanted = targets_of(name_, targets, scores.size(0), columns);
  int64_t found = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double* row = values.data() + static_cast<int64_t>(i) * columns;
    int64_t greater = 0;
    for (int64_t c = 0; c < columns; ++c)
      greater += row[c] > row[wanted[i]] || (row[c] == row[wanted[i]] && c < wanted[i]);
    found += greater < k_;
  }
  add(found, std::ssize(wanted));
}

void ExactMatch::update(const Tensor& predictions, const Tensor& targets) {
  const auto [predicted, wanted] = labels_of(name_, predictions, targets, 0, threshold_);
  const auto labels = targets.size(1);
  int64_t right = 0;
  for (auto row = wanted.begin(); row != wanted.end(); row += labels)
    right += std::equal(row, row + labels, predicted.begin() + (row - wanted.begin()));
  add(right, targets.size(0));
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, double threshold)
    : CountMetric("confusion matrix", {.records = checked_classes("confusion matrix", classes, 1 << 15) * classes}),
      classes_(classes),
      threshold_(threshold) {}

void ConfusionMatrix::update(const Tensor& predictions, const Tensor& targets) {
  const std::vector<int64_t> predicted = predicted_classes(name_, predictions, classes_, threshold_);
  const std::vector<int64_t> wanted = targets_of(name_, targets, std::ssize(predicted), classes_);
  for (size_t i = 0; i < wanted.size(); ++i) ++count(wanted[i] * classes_ + predicted[i]);
}

Tensor ConfusionMatrix::matrix(const GatherRanks& gather) const {
  return from_vector(total(gather), {classes_, classes_});
}

double ClassCounts::share(int64_t part, int64_t whole, double undefined) const {
  return whole > 0 ? ratio(part, whole) : examples == 0 ? kNotDefined : undefined;
}
double ClassCounts::accuracy() const { return share(examples - targets - predicted + 2 * right, examples, 0); }
double ClassCounts::precision(double undefined) const { return share(right, predicted, undefined); }
double ClassCounts::recall(double undefined) const { return share(right, targets, undefined); }
double ClassCounts::f1(double undefined) const { return share(2 * right, predicted + targets, undefined); }

// Records of a class: its examples by (target, prediction), of which any four numbers are possible.
ClassAverage::ClassAverage(const char* name, Number of, const ClassificationOptions& options)
    : CountMetric(name, {.records = 4 * checked_classes(name, options.classes, 1 << 24)}), of_(of), options_(options) {
  TERN_CHECK(options.average != Average::kBinary || (options.classes == 2 && !options.multilabel), name,
             ": Average::kBinary is for two classes, got ", options.classes,
             options.multilabel ? " of a multilabel metric" : "");
}

void ClassAverage::update(const Tensor& predictions, const Tensor& targets) {
  const int64_t classes = options_.classes;
  if (options_.multilabel) {
    const auto [predicted, wanted] = labels_of(name_, predictions, targets, classes, options_.threshold);
    for (size_t i = 0; i < wanted.size(); ++i)
      ++count(4 * (static_cast<int64_t>(i) % classes) + 2 * wanted[i] + predicted[i]);
    return;
  }
  const std::vector<int64_t> predicted = predicted_classes(name_, predictions, classes, options_.threshold);
  const std::vector<int64_t> wanted = targets_of(name_, targets, std::ssize(predicted), classes);
  for (int64_t c = 0; c < classes; ++c) count(4 * c) += std::ssize(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool right = wanted[i] == predicted[i];
    --count(4 * wanted[i]);
    ++count(4 * wanted[i] + (right ? 3 : 2));
    if (right) continue;
    --count(4 * predicted[i]);
    ++count(4 * predicted[i] + 1);
  }
}

std::vector<ClassCounts> ClassAverage::class_counts(const GatherRanks& gather) const {
  const Counts all = total(gather);
  std::vector<ClassCounts> classes;
  for (auto c = all.begin(); c != all.end(); c += 4)
    classes.push_back(
        {.examples = c[0] + c[1] + c[2] + c[3], .right = c[3], .predicted = c[1] + c[3], .targets = c[2] + c[3]});
  return classes;
}

double ClassAverage::compute(const GatherRanks& gather) const {
  const std::vector<ClassCounts> classes = class_counts(gather);
  ClassCounts all;
  double sum = 0;
  int64_t weights = 0;
  for (const ClassCounts& c : classes) {
    all = {all.examples + c.examples, all.right + c.right, all.predicted + c.predicted, all.targets + c.targets};
    const int64_t seen = options_.multilabel || c.predicted + c.targets > 0 ? 1 : 0;
    const int64_t weight = options_.average == Average::kWeighted ? c.targets : seen;
    sum += static_cast<double>(weight) * (c.*of_)(0);
    weights += weight;
  }
  if (options_.average == Average::kMicro) return (all.*of_)(0);
  return options_.average == Average::kBinary ? (classes[1].*of_)(0) : sum / static_cast<double>(weights);
}

std::vector<double> ClassAverage::per_class(const GatherRanks& gather) const {
  std::vector<double> values;
  for (const ClassCounts& c : class_counts(gather)) values.push_back((c.*of_)(0));
  return values;
}

AUROC::AUROC(int64_t classes) : ScoreMetric("auroc", classes == 2 ? 1 : classes), classes_(classes) {
  TERN_CHECK(classes >= 2, name_, ": classes must be 2 or more, got ", classes);
}

void AUROC::update(const Tensor& scores, const Tensor& targets) {
  const bool binary = classes_ == 2;
  const std::vector<double> values =
      binary ? metric_numbers(name_, "scores", scores) : scores_of(name_, scores, classes_);
  TERN_CHECK(!binary || scores.dim() == 1, name_, ": scores of two classes must be [n], those of class 1, got ",
             scores.shape());
  const std::vector<int64_t> wanted = targets_of(name_, targets, scores.size(0), classes_);
  add(values, {wanted.begin(), wanted.end()});
}

void AUROC::check(const std::vector<double>& scores, const std::vector<double>& targets) const {
  for (size_t i = 0; i < scores.size(); ++i)
    TERN_CHECK(!std::isnan(scores[i]), name_, ": element ", i, " of the state's scores is NaN");
  for (size_t i = 0; i < targets.size(); ++i)
    TERN_CHECK(targets[i] >= 0 && targets[i] < static_cast<double>(classes_) && targets[i] == std::floor(targets[i]),
               name_, ": target ", i, " of the state is ", targets[i], ", expected 0 to ", classes_ - 1);
}

double AUROC::of(const std::vector<double>& scores, const std::vector<double>& targets) const {
  if (targets.empty()) return kNotDefined;  // without a look at each of the classes
  double sum = 0;
  int64_t defined = 0;
  const auto width = static_cast<size_t>(columns_);
  for (size_t c = 0; c < width; ++c) {
    std::vector<std::pair<double, bool>> examples;
    const auto positive = static_cast<double>(classes_ == 2 ? 1 : c);
    for (size_t i = 0; i < targets.size(); ++i) examples.emplace_back(scores[i * width + c], targets[i] == positive);
    const double of_class = area(std::move(examples));
    if (std::isnan(of_class)) continue;
    sum += of_class;
    ++defined;
  }
  return sum / static_cast<double>(defined);
}

double Perplexity::compute(const GatherRanks& gather) const { return std::exp(Mean::compute(gather)); }

void Perplexity::update(const Tensor& logits, const Tensor& targets) {
  const std::vector<double> values = metric_numbers(name_, "logits", logits);
  const std::vector<int64_t> wanted = metric_integers(name_, "targets", targets);
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
    add(std::log(sum) + greatest - row[wanted[i]]);
  }
  carry();
}

// A record for each bin: examples, right ones, the sum of confidences.
CalibrationError::CalibrationError(int64_t bins)
    : CountMetric("calibration error",
                  {.records = std::clamp<int64_t>(bins, 0, 10'000) + 1, .counts = 2, .sums = 1, .greatest = 1}),
      bins_(bins) {
  TERN_CHECK(bins >= 1 && bins <= 10'000, name_, ": bins must be in [1, 10000], got ", bins);
}

void CalibrationError::update(const Tensor& probabilities, const Tensor& targets) {
  const bool binary = probabilities.defined() && probabilities.dim() == 1;
  const std::vector<double> values =
      binary ? metric_numbers(name_, "scores", probabilities) : scores_of(name_, probabilities, 0);
  for (size_t i = 0; i < values.size(); ++i)
    TERN_CHECK(values[i] >= 0 && values[i] <= 1, name_, ": probability ", i, " is ", values[i],
               "; apply softmax or sigmoid to logits");
  const int64_t columns = binary ? 1 : probabilities.size(1);
  const std::vector<int64_t> wanted = targets_of(name_, targets, probabilities.size(0), binary ? 2 : columns);
  const std::vector<int64_t> predicted = greatest_of(values, columns);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double confidence = values[i * static_cast<size_t>(columns) + static_cast<size_t>(predicted[i])];
    const auto n = static_cast<double>(bins_);
    auto bin = static_cast<int64_t>(confidence * n);  // off by one at most
    if (static_cast<double>(bin) / n > confidence) --bin;
    if (bin < bins_ && static_cast<double>(bin + 1) / n <= confidence) ++bin;
    ++count(bin);
    count(bin, 1) += binary ? wanted[i] : predicted[i] == wanted[i];
    tern::detail::add_exact(sum(bin, 0), confidence);
  }
  carry();
}

double CalibrationError::compute(const GatherRanks& gather) const {
  const Counts all = total(gather);
  double weighted = 0;
  int64_t examples = 0;
  for (int64_t bin = 0; bin <= bins_; ++bin) {
    const auto right = static_cast<double>(all[place(bin, 1)]);
    weighted += std::abs(right - tern::detail::value_of_exact(sum_in(all, bin, 0)));
    examples += all[place(bin, 0)];
  }
  return weighted / static_cast<double>(examples);
}

}  // namespace tern::nn
