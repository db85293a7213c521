#pragma once
// Evaluations as the program prints and records them, by what the rows are labelled with.

#include <string>
#include <vector>

#include "tern/data/datasets/labelled_set.h"
#include "tern/models/trainer/evaluation.h"

namespace tern::cli {

/// The metric in metrics.jsonl: "accuracy", "f1_micro" (several labels) or "r2" (numbers).
std::string metric_key(data::LabelKind kind);
/// The same in words: "accuracy", "F1 (micro)", "R2".
std::string metric_name(data::LabelKind kind);
/// The metric as it is shown and recorded: NaN where it is not defined, which is R2 of one row (the comparison of
/// epochs takes a number in its place).
double shown_metric(data::LabelKind kind, const models::Evaluation& result);
/// "accuracy 85.33 %", "F1 (micro) 0.8312".
std::string metric_text(data::LabelKind kind, const models::Evaluation& result);
/// "accuracy 85.33 % (300 rows, loss 0.5264)".
std::string evaluation_text(data::LabelKind kind, const models::Evaluation& result);

/// "test: the model's outputs for 3 of 20 rows are NaN or infinite (loss nan)", of an evaluation that is not finite.
std::string not_finite_text(const std::string& what, const models::Evaluation& result);

/// Every metric, of labels with a line for each label. Of one label, with the confusion matrix where it fits a
/// terminal.
std::string report_text(data::LabelKind kind, const std::vector<std::string>& labels, const models::Evaluation& result);
/// The same as a JSON object, in which what is not defined is null.
std::string report_json(data::LabelKind kind, const std::vector<std::string>& labels, const models::Evaluation& result);

/// The confusion matrix of one label for each example as an SVG document.
std::string confusion_svg(const std::vector<std::string>& labels, const models::Evaluation& result);

}  // namespace tern::cli
