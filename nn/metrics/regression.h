#pragma once
// Metrics of numbers. predictions and targets: floating tensors of equal shape, of which every element is an example.

#include "tern/nn/metrics/metric.h"

namespace tern::nn {

/// The mean of (prediction - target)^2.
class MeanSquaredError final : public Mean {
 public:
  MeanSquaredError() : Mean("mean squared error", 0) {}
  void update(const Tensor& predictions, const Tensor& targets);
};

/// The mean of |prediction - target|.
class MeanAbsoluteError final : public Mean {
 public:
  MeanAbsoluteError() : Mean("mean absolute error", 0) {}
  void update(const Tensor& predictions, const Tensor& targets);
};

/// 1 - sum (target - prediction)^2 / sum (target - mean)^2. NaN with fewer than two. Of equal targets: 1 when all
/// predictions are right and 0 otherwise, as in scikit-learn.
class R2 final : public CountMetric {
 public:
  R2() : CountMetric("r2", {.counts = 1, .sums = 3, .signed_sums = 1}) {}
  void update(const Tensor& predictions, const Tensor& targets);
  double compute(const GatherRanks& gather = nullptr) const;
};

/// The correlation of predictions and targets, in [-1, 1]. NaN where all of one of them are equal.
class PearsonCorrelation final : public CountMetric {
 public:
  PearsonCorrelation() : CountMetric("pearson correlation", {.counts = 1, .sums = 5, .signed_sums = 3}) {}
  void update(const Tensor& predictions, const Tensor& targets);
  double compute(const GatherRanks& gather = nullptr) const;
};

/// The correlation of the ranks of predictions and targets; equal numbers have the mean of their ranks, as in SciPy.
/// NaN where one is NaN.
class SpearmanCorrelation final : public ScoreMetric {
 public:
  SpearmanCorrelation() : ScoreMetric("spearman correlation", 1) {}
  void update(const Tensor& predictions, const Tensor& targets);

 private:
  void check(const std::vector<double>& /*scores*/, const std::vector<double>& /*targets*/) const override {}
  double of(const std::vector<double>& scores, const std::vector<double>& targets) const override;
};

}  // namespace tern::nn
