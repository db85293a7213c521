#pragma once
// The options of `tern train`: their names, defaults and what they exclude.

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tern/models/cli/arguments.h"
#include "tern/models/cli/matmul_options.h"

namespace tern::cli {

/// The command's options. NaN, 0 or "" mean "by the rule that --help gives".
struct TrainArguments {
  std::string model, data, out, preset, init, optimizer = "adamw", schedule = "linear", dtype = "auto", split, fold,
                                              recompute = "none", profile, resume, checkpoint_every,
                                              augment = "default", strategy = "ddp";
  int64_t accumulate = 1, keep = 2, profile_steps = 20, epochs = 0, max_steps = 0, max_length = 0, batch_size = 0,
          batch_tokens = 0, image_size = 0;
  double lr = NAN, weight_decay = 0.01, warmup = 0.1, clip = 1, ema = 0, dropout = NAN, mixup = NAN, cutmix = 0,
         label_smoothing = 0;
  int workers = 2;
  bool shuffle = true, group_by_length = false, kahan = false;
  MatmulOptions matmul;
  CommonOptions common;
};

/// True for the models that see images.
inline bool trains_images(const TrainArguments& arguments) { return arguments.model == "vit"; }

void add_train_options(Subcommand& command, TrainArguments& arguments);
/// Throws UsageError when a value is unknown, options exclude each other or belong to another model. `given`: whether a
/// flag is on the command line.
void check_train_arguments(const TrainArguments& arguments, const std::function<bool(const std::string& flag)>& given);

/// The arguments as run.json's "options" holds them, under their flags' names with '_'; "shuffle" instead of
/// --no-shuffle, and null for NaN.
nlohmann::ordered_json to_record(const TrainArguments& arguments);
/// The inverse: what is not in the record keeps its default. Throws Error, naming the entry, where a type is wrong.
TrainArguments from_record(const nlohmann::ordered_json& options, const std::string& source);

/// --checkpoint-every: steps, seconds; both 0: none. "100" (steps), "30s", "5m", "2h". Throws UsageError.
std::pair<int64_t, double> parse_checkpoint_every(const std::string& text);

/// --recompute: blocks per stretch that is recomputed; 0: none. Throws UsageError.
int64_t parse_recompute(const std::string& text);

/// How a run computes.
struct Precision {
  const char* name = "fp32";
  DType autocast = DType::kFloat32;  // of matrix products; float32: none
  DType weights = DType::kFloat32;
  /// What matrix products are computed in.
  DType products() const { return autocast != float32 ? autocast : weights; }
};
/// --dtype, already checked.
Precision parse_dtype(const std::string& text, Device device);

}  // namespace tern::cli
