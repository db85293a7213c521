#pragma once
// Learning rate schedules: a factor of the base rate, or a rate, for each step. The step is the only state.

#include <functional>
#include <string>
#include <utility>
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
  using Factor = std::function<double(int64_t step)>;
  using Rate = std::function<double(int64_t step, double base_lr)>;
  /// What a saved state compares: the schedule's name, and its options by name.
  struct Description {
    std::string name;
    std::vector<std::pair<std::string, double>> options;
  };

  /// Any function from the step (0 for the first) to a factor >= 0: PyTorch's LambdaLR. A state cannot compare
  /// functions, only descriptions.
  explicit Schedule(Factor factor, Description description = {"lambda_lr", {}});
  /// A function that gives the rate itself, and one for the momentum (or beta1), in (0, 1), if that is to change too.
  static Schedule of_rates(Rate rate, Description description, Factor momentum = nullptr);
  Schedule(const Schedule&) = default;  // a move copies, because a schedule needs its function
  Schedule& operator=(const Schedule&) = default;

  /// Throws Error when step is negative, when the function's result is negative or not finite, and when the schedule
  /// gives rates.
  double factor(int64_t step) const;
  bool has_factor() const { return factor_ != nullptr; }
  /// The rate of a group with this base rate. Throws Error as factor() does.
  double rate(int64_t step, double base_lr) const;
  /// The momentum at this step; nothing if the schedule leaves it as it is.
  std::optional<double> momentum(int64_t step) const;
  /// Sets every group's learning rate to rate(step, its base rate), and its momentum if the schedule gives one.
  void apply(Optimizer& optimizer, int64_t step) const;
  /// The same with a schedule for each group. Throws Error when their number is another, or when some give a momentum
  /// and others do not.
  static void apply(const std::vector<Schedule>& schedules, Optimizer& optimizer, int64_t step);

  const Description& description() const { return description_; }

 private:
  Schedule(Factor factor, Rate rate, Factor momentum, Description description);
  Factor factor_;  // or rate_
  Rate rate_;
  Factor momentum_;
  Description description_;
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

/// What lengths in steps are given as: a whole number >= 1 (below 1e15), or a fraction of all steps, in (0, 1).
bool is_steps_or_fraction(double value);

namespace detail {
/// The length in steps, a fraction rounded up; 0 is 0. Throws Error, which calls it `what`, on any other value.
int64_t length_in_steps(const char* what, double value, int64_t total_steps);
}  // namespace detail

}  // namespace tern::optim
