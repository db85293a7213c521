#include "tern/models/cli/options/train_defaults.h"

#include <algorithm>
#include <cmath>

#include "tern/kernels/kernel.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

/// A text model that is neither pretrained nor large.
bool is_small_from_scratch(const TrainArguments& given) { return given.init.empty() && given.preset != "base"; }

constexpr int64_t kStepsOfAnEpoch = 50;  // at least; a small set gets smaller batches
constexpr int64_t kSmallestBatch = 64;   // images
constexpr int64_t kEpochsOfMnist = 3;    // chosen for its time; the accuracy was not measured
constexpr double kLargestMomentum = 0.95;

constexpr models::TrainingRecipe kDigits = {.epochs = 40, .lr = 2e-3, .mixup = 0.3};
constexpr models::TrainingRecipe kFineTuning = {.epochs = 3, .batch_size = 16, .lr = 5e-5};

/// What the default of every option of a run on images is taken from.
models::TrainingRecipe recipe_of(const TrainArguments& given, const ImageFacts& facts) {
  const bool from_scratch = given.init.empty();
  if (facts.data == "digits") {
    models::TrainingRecipe recipe = kDigits;
    if (!from_scratch) recipe.batch_size = kFineTuning.batch_size, recipe.mixup = 0;
    return recipe;
  }
  if (!from_scratch) return kFineTuning;
  for (const models::ModelPreset& preset : models::family_named(given.model).presets)
    if (preset.name == preset_of(given, facts.side) && preset.recipe) {
      models::TrainingRecipe recipe = *preset.recipe;
      if (facts.data == "mnist") recipe.epochs = std::min(recipe.epochs, kEpochsOfMnist);
      return recipe;
    }
  return {};
}

/// The recipe for the batches that are used: those of --batch-size, or smaller ones than the recipe's for a small set.
models::TrainingRecipe for_batches(models::TrainingRecipe recipe, const TrainArguments& given,
                                   const ImageFacts& facts) {
  const int64_t largest = recipe.batch_size, batches_a_step = given.accumulate * facts.processes;
  if (recipe.scales_with_batch && facts.images > 0)
    recipe.batch_size = std::clamp(facts.images / (kStepsOfAnEpoch * batches_a_step), kSmallestBatch, largest);
  if (given.batch_size > 0) recipe.batch_size = given.batch_size;
  if (!recipe.scales_with_batch) return recipe;
  const double ratio = static_cast<double>(recipe.batch_size * batches_a_step) / static_cast<double>(largest);
  recipe.lr *= std::sqrt(ratio);
  if (recipe.momentum) recipe.momentum = std::clamp(1 - (1 - *recipe.momentum) * ratio, 0.0, kLargestMomentum);
  return recipe;
}

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
  if (given.optimizer.empty()) options.optimizer = models::TrainOptions().optimizer;
  options.warmup = given.warmup.value_or(0.1);
  if (!given.lr) options.lr = is_small_from_scratch(given) ? models::family_named(given.model).small_lr : 5e-5;
  return options;
}

TrainArguments with_defaults(const TrainArguments& given, const ImageFacts& facts) {
  const models::TrainingRecipe recipe = for_batches(recipe_of(given, facts), given, facts);
  TrainArguments options = given;
  options.data = facts.data;
  options.preset = preset_of(given, facts.side);
  const bool validates = given.patience > 0 || given.schedule == "plateau";
  if (given.split.empty() && given.fold.empty() && facts.has_parts && !validates) options.split = recipe.split;
  options.batch_size = recipe.batch_size;
  if (given.epochs == 0) options.epochs = recipe.epochs;
  if (given.optimizer.empty()) {
    options.optimizer = recipe.optimizer;
    if (!given.momentum) options.momentum = recipe.momentum;
  }
  options.lr = given.lr.value_or(recipe.lr);
  options.warmup = given.warmup.value_or(recipe.warmup);
  options.label_smoothing = given.label_smoothing.value_or(recipe.label_smoothing);
  options.mixup = given.mixup.value_or(recipe.mixup);
  const int64_t size = given.image_size > 0 ? given.image_size : facts.side;
  if (given.progressive_resize == 0 && recipe.progressive_resize && size > 0)
    options.progressive_resize = recipe.progressive_resize(size);
  if (given.augment == "default") options.augment = recipe.augment;
  if (given.tta.empty()) options.tta = can_be_mirrored(facts.data) ? recipe.tta : "none";
  return options;
}

bool can_be_mirrored(const std::string& data) { return data != "digits" && data != "mnist"; }

std::string preset_of(const TrainArguments& given, int64_t side) {
  if (!given.init.empty() || !given.preset.empty()) return given.preset;
  const models::ModelFamily& family = models::family_named(given.model);
  return family.preset_for ? family.preset_for(given.image_size > 0 ? given.image_size : side)
                           : family.presets.front().name;
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
