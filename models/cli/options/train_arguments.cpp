#include "tern/models/cli/options/train_arguments.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "tern/core/io/file_kind.h"
#include "tern/data/hub/hub.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

void check(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

void check_model(const std::string& model) {
  const std::vector<std::string> known = models::family_names();
  if (std::find(known.begin(), known.end(), model) != known.end()) return;
  throw UsageError("train: unknown model '" + model + "'; this version trains " + models::in_words(known, " and "));
}

}  // namespace

void check_one_of_split_and_fold(const std::string& split, const std::string& fold) {
  check(split.empty() || fold.empty(), "--split and --fold exclude each other");
}

std::optional<std::pair<int64_t, double>> parse_checkpoint_every(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 1 || number > 1'000'000'000'000) return std::nullopt;
  const std::string unit(stopped, end);
  if (unit.empty()) return std::pair(number, 0.0);
  for (const auto& [name, seconds] : {std::pair("s", 1), std::pair("m", 60), std::pair("h", 3600)})
    if (unit == name) return std::pair(int64_t{0}, static_cast<double>(number) * seconds);
  return std::nullopt;
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 0 || number > 1'000'000) return std::nullopt;
  const std::string unit(stopped, end);
  if (unit.empty() && number == 0) return 0;
  int64_t bytes = 1'000;
  for (const char* name : {"kB", "MB", "GB", "TB"}) {
    if (unit == name) return number * bytes;
    bytes *= 1'000;
  }
  return std::nullopt;
}

std::optional<int64_t> parse_recompute(const std::string& text) {
  if (text == "none") return 0;
  if (text == "block") return 1;
  if (!text.starts_with("every-")) return std::nullopt;
  int64_t blocks = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + 6, end, blocks);
  if (error != std::errc() || stopped != end || blocks < 1 || blocks > 1000000) return std::nullopt;
  return blocks;
}

namespace {

/// What a run starts or goes on from: --init, where it is on this machine, or else a checkpoint of the run.
std::string path_of_model(const TrainArguments& a, const models::ModelFamily& family) {
  namespace fs = std::filesystem;
  if (tern::detail::name_exists(a.init)) return a.init;
  std::vector<std::string> paths = {a.resume};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(a.resume) / "checkpoints", error))
    paths.push_back(entry.path().string());
  for (const std::string& path : paths)
    if (family.reads(path)) return path;
  return data::local_model(a.init, data::HubUse::kModel, {});
}

}  // namespace

For kind_of(const TrainArguments& a) {
  const models::ModelFamily& family = models::family_named(a.model);
  const models::ModelKind kind = family.kind_in ? family.kind_in(path_of_model(a, family)) : family.kind;
  return kind == models::ModelKind::kImages ? For::kImages : For::kTexts;
}

void check_train_arguments(const TrainArguments& a) {
  check_model(a.model);
  check(!a.init.empty() || models::family_named(a.model).make != nullptr,
        "train " + a.model + ": --init is needed: such a model is read from a file and not made from a preset");
  const For kind = kind_of(a);
  check_options_are_for(kind, a);
  check(a.tokenizer.empty() || !a.init.empty(), "--tokenizer requires --init: a new model has the embedded vocabulary");
  check(a.preset.empty() || a.init.empty(), "--preset and --init exclude each other: --init includes a configuration");
  check(a.batch_size == 0 || a.batch_tokens == 0, "--batch-size and --batch-tokens exclude each other");
  check(!a.group_by_length || a.batch_size > 0,
        "--group-by-length requires --batch-size: packed batches have no padding");
  check_one_of_split_and_fold(a.split, a.fold);
  check(a.find_lr != "use" || !a.lr, "--find-lr use and --lr exclude each other");
  check(a.find_lr.empty() || a.find_batch_size == 0, "--find-lr and --find-batch-size exclude each other");
  check(a.resume.empty() || (a.find_lr != "report" && a.find_batch_size == 0),
        "--resume continues a run, and --find-lr and --find-batch-size train none; give a new --out");
  check(!a.lookahead_alpha || a.lookahead > 0, "--lookahead-alpha requires --lookahead");
  check(a.min_delta == 0 || a.patience > 0, "--min-delta requires --patience");
  if (!a.preset.empty()) check_word("--preset", a.preset, models::offered(models::family_named(a.model).presets));
  check(!a.kahan || a.dtype == "bf16-true",
        "--kahan requires --dtype bf16-true: it replaces fp32 master copies of bf16 weights");
  if (!a.optimizer.empty() || kind == For::kTexts) check_optimizer_arguments(a);
  check_schedule_arguments(a);
}

void check_optimizer_arguments(const TrainArguments& a) {
  const std::string optimizer = a.optimizer.empty() ? models::TrainOptions().optimizer : a.optimizer;
  try {
    models::check_optimizer({.optimizer = optimizer, .momentum = a.momentum, .nesterov = a.nesterov, .kahan = a.kahan});
  } catch (const Error& error) {
    throw UsageError("--optimizer " + optimizer + ": " + error.what());
  }
}

Precision parse_dtype(const std::string& text, Device device) {
  if (text == "bf16" || (text == "auto" && autocast_dtype(device) == bfloat16))
    return {.name = "bf16", .autocast = bfloat16};
  if (text == "fp16") return {.name = "fp16", .autocast = float16};
  if (text == "bf16-true") return {.name = "bf16-true", .weights = bfloat16};
  if (text == "fp16-true") return {.name = "fp16-true", .weights = float16};
  return {};
}

}  // namespace tern::cli
