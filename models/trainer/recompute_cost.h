#pragma once
// What activation recomputation saves and costs on a task's own first batch.

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "tern/models/trainer/trainer.h"

namespace tern::models {

/// Of one forward and backward pass: the most memory beyond weights and gradients, and the time (the best of three).
struct PassCost {
  int64_t bytes = 0;
  double seconds = std::numeric_limits<double>::infinity();
};

struct RecomputeCost {
  PassCost recomputed;
  std::optional<PassCost> plain;  // absent: there is not enough memory for it
  /// "activations 120 MiB instead of 400 MiB (70 % less), forward and backward 1.25 s instead of 1.00 s (25 % more)"
  std::string text() const;
};

/// Runs the first batch both ways; set_recompute(true / false) switches the model and is left at true. Weights and the
/// random state are as before afterwards, gradients are dropped, and what the comparison took is given back.
RecomputeCost measure_recompute(TrainingTask& task, const TrainOptions& options,
                                const std::function<void(bool)>& set_recompute);

}  // namespace tern::models
