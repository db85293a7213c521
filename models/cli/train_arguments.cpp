#include "tern/models/cli/train_arguments.h"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <optional>

#include "tern/core/check.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/models/cli/subcommand.h"
#include "tern/models/cli/text_data.h"

namespace tern::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  tern train distilbert                                  the data at hand, the tiny model
  tern train distilbert --data reviews.csv --epochs 5    a file with the columns label and text
  tern train distilbert --init DIR --lr 5e-5             fine-tune a folder that transformers saved
  tern train vit --data photos --preset tiny             images photos/train/LABEL/*.jpg)";

constexpr double kMost = 1e30;  // of numbers that have no bound of their own

void check(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

}  // namespace

void add_train_options(Subcommand& c, TrainArguments& a) {
  c.add_option("model", &a.model, "the model: distilbert (texts) or vit (images)").required();
  c.add_option("--data", &a.data,
               "texts: imdb, sentences (embedded), a .csv, .tsv or .jsonl file with a label and a text column, or a "
               "folder train/LABEL/*.txt; images: cifar10, digits (embedded) or a folder train/LABEL/*.{png,jpg}; "
               "default: imdb or cifar10 where it is on this machine, otherwise the embedded set");
  c.add_option("--split", &a.split,
               "official, 80/10/10 (percent), 35000/5000/10000 (rows) or all; default: the set's own, or 80/10/10");
  c.add_option("--fold", &a.fold, "i/k: the i-th of k stratified parts is the test set");
  c.add_option("--out", &a.out, "folder of the run, new or empty; default: runs/MODEL-DATE");
  c.add_option(
      "--preset", &a.preset,
      "distilbert: tiny (128 x 2 layers), small (256 x 4) or base (768 x 6); vit: tiny (192 x 9, patch 4 at 32 "
      "x 32), small (384 x 12), base (768 x 12) or large (1024 x 24), these with patch 16 at 224 x 224; "
      "default: tiny (for digits a smaller one)");
  c.add_option("--init", &a.init,
               "model folder to start from (config.json, model.safetensors or pytorch_model.bin); for vit also a file "
               "of weights with torchvision's or timm's names");
  c.add_option("--image-size", &a.image_size,
               "pixels a side that vit sees; position embeddings are interpolated; default: the model's")
      .whole_in(1, 1 << 14);
  c.add_option("--augment", &a.augment, "vit: default (shifts and mirror images) or none").show_default();
  c.add_option("--mixup", &a.mixup, "vit: alpha of MixUp; 0: none; default: 0, for digits 0.3").number_in(0, 1000);
  c.add_option("--cutmix", &a.cutmix, "vit: alpha of CutMix; 0: none").show_default().number_in(0, 1000);
  c.add_option("--label-smoothing", &a.label_smoothing, "vit: share of the target that is spread over all labels")
      .show_default()
      .number_in(0, 1);
  c.add_option("--epochs", &a.epochs,
               "passes over the training rows; default: 3 with --init (distilbert: or --preset base), otherwise by the "
               "size of the set, 2 to 10 for texts, 10 for images, 40 for digits")
      .whole_in(1, 1000000);
  c.add_option("--max-steps", &a.max_steps, "stop after this many steps").whole_in(1, int64_t{1} << 40);
  c.add_option("--lr", &a.lr,
               "learning rate; default: 5e-5 with --init (distilbert: or --preset base), otherwise 5e-4 for texts, "
               "1e-3 for images, 2e-3 for digits")
      .number_in(0, kMost);
  c.add_option("--optimizer", &a.optimizer, "adamw, adam or sgd").show_default();
  c.add_option("--weight-decay", &a.weight_decay, "of matrices, not of biases and norms")
      .show_default()
      .number_in(0, kMost);
  c.add_option("--schedule", &a.schedule, "of the learning rate: linear, cosine or constant").show_default();
  c.add_option("--warmup", &a.warmup, "steps (1 or more) or a fraction of all steps").show_default().number_in(0, 1e15);
  c.add_option("--clip", &a.clip, "greatest norm of the gradients; 0: no clipping").show_default().number_in(0, kMost);
  c.add_option("--ema", &a.ema,
               "decay (0.999) of exponential moving averages of the weights, which are validated and saved instead of "
               "them; 0: none")
      .show_default()
      .number_in(0, std::nextafter(1.0, 0.0));
  c.add_option("--dropout", &a.dropout,
               "of everything; default: the model's own, but for distilbert from scratch 0.5, and 0.3 from 4 MB of "
               "text on")
      .number_in(0, 1);
  c.add_option("--dtype", &a.dtype,
               "fp32; bf16 or fp16: mixed precision, fp32 weights and 16-bit matrix products; bf16-true or fp16-true: "
               "16-bit weights, gradients and activations with fp32 master copies in the optimizer; fp16 of both kinds "
               "with a loss scaler; auto: bf16 where that is the faster one, else fp32")
      .show_default();
  c.add_flag(
      "--kahan", &a.kahan,
      "with --dtype bf16-true: no master copies; Kahan's summation keeps 16 bits a weight of what rounding took");
  c.add_option("--recompute", &a.recompute,
               "none, block or every-N: keep only the inputs of each block (of every N blocks) and compute the rest "
               "again in backward; less memory, more time, the same bits")
      .show_default();
  c.add_option("--max-length", &a.max_length, "tokens a text is cut to; default: 512, at most what the model takes")
      .whole_in(2, int64_t{1} << 24);
  c.add_option("--batch-tokens", &a.batch_tokens,
               "tokens a step, packed without padding; default: a power of two by the size of the set, at most 8192")
      .whole_in(2, int64_t{1} << 40);
  c.add_option(
       "--batch-size", &a.batch_size,
       "texts: sequences a step, padded to the longest, instead of packing; images a step; default: 64, with --init 16")
      .whole_in(1, 1000000);
  c.add_option("--accumulate", &a.accumulate,
               "batches a step: their gradients are added up, weighted by their examples, before the weights change")
      .show_default()
      .whole_in(1, 1000000);
  c.add_option(
       "--strategy", &a.strategy,
       "of several processes: ddp (each has all of the optimizer's state) or zero1 (each has its part; the same "
       "bits on the CPU)")
      .show_default();
  c.add_option("--checkpoint-every", &a.checkpoint_every,
               "write a checkpoint after every so many steps (100) or so much time (30s, 5m, 2h); one is also written "
               "on SIGINT, SIGTERM and SIGUSR1");
  c.add_option("--keep", &a.keep, "checkpoints kept, beside that of the best epoch")
      .show_default()
      .whole_in(1, 1000000);
  c.add_option("--resume", &a.resume,
               "go on with a run: its folder or one of its checkpoints, or auto: with what --out holds, if anything");
  c.add_flag("--group-by-length", &a.group_by_length, "with --batch-size: sequences of similar lengths, less padding");
  c.add_flag("--no-shuffle", &a.shuffle, "keep the rows in their order", false);
  c.add_option("--workers", &a.workers, "threads that make batches; the batches do not depend on it")
      .show_default()
      .whole_in(0, 256);
  c.add_option("--profile", &a.profile,
               "write where the time goes: a table and a trace for ui.perfetto.dev, into the run folder (on, or "
               "no value) or into VALUE.profile.txt and VALUE.trace.json")
      .value_optional();
  c.add_option("--profile-steps", &a.profile_steps, "steps that --profile looks at, after two to warm up")
      .show_default()
      .whole_in(1, 10000);
  add_matmul_options(c, a.matmul, true);
  add_common(c, a.common);
  c.footer(kExamples);
}

namespace {

/// Calls visit(name, member) for every argument that decides what is trained or how, and is kept in the record.
template <class Arguments, class Visit>
void for_each_recorded(Arguments& a, Visit&& visit) {
  visit("model", a.model);
  visit("data", a.data);
  visit("split", a.split);
  visit("fold", a.fold);
  visit("out", a.out);
  visit("config", a.common.config);
  visit("preset", a.preset);
  visit("init", a.init);
  visit("epochs", a.epochs);
  visit("max_steps", a.max_steps);
  visit("lr", a.lr);
  visit("optimizer", a.optimizer);
  visit("weight_decay", a.weight_decay);
  visit("schedule", a.schedule);
  visit("warmup", a.warmup);
  visit("clip", a.clip);
  visit("ema", a.ema);
  visit("dropout", a.dropout);
  visit("dtype", a.dtype);
  visit("tf32", a.matmul.tf32);
  visit("autotune", a.matmul.autotune);
  visit("kahan", a.kahan);
  visit("recompute", a.recompute);
  visit("max_length", a.max_length);
  visit("batch_size", a.batch_size);
  visit("batch_tokens", a.batch_tokens);
  visit("image_size", a.image_size);
  visit("augment", a.augment);
  visit("mixup", a.mixup);
  visit("cutmix", a.cutmix);
  visit("label_smoothing", a.label_smoothing);
  visit("accumulate", a.accumulate);
  visit("strategy", a.strategy);
  visit("shuffle", a.shuffle);
  visit("group_by_length", a.group_by_length);
  visit("workers", a.workers);
  visit("checkpoint_every", a.checkpoint_every);
  visit("keep", a.keep);
  visit("resume", a.resume);
  visit("profile", a.profile);
  visit("profile_steps", a.profile_steps);
  visit("seed", a.common.seed);
  visit("quiet", a.common.quiet);
}

}  // namespace

nlohmann::ordered_json to_record(const TrainArguments& arguments) {
  nlohmann::ordered_json record;
  for_each_recorded(arguments, [&](const char* name, const auto& value) {
    record[name] = value;
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>)
      if (std::isnan(value)) record[name] = nullptr;
  });
  return record;
}

namespace {

// Each sets `value` to what is recorded; false when that is of another type, or a number that no run is started with.

bool restore(const nlohmann::ordered_json& recorded, std::string& value) {
  if (recorded.is_string()) value = recorded.get<std::string>();
  return recorded.is_string();
}

bool restore(const nlohmann::ordered_json& recorded, bool& value) {
  if (recorded.is_boolean()) value = recorded.get<bool>();
  return recorded.is_boolean();
}

bool restore(const nlohmann::ordered_json& recorded, double& value) {
  if (!recorded.is_number()) return false;
  value = recorded.get<double>();
  return value >= 0 && value <= kMost;
}

bool restore(const nlohmann::ordered_json& recorded, uint64_t& value) {
  if (recorded.is_number_unsigned()) value = recorded.get<uint64_t>();
  return recorded.is_number_unsigned();
}

template <std::signed_integral Integer>
bool restore(const nlohmann::ordered_json& recorded, Integer& value) {
  const int64_t most = sizeof value == 8 ? int64_t{1} << 40 : 4096;
  const std::optional<int64_t> number = integer_in(recorded);
  if (number) value = static_cast<Integer>(std::clamp<int64_t>(*number, 0, most));
  return number && *number == value;
}

}  // namespace

TrainArguments from_record(const nlohmann::ordered_json& options, const std::string& source) {
  TrainArguments a;
  for_each_recorded(a, [&](const char* name, auto& value) {
    const auto found = options.find(name);
    if (found == options.end() || found->is_null()) return;
    TERN_CHECK(restore(*found, value), source, ": the option \"", name, "\" is ", shortened(*found));
  });
  TERN_CHECK(a.accumulate >= 1 && a.keep >= 1 && a.profile_steps >= 1, source,
             ": \"accumulate\", \"keep\" and \"profile_steps\" must be 1 or more");
  return a;
}

std::pair<int64_t, double> parse_checkpoint_every(const std::string& text) {
  if (text.empty()) return {0, 0};
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && number >= 1 && number <= 1'000'000'000'000) {
    const std::string unit(stopped, end);
    if (unit.empty()) return {number, 0};
    for (const auto& [name, seconds] : {std::pair("s", 1), std::pair("m", 60), std::pair("h", 3600)})
      if (unit == name) return {0, static_cast<double>(number) * seconds};
  }
  throw UsageError("--checkpoint-every: expected a number of steps (100) or a time (30s, 5m, 2h), got '" +
                   tern::detail::printable(text) + "'");
}

int64_t parse_recompute(const std::string& text) {
  if (text == "none") return 0;
  if (text == "block") return 1;
  int64_t blocks = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with("every-")) {
    const auto [stopped, error] = std::from_chars(text.data() + 6, end, blocks);
    if (error == std::errc() && stopped == end && blocks >= 1 && blocks <= 1000000) return blocks;
  }
  throw UsageError("--recompute: expected none, block or every-N (such as every-2), got '" +
                   tern::detail::printable(text) + "'");
}

void check_train_arguments(const TrainArguments& a, const std::function<bool(const std::string& flag)>& given) {
  if (a.model != "distilbert" && a.model != "vit") {
    const bool planned = a.model == "bert" || a.model == "cnn";
    throw UsageError(
        "train: " + (planned ? "'" + a.model + "' is not in this version" : "unknown model '" + a.model + "'") +
        "; this version trains distilbert and vit");
  }
  const bool images = trains_images(a);
  for (const char* flag : {"--max-length", "--batch-tokens", "--group-by-length"})
    check(!images || !given(flag), std::string(flag) + " is of models that read texts");
  for (const char* flag : {"--image-size", "--augment", "--mixup", "--cutmix", "--label-smoothing"})
    check(images || !given(flag), std::string(flag) + " is of models that see images");
  check(a.preset.empty() || a.init.empty(), "--preset and --init exclude each other: --init brings its configuration");
  check(a.batch_size == 0 || a.batch_tokens == 0, "--batch-size and --batch-tokens exclude each other");
  check(!a.group_by_length || a.batch_size > 0,
        "--group-by-length goes with --batch-size: packed batches hold no padding");
  check_split(a.split, a.fold);
  const auto one_of = [](const std::string& flag, const std::string& value, const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), value) != known.end()) return;
    std::string list;
    for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
    const std::string near = nearest(value, known);
    throw UsageError(flag + ": unknown '" + value + "'" + (near.empty() ? "" : ", did you mean '" + near + "'?") +
                     "; known: " + list);
  };
  if (!a.preset.empty() && !images) one_of("--preset", a.preset, {"tiny", "small", "base"});
  if (!a.preset.empty() && images) one_of("--preset", a.preset, {"tiny", "small", "base", "large"});
  one_of("--augment", a.augment, {"default", "none"});
  one_of("--optimizer", a.optimizer, {"adamw", "adam", "sgd"});
  one_of("--schedule", a.schedule, {"linear", "cosine", "constant"});
  one_of("--strategy", a.strategy, {"ddp", "zero1"});
  parse_recompute(a.recompute);
  parse_checkpoint_every(a.checkpoint_every);
  one_of("--dtype", a.dtype, {"auto", "fp32", "bf16", "fp16", "bf16-true", "fp16-true"});
  check(!a.kahan || a.dtype == "bf16-true",
        "--kahan goes with --dtype bf16-true: it takes the place of fp32 master copies of bf16 weights");
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
