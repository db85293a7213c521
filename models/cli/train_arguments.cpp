#include "tern/models/cli/train_arguments.h"

#include <charconv>

namespace tern::cli {
namespace {

void check(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

void check_model(const std::string& model) {
  if (model == "distilbert" || model == "vit") return;
  const bool planned = model == "bert" || model == "cnn";
  throw UsageError("train: " + (planned ? "'" + model + "' is not in this version" : "unknown model '" + model + "'") +
                   "; this version trains distilbert and vit");
}

}  // namespace

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

void check_train_arguments(const TrainArguments& a) {
  check_model(a.model);
  check_options_are_for(kind_of(a), a);
  check(a.preset.empty() || a.init.empty(), "--preset and --init exclude each other: --init brings its configuration");
  check(a.batch_size == 0 || a.batch_tokens == 0, "--batch-size and --batch-tokens exclude each other");
  check(!a.group_by_length || a.batch_size > 0,
        "--group-by-length goes with --batch-size: packed batches hold no padding");
  check_one_of_split_and_fold(a.split, a.fold);
  if (!a.preset.empty() && kind_of(a) == For::kTexts) check_word("--preset", a.preset, {"tiny", "small", "base"});
  if (!a.preset.empty() && kind_of(a) == For::kImages)
    check_word("--preset", a.preset, {"tiny", "small", "base", "large"});
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
