#pragma once
// Learning rate schedules: a factor of the base rate for each step. A schedule has no state but the step.

#include <functional>
#include <string>

#include "tern/optim/optimizer.h"

namespace tern::optim {

struct ScheduleOptions {
  int64_t total_steps = 0;  // of the training, at least 1; the constant schedule needs it for a fraction of warmup only
  double warmup = 0;        // steps when a whole number >= 1, below 1 a fraction of total_steps (rounded up)
  double min_ratio = 0;     // the factor at the end of the decay
  double cycles = 0.5;      // cosine: waves in the decay; a half goes down to min_ratio once
};

class Schedule {
 public:
  /// Any function from the step (0 for the first) to a factor >= 0.
  explicit Schedule(std::function<double(int64_t step)> factor);
  Schedule(const Schedule&) = default;  // moving copies: no schedule is left without its function
  Schedule& operator=(const Schedule&) = default;

  /// Throws Error when step is negative, or the function gives a number that is negative or not finite.
  double factor(int64_t step) const;
  /// Every group's learning rate becomes its base rate times factor(step).
  void apply(Optimizer& optimizer, int64_t step) const { optimizer.set_lr_factor(factor(step)); }

 private:
  std::function<double(int64_t)> factor_;
};

// The formulas of Hugging Face's get_{constant,linear,cosine}_schedule_with_warmup: from 0 up to 1 in the warmup, then
// constant, down to min_ratio in a line, or along a cosine. A warmup longer than total_steps is cut off by the end of
// the training. Throw Error on options out of range, and without total_steps where they are needed.
Schedule constant_schedule(const ScheduleOptions& options = {});
/// Past total_steps the factor stays min_ratio.
Schedule linear_schedule(const ScheduleOptions& options);
/// Past total_steps the cosine goes on: with the default half wave it rises again, to 1 after as many steps as the
/// decay had, and so forth. That is what Hugging Face's and PyTorch's (CosineAnnealingLR) do.
Schedule cosine_schedule(const ScheduleOptions& options);
/// "constant", "linear" or "cosine"; throws Error naming them otherwise.
Schedule schedule_by_name(const std::string& name, const ScheduleOptions& options);

}  // namespace tern::optim
