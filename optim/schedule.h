#pragma once
// Learning rate schedules: a factor of the base rate for each step. The step is the only state.

#include <functional>
#include <string>
#include <vector>

#include "tern/optim/optimizer.h"

namespace tern::optim {

struct ScheduleOptions {
  int64_t total_steps = 0;  // of the training, at least 1; constant_schedule needs it only for a fraction of warmup
  double warmup = 0;        // steps, if a whole number >= 1; below 1 a fraction of total_steps (rounded up)
  double min_ratio = 0;     // the factor at the end of the decay
  double cycles = 0.5;      // cosine: number of waves in the decay; one half falls to min_ratio once
};

class Schedule {
 public:
  /// Any function from the step (0 for the first) to a factor >= 0.
  explicit Schedule(std::function<double(int64_t step)> factor);
  Schedule(const Schedule&) = default;  // a move copies, because a schedule needs its function
  Schedule& operator=(const Schedule&) = default;

  /// Throws Error when step is negative or when the function's result is negative or not finite.
  double factor(int64_t step) const;
  /// Sets every group's learning rate to its base rate times factor(step).
  void apply(Optimizer& optimizer, int64_t step) const { optimizer.set_lr_factor(factor(step)); }

 private:
  std::function<double(int64_t)> factor_;
};

// The formulas of Hugging Face's get_{constant,linear,cosine}_schedule_with_warmup: from 0 to 1 in the warmup, then
// constant, or down to min_ratio linearly or along a cosine. The end of the training cuts off a warmup longer than
// total_steps. They throw Error on options out of range, and when a needed total_steps is missing.
Schedule constant_schedule(const ScheduleOptions& options = {});
/// After total_steps the factor stays min_ratio.
Schedule linear_schedule(const ScheduleOptions& options);
/// After total_steps the cosine continues: with the default half wave it rises again, to 1 after as many steps as the
/// decay had, and so on, as in Hugging Face and PyTorch (CosineAnnealingLR).
Schedule cosine_schedule(const ScheduleOptions& options);
std::vector<std::string> schedule_names();
/// The schedule of that name; throws Error that lists the names otherwise.
Schedule schedule_by_name(const std::string& name, const ScheduleOptions& options);

}  // namespace tern::optim
