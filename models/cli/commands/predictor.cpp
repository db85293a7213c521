#include "tern/models/cli/commands/predictor.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tern/core/io/pickle.h"
#include "tern/models/cli/launch/process_end.h"

namespace tern::cli {
namespace {

/// The names of the labels that are predicted.
std::vector<std::string> labels_of(const models::Prediction& p, const models::Model& model) {
  std::vector<std::string> names;
  for (const int64_t label : p.labels) names.push_back(model.labels()[static_cast<size_t>(label)]);
  return names;
}

Json record_of(const models::Prediction& p, const models::Model& model) {
  if (model.label_kind() == data::LabelKind::kSeveral)
    return {{"labels", labels_of(p, model)}, {"scores", p.scores}, {"logits", p.logits}};
  if (model.label_kind() == data::LabelKind::kOne)
    return {{"label", model.labels()[static_cast<size_t>(p.label)]}, {"score", p.score}, {"logits", p.logits}};
  return p.logits.size() == 1 ? Json{{"value", p.logits[0]}} : Json{{"values", p.logits}};
}

/// Fields with tabs between them: each label and its score, or the numbers. Empty when there is no label.
std::string line_of(const models::Prediction& p, const models::Model& model) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(6);
  const auto field = [&](const auto& value) { line << (line.tellp() > 0 ? "\t" : "") << value; };
  if (model.label_kind() == data::LabelKind::kOne) {
    field(word_of(model.labels()[static_cast<size_t>(p.label)]));
    field(p.score);
  } else if (model.label_kind() == data::LabelKind::kNumber) {
    for (const double value : p.logits) field(value);
  }
  const std::vector<std::string> names = labels_of(p, model);
  for (size_t i = 0; i < names.size(); ++i) {
    field(word_of(names[i]));
    field(p.scores[i]);
  }
  return line.str();
}

}  // namespace

std::string word_of(const std::string& label) { return tern::detail::printable(label, label.size()); }

std::string tabulated(const std::vector<double>& row) {
  std::ostringstream line;
  line << std::setprecision(std::numeric_limits<float>::max_digits10);
  for (size_t i = 0; i < row.size(); ++i) line << (i > 0 ? "\t" : "") << row[i];
  return line.str();
}

std::function<void(const std::string&)> log_to_stderr(const PredictOptions& arguments) {
  if (arguments.quiet) return {};
  return [](const std::string& line) { std::cerr << line << "\n"; };
}

void Predictor::run() {
  try {
    read_all();
  } catch (const Error&) {  // damaged input: what came before it is answered first
    flush();
    throw;
  }
  flush();
}

void Predictor::require_finite(const std::vector<double>& values, const std::string& input, const char* what) const {
  const auto bad = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  end_output();
  fail(tern::detail::printable(input), ": ", what, std::isnan(*bad) ? " NaN" : " infinite",
       "; the model's weights are damaged, or its training diverged");
}

void Predictor::print(const std::vector<models::Prediction>& predictions, const models::Model& model,
                      const std::vector<std::string>& inputs) const {
  for (size_t i = 0; i < predictions.size(); ++i) {
    const models::Prediction& p = predictions[i];
    require_finite(p.logits, inputs[i], "the model's output is");
    print_answer(a_.jsonl ? record_of(p, model) : Json(line_of(p, model)), inputs[i]);
  }
  end_output();
}

void Predictor::print(const Tensor& features, const std::vector<std::string>& inputs) const {
  const std::vector<float> values = features.to_vector<float>();
  const size_t width = static_cast<size_t>(features.size(1));
  for (size_t begin = 0; begin < values.size(); begin += width) {
    const std::vector<float> row(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                 values.begin() + static_cast<std::ptrdiff_t>(begin + width));
    require_finite({row.begin(), row.end()}, inputs[begin / width], "a feature is");
    if (a_.jsonl)
      print_answer(Json{{"features", row}}, inputs[begin / width]);
    else
      std::cout << tabulated({row.begin(), row.end()}) << "\n";
  }
  end_output();
}

void Predictor::print_answer(Json answer, const std::string& /*input*/) const {
  std::cout << json_text(answer) << "\n";
}

void Predictor::end_output() const {
  std::cout.flush();
  check_output();
}

}  // namespace tern::cli
