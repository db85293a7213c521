#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/dist/loop/world.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/commands/evaluation_text.h"
#include "tern/models/cli/options/matmul_options.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/run/data_sets.h"
#include "tern/models/cli/version.h"
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
  std::string dir = option(&Self::dir, "", "dir", "model folder", Required{}, Compared::kNowhere);
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

/// What was given, with what the run was trained with where nothing else is said: the same data, split and length.
EvalOptions with_record(const EvalOptions& given) {
  const TrainArguments trained = arguments_of_run(given.dir);
  EvalOptions options = given;
  if (given.data.empty()) {
    const std::string record = (std::filesystem::path(given.dir) / "run.json").string();
    if (trained.data.empty())
      throw UsageError("eval: --data is needed: " + record + " does not record the training data");
    TERN_CHECK(is_named_set(trained.data) || tern::detail::name_exists(trained.data), record, ": the run's data '",
               trained.data, "' is not found, neither here nor where the run was started; give --data");
    options.data = trained.data;
    if (given.split.empty() && given.fold.empty()) {
      options.split = trained.split;
      options.fold = trained.fold;
    }
    if (!given.given("--seed")) options.seed = trained.seed;
  }
  if (given.tta.empty()) options.tta = views_of_run(trained);
  if (given.max_length == 0) options.max_length = trained.max_length;
  return options;
}

DType dtype_of(const std::string& name, Device device) {
  return name == "bf16" ? bfloat16 : name == "fp16" ? float16 : name == "auto" ? autocast_dtype(device) : float32;
}

/// A file or folder given by hand is evaluated whole; a set with an official split, or a named split, on its test
/// part.
std::vector<int32_t> rows_to_evaluate(const EvalOptions& a, bool other_data, const data::LabelledSet& set) {
  if (other_data && a.split.empty() && a.fold.empty() && set.parts.empty()) {
    std::vector<int32_t> rows(set.labels.size());
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const data::Split split = data::make_split(set, a.split, a.fold, a.seed);
  TERN_CHECK(!split.test.empty(), "eval: ", a.split.empty() ? "the default split" : "the split '" + a.split + "'",
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

Evaluated evaluate_texts(const EvalOptions& a, bool other_data, dist::World& world, const Log& log,
                         const models::EvaluateOptions& options) {
  const auto pipeline = models::TextPipeline::load(a.dir, {.device = world.group()->device(), .log = log});
  models::SequenceClassifier& model = pipeline.model();
  const data::LabelKind kind = model.label_kind();
  TERN_CHECK(kind != data::LabelKind::kNumber || model.labels().size() == 1, a.dir, ": the model gives ",
             model.labels().size(), " numbers for a text; evaluation is of one");
  const LabelledTexts data = load_texts(a.data, kind, model.labels(), log);
  const std::vector<int32_t> rows = rows_to_evaluate(a, other_data, data.texts);
  compare_rows(
      rows, [&] { return data.texts.content_hash() + " and the labels " + data.labels_hash(); }, world);
  const int64_t length = a.max_length > 0 ? std::min(a.max_length, model.max_positions()) : model.max_positions();
  const auto tokens = tokenize_texts(data.texts, pipeline.tokenizer(), length, log);
  const std::vector<int32_t> labels = kind == data::LabelKind::kOne ? data.texts.labels : std::vector<int32_t>();
  return with_damage(models::evaluate(model, tokens, labels, rows, a.batch_tokens, pipeline.tokenizer().pad_id(),
                                      options, data.transform()),
                     model);
}

Evaluated evaluate_images(const EvalOptions& a, bool other_data, dist::World& world, const Log& log,
                          const models::EvaluateOptions& options) {
  const auto pipeline = models::ImagePipeline::load(a.dir, {.device = world.group()->device(), .log = log});
  const auto set = std::make_shared<const data::ImageSet>(load_image_set(a.data, pipeline.model().labels(), log));
  const std::vector<int32_t> rows = rows_to_evaluate(a, other_data, *set);
  compare_rows(
      rows, [&] { return set->content_hash(); }, world);
  return with_damage(models::evaluate(pipeline, set, rows,
                                      {.views = models::test_time_views(a.tta), .log = log, .validation = options}),
                     pipeline.model());
}

void print(const Evaluated& evaluated, bool json) {
  const auto& [result, kind, labels, damage] = evaluated;
  if (json)
    std::cout << json_text(report_record(kind, labels, result)) << "\n";
  else
    std::cout << report_text(kind, labels, result) << "\n";
  std::cout.flush();
}

/// Whether the rows are those that the test after training was of.
bool is_of_run(const EvalOptions& given) {
  return given.data.empty() && given.split.empty() && given.fold.empty() && !given.given("--seed");
}

/// Into the folder of a run; a folder of another kind is left as it is. The picture of the run's own test rows is kept
/// apart from that of others.
void write_picture(const EvalOptions& given, const Evaluated& evaluated, const Log& log) {
  const std::filesystem::path folder(given.dir);
  if (evaluated.kind != data::LabelKind::kOne || !tern::detail::name_exists((folder / "run.json").string())) return;
  const char* const name = is_of_run(given) ? "confusion_matrix.svg" : "confusion_matrix_other.svg";
  const std::string path = (folder / name).string();
  try {
    write_atomically(path, confusion_svg(evaluated.labels, evaluated.result));
    log("confusion matrix: " + path);
  } catch (const Error& error) {  // the numbers are still worth printing
    log(std::string("the picture of the confusion matrix was not written: ") + error.what());
  }
}

int evaluate(const EvalOptions& given) {
  check_one_of_split_and_fold(given.split, given.fold);
  end_in_order_on_signals();
  const Device device = apply_common(given);
  dist::World world(dist::detect_launch(), device,
                    {.group = dist::with_environment({}), .facts = version_text() + "\n" + lines_to_compare(given)});
  try {
    const auto log = [&](const std::string& line) {
      if (!given.quiet && world.group()->rank() == 0) std::cerr << line << "\n";
    };
    apply_matmul_options({.tf32 = given.tf32}, device, log);
    restore_autotune(given.dir, device, log);
    const bool images = models::family_of(given.dir).kind == models::ModelKind::kImages;
    check_options_are_for(images ? For::kImages : For::kTexts, given);
    const EvalOptions options = with_record(given);
    const bool other_data = !given.data.empty();
    const Evaluated evaluated =
        (images ? evaluate_images : evaluate_texts)(options, other_data, world, log,
                                                    {.dtype = dtype_of(options.dtype, device),
                                                     .should_stop = [] { return pending_signal() != 0; },
                                                     .group = world.group().get()});
    check_interrupted();
    if (evaluated.result.stopped) throw dist::PeerError("eval: another rank was interrupted");
    TERN_CHECK(evaluated.result.is_finite(), not_finite_text("eval", evaluated.result), "; ",
               evaluated.damage.empty() ? "its weights are finite, so its training diverged, or --dtype overflows"
                                        : evaluated.damage);
    if (world.group()->rank() == 0) write_picture(given, evaluated, log);
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
  return {"eval", "metrics and loss of a trained folder",
          "Example: tern eval runs/distilbert-20250131-120000 --data reviews.csv", options,
          [options] { return evaluate(*options); }};
}

}  // namespace tern::cli
