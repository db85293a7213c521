#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>

#include "tern/core/io/file_kind.h"
#include "tern/dist/world.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/image_data.h"
#include "tern/models/cli/matmul_options.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/subcommand.h"
#include "tern/models/cli/text_data.h"
#include "tern/models/cli/train_arguments.h"
#include "tern/models/cli/version.h"
#include "tern/models/image/image_classifier.h"
#include "tern/models/pretrained.h"
#include "tern/models/text/text_classifier.h"
#include "tern/models/trainer/trainer.h"

namespace tern::cli {
namespace {

struct EvalArguments {
  std::string dir, data, split, fold, dtype = "fp32";
  int64_t max_length = 0, batch_tokens = 16384;
  bool json = false, seed_given = false;
  MatmulOptions matmul;
  CommonOptions common;
};

/// Fills in what the run was trained with, where nothing else is said: the same data, split and length.
void complete_from_record(EvalArguments& a) {
  const std::filesystem::path path = std::filesystem::path(a.dir) / "run.json";
  const Json record = tern::detail::name_exists(path.string()) ? RunFolder::read_record(a.dir) : Json::object();
  const TrainArguments trained =
      record.contains("options") ? from_record(record["options"], path.string()) : TrainArguments();
  if (a.data.empty()) {
    a.data = trained.data;
    if (a.data.empty())
      throw UsageError("eval: --data is needed: " + path.string() + " does not say what was trained on");
    if (a.split.empty() && a.fold.empty()) {
      a.split = trained.split;
      a.fold = trained.fold;
    }
    if (!a.seed_given) a.common.seed = trained.common.seed;
  }
  if (a.max_length == 0) a.max_length = trained.max_length;
}

DType dtype_of(const std::string& name, Device device) {
  return name == "bf16" ? bfloat16 : name == "fp16" ? float16 : name == "auto" ? autocast_dtype(device) : float32;
}

bool interrupted() { return pending_signal() != 0; }

/// A file or folder given by hand is evaluated whole; a set with a split of its own, or a named split, on its test
/// part.
std::vector<int32_t> rows_to_evaluate(const EvalArguments& a, bool other_data, const data::SplitSource& set) {
  if (other_data && a.split.empty() && a.fold.empty() && set.parts.empty()) {
    std::vector<int32_t> rows(set.labels.size());
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const data::Split split = data::make_split(set, a.split, a.fold, a.common.seed);
  TERN_CHECK(!split.test.empty(), "eval: the split '", a.split, "' of ", set.name,
             " has no test rows; give --split or --data");
  return split.test;
}

/// Of a job's ranks each evaluates its share. They must see the same rows of the same data, whose hash `content` gives.
std::vector<int32_t> own_share(const std::vector<int32_t>& rows, const std::function<std::string()>& content,
                               dist::World& world) {
  const dist::Communicator& group = *world.group();
  if (world.store())
    world.store()->compare("the data", group.world_ranks(), group.rank(),
                           std::to_string(rows.size()) + " rows of the content " + content(), 600);
  return models::share(rows, group.rank(), group.size());
}

models::Evaluation evaluate_texts(const EvalArguments& a, bool other_data, dist::World& world, const Log& log) {
  const Device device = world.group()->device();
  const models::TextClassifier classifier = models::TextClassifier::load(a.dir, {.device = device});
  const models::DistilBertConfig& config = classifier.model().config();
  const data::TextDataset texts = load_texts(a.data, config.labels, log);
  const std::vector<int32_t> rows = own_share(
      rows_to_evaluate(a, other_data, {texts.name, texts.labels, texts.parts}), [&] { return texts.content_hash(); },
      world);
  const int64_t length = a.max_length > 0 ? std::min(a.max_length, config.max_positions) : config.max_positions;
  const auto tokens = tokenize_texts(texts, classifier.tokenizer(), length, log);
  return models::evaluate(classifier.model(), tokens, texts.labels, rows, a.batch_tokens,
                          classifier.tokenizer().pad_id(), dtype_of(a.dtype, device), interrupted);
}

models::Evaluation evaluate_images(const EvalArguments& a, bool other_data, dist::World& world, const Log& log) {
  const Device device = world.group()->device();
  const models::ImageClassifier classifier = models::ImageClassifier::load(a.dir, {.device = device});
  const auto set =
      std::make_shared<const data::ImageDataset>(load_image_set(a.data, classifier.model().config().labels, log));
  const std::vector<int32_t> rows = own_share(
      rows_to_evaluate(a, other_data, {set->name, set->labels, set->parts}), [&] { return content_hash(*set); }, world);
  return models::evaluate(classifier, set, rows,
                          {.dtype = dtype_of(a.dtype, device), .should_stop = interrupted, .log = log});
}

/// What must be the same on all ranks, a line each.
std::string facts(const EvalArguments& a) {
  return detail::concatenate(version_text(), "\n--split ", a.split, "\n--fold ", a.fold, "\n--dtype ", a.dtype,
                             "\n--max-length ", a.max_length, "\n--seed ", a.common.seed);
}

void print(const models::Evaluation& result, bool json) {
  if (json) {
    std::cout << Json({{"accuracy", result.accuracy}, {"loss", result.loss}, {"examples", result.examples}}).dump()
              << "\n";
  } else {
    std::printf("accuracy %.2f %% (%lld rows, loss %.4f)\n", 100 * result.accuracy,
                static_cast<long long>(result.examples), result.loss);
    std::fflush(stdout);
  }
}

int evaluate(EvalArguments a) {
  check_split(a.split, a.fold);
  end_in_order_on_signals();
  const Device device = apply_common(a.common);
  const bool other_data = !a.data.empty();
  dist::World world(dist::detect_launch(), device, {.group = dist::with_environment({}), .facts = facts(a)});
  try {
    const auto log = [&](const std::string& line) {
      if (!a.common.quiet && world.group()->rank() == 0) std::cerr << line << "\n";
    };
    apply_matmul_options(a.matmul, device, log);
    restore_autotune(a.dir, device, log);
    const bool images = models::sees_images(a.dir);
    complete_from_record(a);
    models::Evaluation result =
        images ? evaluate_images(a, other_data, world, log) : evaluate_texts(a, other_data, world, log);
    check_interrupted();
    if (world.group()->size() > 1) result = models::joined(result, *world.group());
    print(result, a.json);
    world.finish();
    return 0;
  } catch (...) {
    return report_failure();
  }
}

}  // namespace

Command add_eval(CLI::App& app) {
  Subcommand c(app, "eval", "accuracy and loss of a trained folder");
  auto a = std::make_shared<EvalArguments>();
  c.add_option("dir", &a->dir, "model folder").required();
  c.add_option("--data", &a->data,
               "what to evaluate on, as in train; a file is evaluated whole; default: the test rows of the run");
  c.add_option("--split", &a->split, "evaluate the test part of this split, as in train");
  c.add_option("--fold", &a->fold, "i/k: evaluate the i-th of k stratified parts");
  c.add_option("--max-length", &a->max_length,
               "tokens a text is cut to; default: as in training, else the model's most")
      .whole_in(2, int64_t{1} << 24);
  c.add_option("--batch-tokens", &a->batch_tokens, "tokens a batch").show_default().whole_in(1, int64_t{1} << 40);
  c.add_option("--dtype", &a->dtype, "of matrix products: fp32, bf16, fp16 or auto")
      .show_default()
      .one_of({"fp32", "bf16", "fp16", "auto"});
  c.add_flag("--json", &a->json, "print one JSON object");
  add_matmul_options(c, a->matmul, false);
  add_common(c, a->common);
  c.footer("Example: tern eval runs/distilbert-20250131-120000 --data reviews.csv");
  return [a, c] {
    a->seed_given = c.has("--seed");
    return evaluate(*a);
  };
}

}  // namespace tern::cli
