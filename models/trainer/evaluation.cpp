#include "tern/models/trainer/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tern/dist/collectives/gather_tensors.h"
#include "tern/nn/metrics/regression.h"

namespace tern::models {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

Tensor rows_of(const std::vector<float>& values, int64_t columns) {
  return from_vector(values, {columns > 0 ? std::ssize(values) / columns : 0, columns});
}

/// 1 where a value is above the limit; NaN is not.
Tensor above(const std::vector<float>& values, int64_t columns, float limit) {
  std::vector<int64_t> flags;
  for (const float value : values) flags.push_back(value > limit);
  return from_vector(flags, {columns > 0 ? std::ssize(values) / columns : 0, columns});
}

template <class M>
M of_several_labels(M metric, const Outcomes& o) {
  if (!o.outputs.empty()) metric.update(above(o.outputs, o.columns, 0), above(o.targets, o.columns, 0.5f));
  return metric;
}

template <class M>
double of_numbers(const Outcomes& o) {
  M metric;
  metric.update(rows_of(o.outputs, 1), rows_of(o.targets, 1));
  return metric.compute();
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Outcomes of_all_ranks(const Outcomes& own, const nn::GatherRanks& gather) {
  Outcomes all;
  for (const Tensor& part : gather(rows_of(own.outputs, own.columns))) {
    all.columns = std::max(all.columns, part.size(1));
    append(all.outputs, part.to_vector<float>());
  }
  for (const Tensor& part : gather(rows_of(own.targets, own.columns))) append(all.targets, part.to_vector<float>());
  return all;
}

}  // namespace

void Tally::add(const Score& score) {
  loss_.update(score.loss, score.examples);
  metric_.update(score.metric, score.examples);
  examples_ += score.examples;
  not_finite_ += score.not_finite;
  if (score.outcomes.columns > 0) outcomes_.columns = score.outcomes.columns;
  append(outcomes_.outputs, score.outcomes.outputs);
  append(outcomes_.targets, score.outcomes.targets);
}

Evaluation Tally::result(dist::Communicator* group, double (*metric_of)(const Outcomes&)) const {
  nn::GatherRanks gather = [](const Tensor& own) { return std::vector<Tensor>{own}; };
  if (group && group->size() > 1)
    gather = [group](const Tensor& own) { return tern::detail::gather_tensors(*group, own); };
  Evaluation all;
  all.loss = loss_.compute(gather);
  all.metric = metric_.compute(gather);
  all.outcomes = of_all_ranks(outcomes_, gather);
  for (const Tensor& part : gather(from_vector(std::vector<int64_t>{examples_, not_finite_, stopped_}, {3}))) {
    const std::vector<int64_t> counts = part.to_vector<int64_t>();
    all.examples += counts[0];
    all.not_finite += counts[1];
    all.stopped = all.stopped || counts[2] > 0;
  }
  if (metric_of) all.metric = metric_of(all.outcomes);
  return all;
}

SingleLabelReport single_label_report(const Outcomes& o, int64_t labels) {
  const auto classes_of = [](const std::vector<float>& values) {
    return from_vector(std::vector<int64_t>(values.begin(), values.end()), {std::ssize(values)});
  };
  const Tensor predicted = classes_of(o.outputs), wanted = classes_of(o.targets);
  nn::ConfusionMatrix matrix(labels);
  nn::F1 f1({.classes = labels});
  matrix.update(predicted, wanted);
  f1.update(predicted, wanted);
  return {f1.compute(), f1.class_counts(), matrix.matrix().to_vector<int64_t>()};
}

SeveralLabelsReport several_labels_report(const Outcomes& o) {
  const auto f1 = [&](nn::Average average) {
    return of_several_labels(
        nn::F1({.classes = std::max<int64_t>(o.columns, 1), .average = average, .multilabel = true}), o);
  };
  return {f1(nn::Average::kMicro).compute(), f1(nn::Average::kMacro).compute(),
          of_several_labels(nn::ExactMatch(), o).compute(), f1(nn::Average::kMicro).class_counts()};
}

double micro_f1(const Outcomes& o) { return several_labels_report(o).f1_micro; }

NumbersReport numbers_report(const Outcomes& o) {
  return {.mse = of_numbers<nn::MeanSquaredError>(o),
          .mae = of_numbers<nn::MeanAbsoluteError>(o),
          .r2 = of_numbers<nn::R2>(o),
          .pearson = of_numbers<nn::PearsonCorrelation>(o),
          .spearman = of_numbers<nn::SpearmanCorrelation>(o)};
}

double comparable_r2(const Outcomes& o) {
  if (o.outputs.empty()) return kUndefined;
  if (o.outputs.size() == 1) return o.outputs == o.targets ? 1 : 0;
  const double r2 = of_numbers<nn::R2>(o);
  return std::isfinite(r2) ? r2 : std::numeric_limits<double>::lowest();
}

}  // namespace tern::models
