#include "tern/models/cli/train_defaults.h"

#include <algorithm>

#include "tern/kernels/kernel.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

/// A text model that is neither pretrained nor large.
bool is_small_from_scratch(const TrainArguments& given) { return given.init.empty() && given.preset != "base"; }

/// Small sets get smaller steps.
int64_t default_batch_tokens(const TextFacts& facts) {
  int64_t tokens = 1024;
  while (tokens < 8192 && facts.train_tokens / (2 * tokens) >= 64) tokens *= 2;
  while (tokens < facts.longest_row) tokens *= 2;
  return tokens;
}

/// Small sets get more passes.
int64_t default_text_epochs(const TrainArguments& given, const TextFacts& facts) {
  if (!is_small_from_scratch(given)) return 3;
  return facts.train_tokens >= 4'000'000 ? 2 : facts.train_tokens >= 500'000 ? 4 : 10;
}

}  // namespace

TrainArguments with_setting(const TrainArguments& given, Device device, const Precision& precision) {
  TrainArguments options = given;
  options.device = device.str();
  options.dtype = precision.name;
  options.threads = kernels::num_threads();
  return options;
}

TrainArguments with_defaults(const TrainArguments& given, const TextFacts& facts) {
  TrainArguments options = given;
  options.data = facts.data;
  options.preset = preset_of(given);
  options.max_length = max_length_of(given, facts.max_positions);
  if (given.batch_size == 0 && given.batch_tokens == 0) options.batch_tokens = default_batch_tokens(facts);
  if (given.epochs == 0) options.epochs = default_text_epochs(given, facts);
  if (!given.lr) options.lr = is_small_from_scratch(given) ? models::family_named(given.model).small_lr : 5e-5;
  return options;
}

TrainArguments with_defaults(const TrainArguments& given, const ImageFacts& facts) {
  const bool digits = facts.data == "digits", from_scratch = given.init.empty();
  TrainArguments options = given;
  options.data = facts.data;
  options.preset = preset_of(given);
  if (given.batch_size == 0) options.batch_size = from_scratch ? 64 : 16;
  if (given.epochs == 0) options.epochs = digits ? 40 : from_scratch ? 10 : 3;
  if (!given.mixup) options.mixup = digits && from_scratch ? 0.3 : 0;
  if (!given.lr) options.lr = digits ? 2e-3 : from_scratch ? 1e-3 : 5e-5;
  return options;
}

std::string preset_of(const TrainArguments& given) {
  return given.init.empty() && given.preset.empty() ? models::family_named(given.model).presets.front().name
                                                    : given.preset;
}

int64_t max_length_of(const TrainArguments& given, int64_t max_positions) {
  return std::min(given.max_length > 0 ? given.max_length : 512, max_positions);
}

std::optional<double> text_dropout_of(const TrainArguments& given, size_t text_bytes) {
  if (given.dropout || !is_small_from_scratch(given)) return given.dropout;
  // A small model on few texts learns them by heart; much dropout prevents it.
  return text_bytes >= (size_t{4} << 20) ? 0.3 : 0.5;
}

int64_t planned_epochs(const TrainArguments& options) {
  return options.max_steps > 0 ? std::min(options.epochs, options.max_steps) : options.epochs;
}

}  // namespace tern::cli
