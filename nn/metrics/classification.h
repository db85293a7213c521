#pragma once
// Metrics of classes and labels.

#include "tern/nn/metrics/metric.h"

namespace tern::nn {

/// The share of predictions that are the target. predictions: classes [n], integers, or scores [n, classes], floating,
/// whose greatest is predicted, the first of equal ones. targets: [n], integers.
class Accuracy final : public Share {
 public:
  Accuracy() : Share("accuracy") {}
  void update(const Tensor& predictions, const Tensor& targets);
};

/// The share of examples whose target is among the k greatest of the scores [n, classes]. Of equal scores those of
/// smaller classes count as greater.
class TopKAccuracy final : public Share {
 public:
  /// Throws Error unless k >= 1.
  explicit TopKAccuracy(int64_t k);
  void update(const Tensor& scores, const Tensor& targets);

 private:
  int64_t k_;
};

/// The share of examples for which every label is right. predictions and targets as those of a multilabel metric
/// (ClassificationOptions).
class ExactMatch final : public Share {
 public:
  explicit ExactMatch(double threshold = 0.5) : Share("exact match"), threshold_(threshold) {}
  void update(const Tensor& predictions, const Tensor& targets);

 private:
  double threshold_;
};

/// Counts of (target, prediction). predictions and targets as Accuracy's; for two classes also one floating score [n]
/// for each example, of class 1.
class ConfusionMatrix final : public CountMetric {
 public:
  /// Throws Error unless classes is in [1, 32768]. threshold: of a score of class 1.
  explicit ConfusionMatrix(int64_t classes, double threshold = 0.5);
  void update(const Tensor& predictions, const Tensor& targets);
  /// int64 [classes, classes]: row t, column p: examples of class t that were predicted as p.
  Tensor matrix(const GatherRanks& gather = nullptr) const;

 private:
  int64_t classes_;
  double threshold_;
};

enum class Average {
  kMicro,     // of the counts of all classes
  kMacro,     // the mean over the classes that are predicted or a target; of multilabel metrics over all
  kWeighted,  // the mean over classes, weighted by their targets
  kBinary,    // of class 1; two classes only
};

struct ClassificationOptions {
  int64_t classes = 2;
  Average average = Average::kMacro;
  double threshold = 0.5;  // two classes: a score [n] above it predicts class 1; multilabel: a score of each label
  // Every example has any number of the classes: predictions [n, classes], scores or integers, and targets [n,
  // classes], integers; integers are 0 or 1.
  bool multilabel = false;
};

/// The counts of a class, or of one of several labels.
struct ClassCounts {
  int64_t examples = 0;  // of all classes
  int64_t right = 0, predicted = 0, targets = 0;
  // NaN without examples, else `undefined` where the denominator is 0.
  double accuracy() const;                       // the share of the examples for which the label is right
  double precision(double undefined = 0) const;  // right / predicted
  double recall(double undefined = 0) const;     // right / targets
  double f1(double undefined = 0) const;         // 2 right / (predicted + targets), the harmonic mean of both

 private:
  double share(int64_t part, int64_t whole, double undefined) const;
};

/// A number for each class out of its counts, and their average. predictions and targets as ConfusionMatrix's, or as
/// ClassificationOptions::multilabel says.
class ClassAverage : public CountMetric {
 public:
  void update(const Tensor& predictions, const Tensor& targets);
  double compute(const GatherRanks& gather = nullptr) const;
  /// The metric of each class (average "none"); 0 where the denominator is 0, as in scikit-learn.
  std::vector<double> per_class(const GatherRanks& gather = nullptr) const;
  std::vector<ClassCounts> class_counts(const GatherRanks& gather = nullptr) const;

 protected:
  using Number = double (ClassCounts::*)(double undefined) const;
  /// Throws Error unless classes is in [1, 2^24], and for kBinary unless it is 2.
  ClassAverage(const char* name, Number of, const ClassificationOptions& options);

 private:
  const Number of_;
  const ClassificationOptions options_;
};

struct Precision final : ClassAverage {
  explicit Precision(const ClassificationOptions& options = {})
      : ClassAverage("precision", &ClassCounts::precision, options) {}
};
struct Recall final : ClassAverage {
  explicit Recall(const ClassificationOptions& options = {}) : ClassAverage("recall", &ClassCounts::recall, options) {}
};
struct F1 final : ClassAverage {
  explicit F1(const ClassificationOptions& options = {}) : ClassAverage("f1", &ClassCounts::f1, options) {}
};

/// Area under the ROC curve: the probability that a random positive example has a greater score than a random negative
/// one, equal scores counted half. NaN without a positive or without a negative example.
class AUROC final : public ScoreMetric {
 public:
  /// classes = 2: scores [n] of class 1. More: scores [n, classes]; the result is the mean of each class against the
  /// rest, without those that have no example or all of them. Throws Error unless classes >= 2.
  explicit AUROC(int64_t classes = 2);
  void update(const Tensor& scores, const Tensor& targets);

 private:
  void check(const std::vector<double>& scores, const std::vector<double>& targets) const override;
  double of(const std::vector<double>& scores, const std::vector<double>& targets) const override;
  int64_t classes_;
};

/// exp of the mean of -log softmax(logits)[target]. logits [..., classes], floating; targets [...].
class Perplexity final : public Mean {
 public:
  /// Targets equal to ignore_index are not counted.
  explicit Perplexity(int64_t ignore_index = -100) : Mean("perplexity", 0), ignore_index_(ignore_index) {}
  void update(const Tensor& logits, const Tensor& targets);
  double compute(const GatherRanks& gather = nullptr) const;

 private:
  int64_t ignore_index_;
};

/// Expected calibration error (Guo et al., arXiv:1706.04599): the mean over bins of confidence, weighted by their
/// examples, of |share that is right - mean confidence|. Bin i of n holds confidences in [i / n, (i + 1) / n); the
/// confidence 1 has a separate bin, as in torchmetrics.
class CalibrationError final : public CountMetric {
 public:
  /// Throws Error unless bins is in [1, 10000].
  explicit CalibrationError(int64_t bins = 15);
  /// Probabilities in [0, 1]: [n], of class 1, whose confidence they are, or [n, classes], of which the greatest is the
  /// confidence.
  void update(const Tensor& probabilities, const Tensor& targets);
  double compute(const GatherRanks& gather = nullptr) const;

 private:
  int64_t bins_;
};

}  // namespace tern::nn
