#include "tern/models/cli/run/evaluation_text.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/core/io/pickle.h"
#include "tern/data/files/text.h"
#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/unicode.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/run/plot.h"

namespace tern::cli {
namespace {

using data::LabelKind;
using ReportJson = nlohmann::ordered_json;

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}
std::string percent(double share) { return fixed(100 * share, 2) + " %"; }

/// What the metric is of: " (300 rows, loss 0.5264)".
std::string rows_text(const models::Evaluation& result) {
  return " (" + data::counted(result.examples, "row") + ", loss " + fixed(result.loss, 4) + ")";
}

/// "-" where it is not defined.
std::string defined(double value) { return std::isnan(value) ? "-" : fixed(value, 4); }

/// The columns that a terminal gives a text: none for marks, two for ideographs, kana, Hangul, wide forms and pictures.
size_t columns_of(const std::string& text) {
  constexpr std::pair<char32_t, char32_t> kWide[] = {
      {0x1100, 0x115F}, {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},  {0xFF00, 0xFF60},
      {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  size_t columns = 0;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char32_t c = data::unicode::decode_utf8(at, end);
    const bool mark = c <= data::unicode::kLastCodePoint &&
                      ((data::unicode::properties(c).flags & data::unicode::kMark) != 0 || c == 0x200D || c == 0xFE0F);
    const bool wide = std::any_of(std::begin(kWide), std::end(kWide),
                                  [c](const auto& range) { return c >= range.first && c <= range.second; });
    columns += mark ? 0 : wide ? 2 : 1;
  }
  return columns;
}

/// Names of one width, at least that of the heading.
std::vector<std::string> padded(const std::vector<std::string>& labels, const std::string& heading) {
  std::vector<std::string> names = {heading};
  for (const std::string& label : labels) names.push_back(tern::detail::printable(label, label.size()));
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, columns_of(name));
  for (std::string& name : names) name.append(width - columns_of(name), ' ');
  return names;
}

/// Rows are the labels, columns what was predicted, by number.
std::string confusion_text(const std::vector<std::string>& names, const models::SingleLabelReport& report) {
  const size_t n = report.labels.size();
  size_t width = std::to_string(n - 1).size();
  for (const int64_t count : report.confusion) width = std::max(width, std::to_string(count).size());
  const auto cell = [&](int64_t value) {
    const std::string text = std::to_string(value);
    return std::string(2 + width - text.size(), ' ') + text;
  };
  std::string text = "\n\n  " + names[0] + "   #";
  for (size_t column = 0; column < n; ++column) text += cell(static_cast<int64_t>(column));
  text += "  predicted";
  for (size_t row = 0; row < n; ++row) {
    const std::string number = std::to_string(row);
    text += "\n  " + names[row + 1] + std::string(4 - number.size(), ' ') + number;
    for (size_t column = 0; column < n; ++column) text += cell(report.confusion[row * n + column]);
  }
  return text;
}

std::string single_label_text(const std::vector<std::string>& labels, const models::Evaluation& result) {
  constexpr size_t kLabelsOfAMatrix = 20;
  const models::SingleLabelReport report =
      models::single_label_report(result.outcomes, static_cast<int64_t>(labels.size()));
  std::ostringstream text;
  text << evaluation_text(LabelKind::kOne, result);
  const std::vector<std::string> names = padded(labels, "label");
  text << "\n  " << names[0] << "  precision  recall      F1  rows";
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto& of = report.labels[i];
    text << "\n  " << names[i + 1] << "  " << std::setw(9) << defined(of.precision(kUndefined)) << "  " << std::setw(6)
         << defined(of.recall(kUndefined)) << "  " << std::setw(6) << defined(of.f1(kUndefined)) << "  " << of.targets;
  }
  text << "\n  F1 macro " << defined(report.f1_macro);
  if (labels.size() <= kLabelsOfAMatrix) text << confusion_text(names, report);
  return text.str();
}

ReportJson single_label_record(const std::vector<std::string>& labels, const models::Evaluation& result) {
  const models::SingleLabelReport report =
      models::single_label_report(result.outcomes, static_cast<int64_t>(labels.size()));
  ReportJson by_label = ReportJson::object(), matrix = ReportJson::array();
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto& of = report.labels[i];
    by_label[labels[i]] = {{"precision", of.precision(kUndefined)},
                           {"recall", of.recall(kUndefined)},
                           {"f1", of.f1(kUndefined)},
                           {"rows", of.targets}};
    const auto row = report.confusion.begin() + static_cast<int64_t>(i * labels.size());
    matrix.push_back(std::vector<int64_t>(row, row + static_cast<int64_t>(labels.size())));
  }
  return {{"accuracy", result.metric},  {"f1_macro", report.f1_macro}, {"labels", by_label},
          {"confusion_matrix", matrix}, {"loss", result.loss},         {"examples", result.examples}};
}

