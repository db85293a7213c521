#include "tern/models/trainer/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tern/kernels/base/check.h"

namespace tern::models {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

struct LabelCounts {
  int64_t right = 0;  // predicted and a target
  int64_t predicted = 0, targets = 0, agree = 0;
  double f1() const {
    return predicted + targets == 0 ? 0 : 2 * static_cast<double>(right) / static_cast<double>(predicted + targets);
  }
};

double share_of(int64_t part, int64_t whole) {
  return whole == 0 ? kUndefined : static_cast<double>(part) / static_cast<double>(whole);
}

/// Of each label; `all_right`: the rows for which every label is right.
std::vector<LabelCounts> count_labels(const Outcomes& o, int64_t& all_right) {
  const auto columns = static_cast<size_t>(o.columns);
  std::vector<LabelCounts> counts(columns);
  all_right = 0;
  for (size_t row = 0; row < o.outputs.size(); row += columns) {
    bool right = true;
    for (size_t c = 0; c < columns; ++c) {
      const bool predicted = o.outputs[row + c] > 0, wanted = o.targets[row + c] > 0.5f;
      counts[c].right += predicted && wanted;
      counts[c].predicted += predicted;
      counts[c].targets += wanted;
      counts[c].agree += predicted == wanted;
      right = right && predicted == wanted;
    }
    all_right += right;
  }
  return counts;
}

LabelCounts sum_of(const std::vector<LabelCounts>& counts) {
  LabelCounts sum;
  for (const LabelCounts& label : counts) {
    sum.right += label.right;
    sum.predicted += label.predicted;
    sum.targets += label.targets;
  }
  return sum;
}

std::vector<double> ranks_of(const std::vector<float>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin) + static_cast<double>(end) + 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
  }
  return ranks;
}

double average(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const double x_mean = average(x), y_mean = average(y);
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - x_mean, dy = y[i] - y_mean;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  return xx > 0 && yy > 0 ? std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0) : kUndefined;
}

bool any_nan(const std::vector<float>& values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

double r2_of(const std::vector<double>& outputs, const std::vector<double>& targets) {
  if (targets.size() < 2) return kUndefined;
  const double mean = average(targets);
  double errors = 0, spread = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    errors += (outputs[i] - targets[i]) * (outputs[i] - targets[i]);
    spread += (targets[i] - mean) * (targets[i] - mean);
  }
  if (spread == 0) return errors == 0 ? 1 : 0;
  return 1 - errors / spread;
}

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace

SingleLabelReport single_label_report(const Outcomes& o, int64_t labels) {
  SingleLabelReport report{.confusion = std::vector<int64_t>(static_cast<size_t>(labels * labels))};
  for (size_t i = 0; i < o.outputs.size(); ++i) {
    const auto predicted = static_cast<int64_t>(o.outputs[i]), wanted = static_cast<int64_t>(o.targets[i]);
    TERN_CHECK(predicted >= 0 && predicted < labels && wanted >= 0 && wanted < labels, "evaluation: label ", wanted,
               " predicted as ", predicted, " of ", labels, " labels");
    ++report.confusion[static_cast<size_t>(wanted * labels + predicted)];
  }
  double f1_sum = 0;
  int64_t defined = 0;
  for (int64_t label = 0; label < labels; ++label) {
    int64_t predicted = 0, rows = 0;
    for (int64_t other = 0; other < labels; ++other) {
      predicted += report.confusion[static_cast<size_t>(other * labels + label)];
      rows += report.confusion[static_cast<size_t>(label * labels + other)];
    }
    const int64_t right = report.confusion[static_cast<size_t>(label * labels + label)];
    report.labels.push_back(
        {share_of(right, predicted), share_of(right, rows), share_of(2 * right, predicted + rows), rows});
    if (predicted + rows == 0) continue;
    f1_sum += report.labels.back().f1;
    ++defined;
  }
  report.f1_macro = defined > 0 ? f1_sum / static_cast<double>(defined) : kUndefined;
  return report;
}

SeveralLabelsReport several_labels_report(const Outcomes& o) {
  int64_t all_right = 0;
  const std::vector<LabelCounts> counts = count_labels(o, all_right);
  const int64_t rows = o.columns > 0 ? static_cast<int64_t>(o.outputs.size()) / o.columns : 0;
  SeveralLabelsReport report{.f1_micro = micro_f1(o), .accuracy = share_of(all_right, rows)};
  for (const LabelCounts& label : counts) {
    report.labels.push_back({share_of(label.agree, rows), rows > 0 ? label.f1() : kUndefined, label.targets});
    report.f1_macro += report.labels.back().f1 / static_cast<double>(counts.size());
  }
  if (rows == 0) report.f1_macro = kUndefined;
  return report;
}

double micro_f1(const Outcomes& o) {
  int64_t all_right = 0;
  return o.outputs.empty() ? kUndefined : sum_of(count_labels(o, all_right)).f1();
}

NumbersReport numbers_report(const Outcomes& o) {
  NumbersReport report;
  const std::vector<double> outputs = doubles(o.outputs), targets = doubles(o.targets);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double error = outputs[i] - targets[i];
    report.mse += error * error;
    report.mae += std::abs(error);
  }
  report.mse /= static_cast<double>(outputs.size());  // NaN without examples
  report.mae /= static_cast<double>(outputs.size());
  report.r2 = r2_of(outputs, targets);
  report.pearson = correlation(outputs, targets);
  report.spearman = any_nan(o.outputs) ? kUndefined : correlation(ranks_of(o.outputs), ranks_of(o.targets));
  return report;
}

double comparable_r2(const Outcomes& o) {
  if (o.outputs.empty()) return kUndefined;
  if (o.outputs.size() == 1) return o.outputs == o.targets ? 1 : 0;
  const double r2 = r2_of(doubles(o.outputs), doubles(o.targets));
  return std::isfinite(r2) ? r2 : std::numeric_limits<double>::lowest();
}

}  // namespace tern::models
