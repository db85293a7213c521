#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/data/hub/hub.h"
#include "tern/dist/loop/world.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/matmul_options.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/run/data_sets.h"
#include "tern/models/cli/run/evaluation_text.h"
#include "tern/models/cli/run/resume.h"
#include "tern/models/cli/run/version.h"
#include "tern/models/families.h"
#include "tern/models/image/image_task.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/models/text/text_task.h"
#include "tern/models/trainer/finite.h"
#include "tern/models/trainer/trainer.h"

namespace tern::cli {
namespace {

struct EvalOptions : ModelOptions {
  using Self = EvalOptions;
  std::string dir = option(&Self::dir, "", "dir", kModelHelp, Required{}, Compared::kNowhere);
  std::string data =
      option(&Self::data, "", "--data",
             "what to evaluate on, as in train; a file is evaluated whole; default: the test rows of the run",
             Compared::kNowhere);  // the rows are compared: compare_rows()
  std::string split = option(&Self::split, "", "--split", "evaluate the test part of this split, as in train",
                             Form{kSplitForm, data::is_split});
  std::string fold =
      option(&Self::fold, "", "--fold", "i/k: evaluate the i-th of k stratified parts", Form{kFoldForm, data::is_fold});
  int64_t max_length = option(&Self::max_length, 0, "--max-length",
                              "tokens a text is cut to; default: as in training, else the model's maximum",
                              Bounds{2, 1 << 24}, For::kTexts);
  std::string tokenizer = option(&Self::tokenizer, "", "--tokenizer", kTokenizerHelp, For::kTexts, Compared::kNowhere);
  int64_t batch_tokens =
      option(&Self::batch_tokens, 16384, "--batch-tokens", "tokens a batch", Bounds{1, int64_t{1} << 40}, For::kTexts);
  std::string dtype =
      option(&Self::dtype, "fp32", "--dtype", "of matrix products:", Words{"fp32", "bf16", "fp16", "auto"});
  std::string tta =
      option(&Self::tta, "", "--tta",
             "test-time augmentation, the mean of the probabilities of several views; default: as in the test after "
             "training, else none; one of:",
             Words{models::test_time_names()}, For::kImages);
  bool json = option(&Self::json, false, "--json", "print one JSON object", Compared::kNowhere);
};

/// What is evaluated.
struct EvalPlan {
  std::string data, split, fold;
  uint64_t seed = 0;
  int64_t max_length = 0;  // 0: the model's
  std::string views;
  bool whole = false;   // a file or folder given by hand, unless a split is given or the set has parts
  bool of_run = false;  // the rows that the test after training was of
};

/// By the options and, where they say nothing else, what the run was trained with: the same data, split and length.
const EvalPlan plan_evaluation(const EvalOptions& given) {
  const TrainArguments trained = arguments_of_run(given.dir);
  const bool own_data = given.data.empty(), own_rows = own_data && given.split.empty() && given.fold.empty();
  const bool own_seed = own_data && !given.given("--seed");
  if (own_data) {
    const std::string record = (std::filesystem::path(given.dir) / "run.json").string();
    if (trained.data.empty())
      throw UsageError("eval: --data is needed: " + record + " does not record the training data");
    TERN_CHECK(is_named_set(trained.data) || tern::detail::name_exists(trained.data), record, ": the run's data '",
               trained.data, "' is not found, neither here nor where the run was started; give --data");
  }
  return {.data = own_data ? trained.data : given.data,
          .split = own_rows ? trained.split : given.split,
          .fold = own_rows ? trained.fold : given.fold,
          .seed = own_seed ? trained.seed : given.seed,
          .max_length = given.max_length > 0 ? given.max_length : trained.max_length,
          .views = given.tta.empty() ? views_of_run(trained) : given.tta,
          .whole = !own_data,
          .of_run = own_rows && own_seed};
}

DType dtype_of(const std::string& name, Device device) {
  return name == "bf16" ? bfloat16 : name == "fp16" ? float16 : name == "auto" ? autocast_dtype(device) : float32;
}

/// A set with an official split, or a named split, is evaluated on its test part.
std::vector<int32_t> rows_to_evaluate(const EvalPlan& plan, const data::LabelledSet& set) {
  if (plan.whole && plan.split.empty() && plan.fold.empty() && set.parts.empty()) {
    std::vector<int32_t> rows(set.labels.size());
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const data::Split split = data::make_split(set, plan.split, plan.fold, plan.seed);
  TERN_CHECK(!split.test.empty(), "eval: ", plan.split.empty() ? "the default split" : "the split '" + plan.split + "'",
             " of ", set.name, " has no test rows; give --split or --data");
  return split.test;
}

/// A job's ranks must see the same rows of the same data, whose hash `content` gives.
void compare_rows(const std::vector<int32_t>& rows, const std::function<std::string()>& content, dist::World& world) {
  const dist::Communicator& group = *world.group();
  if (world.store())
    world.store()->compare("the data", group.world_ranks(), group.rank(),
                           std::to_string(rows.size()) + " rows of the content " + content(), 600);
}

/// An evaluation and what it is of.
struct Evaluated {
  models::Evaluation result;
  data::LabelKind kind = data::LabelKind::kOne;
  std::vector<std::string> labels;
  std::string damage = {};  // a weight that is not finite
};

/// Evaluated from the outputs of the model. Where they are not finite, there is no prediction to count.
Evaluated with_damage(const models::Evaluation& result, const models::Model& model) {
  return {result, model.label_kind(), model.labels(), result.is_finite() ? "" : models::first_non_finite(model)};
}

Evaluated evaluate_texts(const EvalOptions& a, const EvalPlan& plan, dist::World& world, const models::Log& log,
                         const models::EvaluateOptions& options) {
  const models::TextPipeline pipeline(
      models::load_pretrained<models::SequenceClassifier>(a.dir, {.device = world.group()->device(), .log = log}),
      tokenizer_of(a.tokenizer, a.dir, log), a.dir, log);
  models::SequenceClassifier& model = pipeline.model();
  const data::LabelKind kind = model.label_kind();
  TERN_CHECK(kind != data::LabelKind::kNumber || model.labels().size() == 1, a.dir, ": the model gives ",
             model.labels().size(), " numbers for a text; evaluation is of one");
  const LabelledTexts data = load_texts(plan.data, kind, model.labels(), log);
  const std::vector<int32_t> rows = rows_to_evaluate(plan, data.texts);
  compare_rows(
      rows, [&] { return data.texts.content_hash() + " and the labels " + data.labels_hash(); }, world);
  const int64_t length = models::token_limit(model, pipeline.tokenizer(), plan.max_length);
  const auto tokens = tokenize_texts(data.texts, pipeline, length, log);
  const std::vector<int32_t> labels = kind == data::LabelKind::kOne ? data.texts.labels : std::vector<int32_t>();
  return with_damage(models::evaluate(model, tokens, labels, rows, a.batch_tokens, models::filler(pipeline.tokenizer()),
                                      options, data.transform()),
                     model);
}

Evaluated evaluate_images(const EvalOptions& a, const EvalPlan& plan, dist::World& world, const models::Log& log,
                          const models::EvaluateOptions& options) {
  const auto pipeline = models::ImagePipeline::load(a.dir, {.device = world.group()->device(), .log = log});
  const auto set = std::make_shared<const data::ImageSet>(load_image_set(plan.data, pipeline.model().labels(), log));
  const std::vector<int32_t> rows = rows_to_evaluate(plan, *set);
  compare_rows(
      rows, [&] { return set->content_hash(); }, world);
  return with_damage(
      models::evaluate(pipeline, set, rows,
                       {.views = models::test_time_views(plan.views), .log = log, .validation = options}),
      pipeline.model());
}

void print(const Evaluated& evaluated, bool json) {
  const auto& [result, kind, labels, damage] = evaluated;
  std::cout << (json ? report_json : report_text)(kind, labels, result) << "\n";
  std::cout.flush();
}

/// Into the folder of a run; a folder of another kind is left as it is. The picture of the run's own test rows is kept
/// apart from that of others.
void write_picture(const std::string& dir, bool of_run, const Evaluated& evaluated, const models::Log& log) {
  const std::filesystem::path folder(dir);
  if (evaluated.kind != data::LabelKind::kOne || !tern::detail::name_exists((folder / "run.json").string())) return;
  const char* const name = of_run ? "confusion_matrix.svg" : "confusion_matrix_other.svg";
  const std::string path = (folder / name).string();
  try {
    write_atomically(path, confusion_svg(evaluated.labels, evaluated.result));
    log("confusion matrix: " + path);
  } catch (const Error& error) {  // the numbers are still worth printing
    log(std::string("the picture of the confusion matrix was not written: ") + error.what());
  }
}

int evaluate(EvalOptions given) {
  check_one_of_split_and_fold(given.split, given.fold);
  end_in_order_on_signals();
  const Device device = apply_common(given);
  dist::World world(dist::detect_launch(), device,
                    {.group = dist::with_environment({}), .facts = version_text() + "\n" + lines_to_compare(given)});
  try {
    const auto log = [&](const std::string& line) {
      if (!given.quiet && world.group()->rank() == 0) std::cerr << line << "\n";
    };
    given.dir = data::local_model(given.dir, data::HubUse::kModel, log);
    apply_matmul_options({.tf32 = given.tf32}, device, log);
    restore_autotune(given.dir, device, log);
    const bool images = models::kind_of_model(given.dir) == models::ModelKind::kImages;
    check_options_are_for(images ? For::kImages : For::kTexts, given);
    const EvalPlan plan = plan_evaluation(given);
    const Evaluated evaluated =
        (images ? evaluate_images : evaluate_texts)(given, plan, world, log,
                                                    {.dtype = dtype_of(given.dtype, device),
                                                     .should_stop = [] { return pending_signal() != 0; },
                                                     .group = world.group().get()});
    check_interrupted();
    if (evaluated.result.stopped) throw dist::PeerError("eval: another rank was interrupted");
    TERN_CHECK(evaluated.result.is_finite(), not_finite_text("eval", evaluated.result), "; ",
               evaluated.damage.empty() ? "its weights are finite, so its training diverged, or --dtype overflows"
                                        : evaluated.damage);
    if (world.group()->rank() == 0) write_picture(given.dir, plan.of_run, evaluated, log);
    print(evaluated, given.json);
    world.finish();
    return 0;
  } catch (...) {
    return report_failure();
  }
}

}  // namespace

Command eval_command() {
  const auto options = std::make_shared<EvalOptions>();
  return {"eval", "metrics and loss of a trained folder", "Example: tern eval " + example_run() + " --data reviews.csv",
          options, [options] { return evaluate(*options); }};
}

}  // namespace tern::cli
