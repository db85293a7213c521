#pragma once
// Metrics that accumulate over batches and processes.
//
//   dist::F1 f1({.classes = 10, .average = dist::Average::kMacro});
//   for (const auto& batch : loader.epoch(0)) f1.update(net.forward(batch[0]), batch[1]);
//   const double value = f1.compute(world.group());  // of all ranks' batches; compute() of this rank's alone
//   f1.reset();
//
// Exact: examples are counted in int64, and terms in double are summed without rounding (exact_sum.h), so the bits of a
// result do not depend on how examples are divided among batches and ranks.
//
// Definitions are those of torchmetrics and scikit-learn. Without any example every metric is NaN. update() takes
// tensors on either device, and throws Error and changes nothing when shapes or types are wrong, a target is out of
// range or a score is NaN; the message gives the position. LoopState saves the counts of every rank.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/dist/collectives/communicator.h"

namespace tern::dist {

/// What the metrics have in common: counts that are added up.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual void reset();
  /// "counts" (int64). Copies.
  virtual StateView state_dict() const;
  /// Throws Error, and changes nothing, for the state of another metric, and for counts that no examples give.
  virtual void load_state_dict(const StateView& state);

 protected:
  using Group = std::shared_ptr<Communicator>;
  Metric(const char* name, size_t counts) : name_(name), counts_(counts) {}
  /// The counts of all ranks; of this one for null.
  std::vector<int64_t> total(const Group& group) const;
  /// Whether examples can give these counts, as many as this metric has.
  virtual bool is_possible(const std::vector<int64_t>& /*counts*/) const { return true; }

  const char* name_;  // begins the messages
  std::vector<int64_t> counts_;
};

/// The share of predictions that are the target. predictions: classes [n], integers, or scores [n, classes], floating,
/// whose greatest is predicted, the first of equal ones. targets: [n], integers.
class Accuracy final : public Metric {
 public:
  Accuracy() : Metric("accuracy", 2) {}
  void update(const Tensor& predictions, const Tensor& targets);
  double compute(const Group& group = nullptr) const;

 private:
  bool is_possible(const std::vector<int64_t>& counts) const override;
};

/// The share of examples whose target is among the k greatest of the scores [n, classes]. Of equal scores those of
/// smaller classes count as greater.
class TopKAccuracy final : public Metric {
 public:
  /// Throws Error unless k >= 1.
  explicit TopKAccuracy(int64_t k);
  void update(const Tensor& scores, const Tensor& targets);
  double compute(const Group& group = nullptr) const;

 private:
  bool is_possible(const std::vector<int64_t>& counts) const override;
  int64_t k_;
};

enum class Average {
  kMicro,     // of the counts of all classes
  kMacro,     // the mean over the classes that are predicted or a target
  kWeighted,  // the mean over classes, weighted by their targets
  kBinary,    // of class 1; two classes only
};

struct ClassificationOptions {
  int64_t classes = 2;
  Average average = Average::kMacro;
  double threshold = 0.5;  // two classes: a score [n] above it predicts class 1
};

/// Counts of (target, prediction). predictions and targets as Accuracy's; for two classes also one floating score [n]
/// for each example, of class 1.
class ConfusionMatrix : public Metric {
 public:
  /// Throws Error unless classes >= 2, and for kBinary with more than two.
  explicit ConfusionMatrix(const ClassificationOptions& options) : ConfusionMatrix("confusion matrix", options) {}
  void update(const Tensor& predictions, const Tensor& targets);
  /// int64 [classes, classes]: row t, column p: examples of class t that were predicted as p.
  Tensor matrix(const Group& group = nullptr) const;

 protected:
  ConfusionMatrix(const char* name, const ClassificationOptions& options);
  bool is_possible(const std::vector<int64_t>& counts) const override;
  struct ClassCounts {
    int64_t right = 0, predicted = 0, targets = 0;
  };
  std::vector<ClassCounts> class_counts(const Group& group) const;
  const ClassificationOptions options_;
};

/// A number for each class out of its counts, and their average.
class ClassAverage : public ConfusionMatrix {
 public:
  double compute(const Group& group = nullptr) const;
  /// Of each class (average "none"); 0 where the denominator is 0, as in scikit-learn. NaN without examples.
  std::vector<double> per_class(const Group& group = nullptr) const;

