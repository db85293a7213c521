#pragma once
// The options of `tern train`: their names, defaults and what they exclude.

#include <cmath>
#include <string>

#include "tern/models/cli/arguments.h"
#include "tern/models/cli/matmul_options.h"

namespace tern::cli {

/// The command's options. NaN, 0 or "" mean "by the rule that --help gives".
struct TrainArguments {
  std::string model, data, out, preset, init, optimizer = "adamw", schedule = "linear", dtype = "auto", split, fold,
                                              recompute = "none", profile;
  int64_t profile_steps = 20, epochs = 0, max_steps = 0, max_length = 0, batch_size = 0, batch_tokens = 0;
  double lr = NAN, weight_decay = 0.01, warmup = 0.1, clip = 1, dropout = NAN;
  int workers = 2;
  bool no_shuffle = false, group_by_length = false, kahan = false;
  MatmulOptions matmul;
  CommonOptions common;
};

void add_train_options(CLI::App& command, TrainArguments& arguments);
/// Throws UsageError when a value is unknown or options exclude each other.
void check_train_arguments(const TrainArguments& arguments);

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
