#pragma once
// What an evaluation finds, and the metrics of several labels and of numbers.

#include <cmath>
#include <cstdint>
#include <vector>

#include "tern/dist/collectives/communicator.h"
#include "tern/nn/metrics/classification.h"

namespace tern::models {

/// The outputs for all examples of an evaluation and their targets, row by row.
struct Outcomes {
  int64_t columns = 0;
  std::vector<float> outputs = {}, targets = {};  // [examples * columns] each
};

struct Evaluation {
  double loss = 0;    // mean over the examples; NaN if there are none
  double metric = 0;  // greater is better: of single labels the accuracy, in [0, 1]; NaN if there are no examples
  int64_t examples = 0;
  // Examples whose output is no number (NaN, an infinity), so that nothing is predicted. They count as wrong.
  int64_t not_finite = 0;
  Outcomes outcomes = {};  // of single labels: the predicted label and the label, one column
  bool stopped = false;    // it was ended early: the numbers are not of all examples

  /// False where an output or the loss of the examples is not finite.
  bool is_finite() const { return examples == 0 || (not_finite == 0 && std::isfinite(loss)); }
};

/// Sums over the examples of a batch.
struct Score {
  double loss = 0, metric = 0;
  int64_t examples = 0, not_finite = 0;
  Outcomes outcomes = {};  // for Objective::metric_of, and reports
};

/// Adds up the scores of batches without rounding: the bits of the result do not depend on how the batches are divided
/// among processes.
class Tally {
 public:
  void add(const Score& score);
  /// The evaluation was ended early.
  void stop() { stopped_ = true; }
  /// The result of the batches of all ranks, which all call it; null: of this process alone. metric_of: Objective's.
  Evaluation result(dist::Communicator* group = nullptr, double (*metric_of)(const Outcomes&) = nullptr) const;

 private:
  nn::Mean loss_, metric_;
  int64_t examples_ = 0, not_finite_ = 0;
  bool stopped_ = false;
  Outcomes outcomes_;
};

// Reports do not depend on the order of the rows.

/// Metrics of single labels. NaN where a number is not defined: without examples or predictions of the class.
struct SingleLabelReport {
  double f1_macro = 0;  // the mean over the classes with a defined F1
  std::vector<nn::ClassCounts> labels = {};
  std::vector<int64_t> confusion = {};  // [labels, labels]: examples of a class (row) that were predicted as another
};
/// Throws Error if an outcome is not one of the labels.
SingleLabelReport single_label_report(const Outcomes& outcomes, int64_t labels);

/// Metrics of several labels: outputs are logits, and a label is predicted where its probability is above 0.5. Targets
/// are 0 or 1. An F1 is 0 where there are neither predictions nor targets, as scikit-learn's with zero_division = 0.
struct SeveralLabelsReport {
  double f1_micro = 0;  // of the counts of all labels
  double f1_macro = 0;  // the mean over the labels
  double accuracy = 0;  // the share of the rows for which all labels are right
  std::vector<nn::ClassCounts> labels = {};
};
/// NaN where there are no examples.
SeveralLabelsReport several_labels_report(const Outcomes& outcomes);
/// f1_micro: the metric of several labels.
double micro_f1(const Outcomes& outcomes);

/// Metrics of numbers. All elements are one output. NaN where a number is not defined: without examples; r2 of fewer
/// than two; pearson and spearman of equal targets or equal outputs.
struct NumbersReport {
  double mse = 0, mae = 0;  // mean squared and mean absolute error
  double r2 = 0;            // of equal targets 1 where all outputs are right, otherwise 0, as in scikit-learn
  double pearson = 0;       // correlation of outputs and targets
  double spearman = 0;      // correlation of their ranks; equal numbers have the mean of their ranks, as in SciPy
};
NumbersReport numbers_report(const Outcomes& outcomes);
/// r2: the metric of numbers. Always finite, so that epochs can be compared: 1 or 0 for a single example that is right
/// or not, and the lowest double where it is not defined otherwise.
double comparable_r2(const Outcomes& outcomes);

}  // namespace tern::models
