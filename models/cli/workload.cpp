#include "tern/models/cli/workload.h"

namespace tern::cli {

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
  return evaluate(setting_.share(split_.test));
}

std::string Workload::describe(int64_t total_steps) const {
  const int64_t batches = options_.accumulate * setting_.ranks;
  return tern::detail::concatenate("train: ", split_.train.size(), " ", row_, "s, validate ", split_.validation.size(),
                                   ", test ", split_.test.size(), "; ", model().num_parameters(), " parameters",
                                   describe_input(), "; ", total_steps, " steps of ",
                                   batches > 1 ? std::to_string(batches) + " x " : "", describe_batch(), ", ",
                                   options_.epochs, " epochs");
}

void Workload::split(const data::LabelledSet& set, data::LabelKind kind, const TrainArguments& given) {
  TERN_CHECK(kind != data::LabelKind::kOne || set.label_names.size() > 1, set.name, ": every ", row_,
             " has the label '", set.label_names.front(), "'; a classifier needs two or more");
  split_ = data::make_split(set, given.split, given.fold, given.seed);
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
  const std::string path = model_path(given);
  return path.empty() ? family.make(preset, options) : family.load(path, options);
}

models::EvaluateOptions Workload::evaluation(DType dtype) const {
  return {.dtype = dtype, .should_stop = [] { return pending_signal() != 0; }};
}

}  // namespace tern::cli
