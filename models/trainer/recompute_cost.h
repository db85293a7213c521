#pragma once
// Measures what activation recomputation saves and costs on a task's first batch.

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "tern/models/trainer/trainer.h"

namespace tern::models {

/// One forward and backward pass: peak memory beyond weights and gradients, and time (best of three).
struct PassCost {
  int64_t bytes = 0;
  double seconds = std::numeric_limits<double>::infinity();
};

struct RecomputeCost {
  PassCost recomputed;
  std::optional<PassCost> plain;  // absent if memory does not suffice
  /// "activations 120 MiB instead of 400 MiB (70 % less), forward and backward 1.25 s instead of 1.00 s (25 % more)"
  std::string text() const;
};

/// Runs the first batch both ways; set_recompute(true / false) switches the model, which ends at true. Weights,
/// buffers and random state are restored, gradients are dropped, and the memory used is freed.
RecomputeCost measure_recompute(TrainingTask& task, const TrainOptions& options,
                                const std::function<void(bool)>& set_recompute);

}  // namespace tern::models
