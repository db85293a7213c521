#include "tern/models/cli/evaluation_text.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "tern/core/io/pickle.h"

namespace tern::cli {
namespace {

using data::LabelKind;
using ReportJson = nlohmann::ordered_json;

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}
std::string percent(double share) { return fixed(100 * share, 2) + " %"; }

/// What the metric is of: " (300 rows, loss 0.5264)".
std::string rows_text(const models::Evaluation& result) {
  return " (" + std::to_string(result.examples) + " rows, loss " + fixed(result.loss, 4) + ")";
}

std::string several_labels_text(const std::vector<std::string>& labels, const models::Evaluation& result) {
  const models::SeveralLabelsReport report = models::several_labels_report(result.outcomes);
  std::ostringstream text;
  text << "F1 micro " << fixed(report.f1_micro, 4) << ", macro " << fixed(report.f1_macro, 4) << ", all labels right "
       << percent(report.accuracy) << rows_text(result);
  size_t width = 5;
  for (const std::string& label : labels) width = std::max(width, label.size());
  text << "\n  " << std::left << std::setw(static_cast<int>(width)) << "label"
       << "  accuracy      F1  rows";
  for (size_t i = 0; i < report.labels.size(); ++i) {
    const auto& of = report.labels[i];
    text << "\n  " << std::left << std::setw(static_cast<int>(width))
         << tern::detail::printable(labels[i], labels[i].size()) << "  " << std::right << std::setw(8)
         << percent(of.accuracy) << "  " << fixed(of.f1, 4) << "  " << of.rows;
  }
  return text.str();
}

ReportJson several_labels_record(const std::vector<std::string>& labels, const models::Evaluation& result) {
  const models::SeveralLabelsReport report = models::several_labels_report(result.outcomes);
  ReportJson by_label = ReportJson::object();
  for (size_t i = 0; i < report.labels.size(); ++i) {
    const auto& of = report.labels[i];
    by_label[labels[i]] = {{"accuracy", of.accuracy}, {"f1", of.f1}, {"rows", of.rows}};
  }
  return {{"f1_micro", report.f1_micro}, {"f1_macro", report.f1_macro}, {"accuracy", report.accuracy},
          {"labels", by_label},          {"loss", result.loss},         {"examples", result.examples}};
}

}  // namespace

std::string metric_key(LabelKind kind) {
  return kind == LabelKind::kOne ? "accuracy" : kind == LabelKind::kSeveral ? "f1_micro" : "r2";
}

std::string metric_name(LabelKind kind) {
  return kind == LabelKind::kOne ? "accuracy" : kind == LabelKind::kSeveral ? "F1 (micro)" : "R2";
}

std::string metric_text(LabelKind kind, double metric) {
  return metric_name(kind) + " " + (kind == LabelKind::kOne ? percent(metric) : fixed(metric, 4));
}

std::string evaluation_text(LabelKind kind, const models::Evaluation& result) {
  return metric_text(kind, result.metric) + rows_text(result);
}

std::string report_text(LabelKind kind, const std::vector<std::string>& labels, const models::Evaluation& result) {
  if (kind == LabelKind::kOne) return evaluation_text(kind, result);
  if (kind == LabelKind::kSeveral) return several_labels_text(labels, result);
  const models::NumbersReport report = models::numbers_report(result.outcomes);
  return "mean squared error " + fixed(report.mse, 4) + ", mean absolute error " + fixed(report.mae, 4) + ", R2 " +
         fixed(report.r2, 4) + ", Pearson " + fixed(report.pearson, 4) + ", Spearman " + fixed(report.spearman, 4) +
         " (" + std::to_string(result.examples) + " rows)";
}

nlohmann::ordered_json report_record(LabelKind kind, const std::vector<std::string>& labels,
                                     const models::Evaluation& result) {
  if (kind == LabelKind::kOne)
    return {{"accuracy", result.metric}, {"loss", result.loss}, {"examples", result.examples}};
  if (kind == LabelKind::kSeveral) return several_labels_record(labels, result);
  const models::NumbersReport report = models::numbers_report(result.outcomes);
  return {{"mse", report.mse},          {"mae", report.mae},           {"r2", report.r2},
          {"pearson", report.pearson},  {"spearman", report.spearman}, {"loss", result.loss},
          {"examples", result.examples}};
}

}  // namespace tern::cli