 protected:
  using ConfusionMatrix::ConfusionMatrix;
  virtual double of(const ClassCounts& counts) const = 0;
};

/// right / predicted.
class Precision final : public ClassAverage {
 public:
  explicit Precision(const ClassificationOptions& options = {}) : ClassAverage("precision", options) {}

 private:
  double of(const ClassCounts& counts) const override;
};

/// right / targets.
class Recall final : public ClassAverage {
 public:
  explicit Recall(const ClassificationOptions& options = {}) : ClassAverage("recall", options) {}

 private:
  double of(const ClassCounts& counts) const override;
};

/// 2 right / (predicted + targets), the harmonic mean of precision and recall.
class F1 final : public ClassAverage {
 public:
  explicit F1(const ClassificationOptions& options = {}) : ClassAverage("f1", options) {}

 private:
  double of(const ClassCounts& counts) const override;
};

/// Area under the ROC curve: the probability that a random positive example has a greater score than a random negative
/// one, equal scores counted half. Keeps all scores. NaN without a positive or without a negative example.
class AUROC final : public Metric {
 public:
  /// classes = 2: scores [n] of class 1. More: scores [n, classes]; the result is the mean of each class against the
  /// rest, without those that have no example or all of them. Throws Error unless classes >= 2.
  explicit AUROC(int64_t classes = 2);
  void update(const Tensor& scores, const Tensor& targets);
  double compute(const Group& group = nullptr) const;
  void reset() override;
  /// "scores" (float64 [n, columns]) and "targets" (int64 [n]). Copies.
  StateView state_dict() const override;
  void load_state_dict(const StateView& state) override;

 private:
  int64_t columns() const { return classes_ == 2 ? 1 : classes_; }
  int64_t classes_;
  std::vector<double> scores_;
  std::vector<int64_t> targets_;
};

/// exp of the mean of -log softmax(logits)[target]. logits [..., classes], floating; targets [...].
class Perplexity final : public Metric {
 public:
  /// Targets equal to ignore_index are not counted.
  explicit Perplexity(int64_t ignore_index = -100);
  void update(const Tensor& logits, const Tensor& targets);
  double compute(const Group& group = nullptr) const;

 private:
  bool is_possible(const std::vector<int64_t>& counts) const override;
  int64_t ignore_index_;
};

/// The mean of (prediction - target)^2 over all elements. Floating tensors of equal shape.
class MeanSquaredError final : public Metric {
 public:
  MeanSquaredError();
  void update(const Tensor& predictions, const Tensor& targets);
  double compute(const Group& group = nullptr) const;

 private:
  bool is_possible(const std::vector<int64_t>& counts) const override;
};

/// 1 - sum (target - prediction)^2 / sum (target - mean)^2 over all elements, which are one output. NaN with fewer than
/// two. Targets that are equal up to rounding: 1 when all predictions are right and 0 otherwise, as in scikit-learn.
class R2 final : public Metric {
 public:
  R2();
  void update(const Tensor& predictions, const Tensor& targets);
  double compute(const Group& group = nullptr) const;

 private:
  bool is_possible(const std::vector<int64_t>& counts) const override;
};

/// Expected calibration error (Guo et al., arXiv:1706.04599): the mean over bins of confidence, weighted by their
/// examples, of |share that is right - mean confidence|. Bin i of n holds confidences in [i / n, (i + 1) / n); the
/// confidence 1 has a separate bin, as in torchmetrics.
class CalibrationError final : public Metric {
 public:
  /// Throws Error unless bins is in [1, 10000].
  explicit CalibrationError(int64_t bins = 15);
  /// Probabilities in [0, 1]: [n], of class 1, whose confidence they are, or [n, classes], of which the greatest is the
  /// confidence.
  void update(const Tensor& probabilities, const Tensor& targets);
  double compute(const Group& group = nullptr) const;

 private:
  bool is_possible(const std::vector<int64_t>& counts) const override;
  std::span<int64_t> bin(int64_t i);
  int64_t bins_;
};

}  // namespace tern::dist
