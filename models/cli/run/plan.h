#pragma once
// What a run does: made once, by plan_run(), of the options, the machine, the data and the model.

#include <string>

#include "tern/data/datasets/labelled_set.h"
#include "tern/models/cli/options/train_arguments.h"

namespace tern::cli {

/// The options of a run with every default filled in, but --dropout: the model's record has what becomes of it. Nothing
/// writes into one.
using TrainPlan = const TrainArguments;

/// Where a run computes: --device, --dtype and --threads as they are used.
TrainPlan on_device(const TrainArguments& given, Device device, const Precision& precision);

/// What decides the plan of a run on texts.
struct TextFacts {
  std::string data;           // the name of the set
  int64_t max_positions = 0;  // tokens that the model takes
  int64_t train_tokens = 0;   // of all training rows, cut to max_length_of()
  int64_t longest_row = 0;    // in tokens
};
/// Given the result, it returns the same.
TrainPlan plan_run(const TrainArguments& given, const TextFacts& facts);

/// What decides the plan of a run on images.
struct ImageFacts {
  std::string data;        // the name of the set
  int64_t side = 0;        // pixels; 0: the images are not of one size that is known
  int64_t images = 0;      // of training; 0: unknown
  int64_t processes = 1;   // that train together, each with --accumulate batches a step
  bool has_parts = false;  // the set has official parts
};
TrainPlan plan_run(const TrainArguments& given, const ImageFacts& facts);

/// The steps of `trainer` by the plan. `lr`: the plan's, or the one that was found.
models::TrainOptions trainer_options(TrainPlan& plan, const models::Model& model, double lr);

/// What the row of a named set of images says; by default nothing.
data::SetTraining training_on(const std::string& data);

// Parts of a plan that are needed before all of its facts are known:
/// --split of a run on images, whose number decides nothing of it.
std::string split_of(const TrainArguments& given, const ImageFacts& facts);
/// --preset of a run that does not start from --init, for images of --image-size or else so many pixels a side; with
/// --init: "".
std::string preset_of(const TrainArguments& given, int64_t side = 0);
/// --max-length for a model that takes so many tokens.
int64_t max_length_of(const TrainArguments& given, int64_t max_positions);
/// --dropout of a text model from scratch, for so many bytes of text; nothing: the preset's own.
std::optional<double> text_dropout_of(const TrainArguments& given, size_t text_bytes);
/// Epochs that are planned: --max-steps may end the run before, and each epoch has a step at least.
int64_t planned_epochs(TrainPlan& plan);

}  // namespace tern::cli