std::string several_labels_text(const std::vector<std::string>& labels, const models::Evaluation& result) {
  const models::SeveralLabelsReport report = models::several_labels_report(result.outcomes);
  std::ostringstream text;
  text << "F1 micro " << fixed(report.f1_micro, 4) << ", macro " << fixed(report.f1_macro, 4) << ", all labels right "
       << percent(report.accuracy) << rows_text(result);
  const std::vector<std::string> names = padded(labels, "label");
  text << "\n  " << names[0] << "  accuracy      F1  rows";
  for (size_t i = 0; i < report.labels.size(); ++i) {
    const auto& of = report.labels[i];
    text << "\n  " << names[i + 1] << "  " << std::setw(8) << percent(of.accuracy()) << "  " << fixed(of.f1(), 4)
         << "  " << of.targets;
  }
  return text.str();
}

ReportJson several_labels_record(const std::vector<std::string>& labels, const models::Evaluation& result) {
  const models::SeveralLabelsReport report = models::several_labels_report(result.outcomes);
  ReportJson by_label = ReportJson::object();
  for (size_t i = 0; i < report.labels.size(); ++i) {
    const auto& of = report.labels[i];
    by_label[labels[i]] = {{"accuracy", of.accuracy()}, {"f1", of.f1()}, {"rows", of.targets}};
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

double shown_metric(LabelKind kind, const models::Evaluation& result) {
  return kind == LabelKind::kNumber && result.examples == 1 ? std::nan("") : result.metric;
}

std::string metric_text(LabelKind kind, const models::Evaluation& result) {
  const double metric = shown_metric(kind, result);
  if (kind == LabelKind::kNumber && std::isnan(metric)) return "R2 (not defined for one row)";
  return metric_name(kind) + " " + (kind == LabelKind::kOne ? percent(metric) : fixed(metric, 4));
}

std::string evaluation_text(LabelKind kind, const models::Evaluation& result) {
  return metric_text(kind, result) + rows_text(result);
}

std::string not_finite_text(const std::string& what, const models::Evaluation& result) {
  return what + ": the model's outputs for " + std::to_string(result.not_finite) + " of " +
         data::counted(result.examples, "row") + " are NaN or infinite (loss " + fixed(result.loss, 4) + ")";
}

std::string report_text(LabelKind kind, const std::vector<std::string>& labels, const models::Evaluation& result) {
  if (kind == LabelKind::kOne) return single_label_text(labels, result);
  if (kind == LabelKind::kSeveral) return several_labels_text(labels, result);
  const models::NumbersReport report = models::numbers_report(result.outcomes);
  return "mean squared error " + fixed(report.mse, 4) + ", mean absolute error " + fixed(report.mae, 4) + ", R2 " +
         defined(report.r2) + ", Pearson " + defined(report.pearson) + ", Spearman " + defined(report.spearman) + " (" +
         data::counted(result.examples, "row") + ")";
}

std::string report_json(LabelKind kind, const std::vector<std::string>& labels, const models::Evaluation& result) {
  if (kind == LabelKind::kOne) return json_text(single_label_record(labels, result));
  if (kind == LabelKind::kSeveral) return json_text(several_labels_record(labels, result));
  const models::NumbersReport report = models::numbers_report(result.outcomes);
  return json_text({{"mse", report.mse},
                    {"mae", report.mae},
                    {"r2", report.r2},
                    {"pearson", report.pearson},
                    {"spearman", report.spearman},
                    {"loss", result.loss},
                    {"examples", result.examples}});
}

std::string confusion_svg(const std::vector<std::string>& labels, const models::Evaluation& result) {
  const auto n = static_cast<int64_t>(labels.size());
  return svg_of(CountPlot{.title = evaluation_text(LabelKind::kOne, result),
                          .row_label = "label",
                          .column_label = "predicted",
                          .names = labels,
                          .counts = models::single_label_report(result.outcomes, n).confusion});
}

}  // namespace tern::cli
