#include "tern/models/cli/run/plan.h"

#include <algorithm>
#include <cmath>

#include "tern/data/datasets/image_set.h"
#include "tern/kernels/kernel.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

/// A text model that is neither pretrained nor large.
bool is_small_from_scratch(const TrainArguments& given) {
  const models::ModelPreset* const preset = models::family_named(given.model).preset_named(given.preset);
  return given.init.empty() && !(preset && preset->large);
}

constexpr int64_t kStepsOfAnEpoch = 50;  // at least; a small set gets smaller batches
constexpr int64_t kSmallestBatch = 64;   // images
constexpr double kLargestMomentum = 0.95;

constexpr models::TrainingRecipe kFineTuning = {.epochs = 3, .batch_size = 16, .lr = 5e-5};

/// What the default of every option of a run on images is taken from.
models::TrainingRecipe recipe_of(const TrainArguments& given, const ImageFacts& facts) {
  const bool from_scratch = given.init.empty();
  const data::SetTraining set = training_on(facts.data);
  if (set.epochs > 0)
    return {.epochs = set.epochs,
            .batch_size = from_scratch ? models::TrainingRecipe().batch_size : kFineTuning.batch_size,
            .lr = set.lr,
            .mixup = from_scratch ? set.mixup : 0};
  if (!from_scratch) return kFineTuning;
  const auto* const preset = models::family_named(given.model).preset_named(preset_of(given, facts.side));
  if (!preset || !preset->recipe) return {};
  models::TrainingRecipe recipe = *preset->recipe;
  if (set.most_epochs > 0) recipe.epochs = std::min(recipe.epochs, set.most_epochs);
  return recipe;
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

TrainPlan on_device(const TrainArguments& given, Device device, const Precision& precision) {
  TrainArguments options = given;
  options.device = device.str();
  options.dtype = precision.name;
  options.threads = kernels::num_threads();
  return options;
}

TrainPlan plan_run(const TrainArguments& given, const TextFacts& facts) {
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

TrainPlan plan_run(const TrainArguments& given, const ImageFacts& facts) {
  const models::TrainingRecipe recipe = for_batches(recipe_of(given, facts), given, facts);
  TrainArguments options = given;
  options.data = facts.data;
  options.preset = preset_of(given, facts.side);
  options.split = split_of(given, facts);
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
  if (given.tta.empty()) options.tta = *training_on(facts.data).unmirrored == 0 ? recipe.tta : "none";
  return options;
}

models::TrainOptions trainer_options(TrainPlan& plan, const models::Model& model, double lr) {
  const Device device = parse_device(plan.device);
  return {.optimizer = plan.optimizer,
          .lr = lr,
          .weight_decay = plan.weight_decay,
          .momentum = plan.momentum,
          .nesterov = plan.nesterov,
          .hidden_layers = model.hidden_layers(),
          .fixed_norm = model.keeps_hidden_norms(),
          .schedule = plan.schedule,
          .warmup = plan.schedule == "one-cycle" ? 0 : plan.warmup.value(),  // it has --schedule-rise instead
          .schedule_parameters = schedule_parameters(plan),
          .clip = plan.clip,
          .dtype = parse_dtype(plan.dtype, device).autocast,
          .ema = plan.ema,
          .lookahead = plan.lookahead,
          .lookahead_alpha = plan.lookahead_alpha.value_or(0.5),
          .kahan = plan.kahan,
          .device = device,
          .max_steps = plan.max_steps,
          .patience = plan.patience,
          .min_delta = plan.min_delta,
          .accumulate = plan.accumulate};
}

data::SetTraining training_on(const std::string& data) {
  const auto* const set = data::find_named(data::named_image_sets(), data);
  return set ? set->training : data::SetTraining();
}

std::string split_of(const TrainArguments& given, const ImageFacts& facts) {
  const bool validates = given.patience > 0 || given.schedule == "plateau";
  const bool by_recipe = given.split.empty() && given.fold.empty() && facts.has_parts && !validates;
  return by_recipe ? recipe_of(given, facts).split : given.split;
}

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

int64_t planned_epochs(TrainPlan& plan) {
  return plan.max_steps > 0 ? std::min(plan.epochs, plan.max_steps) : plan.epochs;
}

}  // namespace tern::cli
