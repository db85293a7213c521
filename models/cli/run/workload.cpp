#include "tern/models/cli/run/workload.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tern/data/files/text.h"

namespace tern::cli {
namespace {

/// ", 5130 of them trained", where some are frozen.
std::string trained_text(const models::Model& model) {
  int64_t trained = 0;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.requires_grad()) trained += parameter.tensor.numel();
  return trained == model.num_parameters() ? "" : ", " + std::to_string(trained) + " of them trained";
}

}  // namespace

Json Workload::model_record() const {
  Json record = Json::parse(model().record());
  record["parameters"] = model().num_parameters();
  return record;
}

Json Workload::data_record() const {
  return {{"train", split_.train.size()}, {"validation", split_.validation.size()}, {"test", split_.test.size()}};
}

std::optional<models::Evaluation> Workload::test() {
  if (split_.test.empty()) return std::nullopt;
  return evaluate(split_.test);
}

std::string Workload::describe(int64_t total_steps) const {
  const int64_t batches = plan_->accumulate * setting_.ranks();
  return tern::detail::concatenate(
      "train: ", data::counted(std::ssize(split_.train), row_), ", validate ", split_.validation.size(), ", test ",
      split_.test.size(), "; ", model().num_parameters(), " parameters", trained_text(model()), describe_input(), "; ",
      data::counted(total_steps, "step"), " of ", batches > 1 ? std::to_string(batches) + " x " : "", describe_batch(),
      ", ", data::counted(plan_->epochs, "epoch"));
}

void Workload::split(const data::LabelledSet& set, data::LabelKind kind, const TrainArguments& given,
                     const std::string& parts, const std::vector<std::string>& labels, const Tensor& targets) {
  TERN_CHECK(kind != data::LabelKind::kOne || set.label_names.size() > 1, set.name, ": every ", row_,
             " has the label '", set.label_names.front(), "'; a classifier needs two or more");
  split_ = data::make_split(set, parts, given.fold, given.seed);
  if (kind == data::LabelKind::kNumber) return;
  const int64_t count = std::ssize(labels);
  std::vector<bool> seen(labels.size());
  for (const int32_t row : split_.train) {
    if (kind == data::LabelKind::kSeveral) {
      for (int64_t label = 0; label < count; ++label)
        if (targets.data<float>()[row * count + label] > 0) seen[static_cast<size_t>(label)] = true;
    } else if (const int32_t label = set.labels[static_cast<size_t>(row)]; label >= 0) {
      seen[static_cast<size_t>(label)] = true;
    }
  }
  TERN_CHECK(kind != data::LabelKind::kOne || std::count(seen.begin(), seen.end(), true) > 1, set.name,
             ": the split's ", data::counted(std::ssize(split_.train), "training " + std::string(row_)),
             " have one label alone; give another --split or --seed");
  report_untrained(labels, seen);
}

void Workload::report_untrained(const std::vector<std::string>& labels, const std::vector<bool>& seen) const {
  constexpr size_t kShown = 10;
  std::vector<std::string> missing;
  for (size_t label = 0; label < seen.size(); ++label)
    if (!seen[label]) missing.push_back("'" + tern::detail::printable(labels[label]) + "'");
  if (missing.empty()) return;
  const size_t others = missing.size() - std::min(missing.size(), kShown);
  missing.resize(missing.size() - others);
  setting_.log("no training " + std::string(row_) + " has the label " + models::in_words(missing, " or ") +
               (others > 0 ? " or one of " + std::to_string(others) + " more" : "") +
               ", so the model cannot learn it; another --split or --seed may differ");
}

std::unique_ptr<models::Model> Workload::build(const TrainArguments& given, const std::string& preset,
                                               models::BuildOptions& options) const {
  options.device = setting_.device;
  options.dtype = setting_.precision.weights;
  options.generator = Generator(given.seed);
  options.allow_new_head = !resumed();
  options.log = setting_.log;
  if (resumed()) {  // the checkpoint has its configuration
    options.dropout.reset();
    options.image_size = 0;
  }
  const models::ModelFamily& family = models::family_named(given.model);
  const std::string path = model_path();
  std::unique_ptr<models::Model> model = path.empty() ? family.make(preset, options) : family.load(path, options);
  freeze(*model, given.freeze);
  return model;
}

models::EvaluateOptions Workload::evaluation(DType dtype) const {
  return {.dtype = dtype, .should_stop = [] { return pending_signal() != 0; }, .group = setting_.group};
}

}  // namespace tern::cli
