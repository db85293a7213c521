#pragma once
// Schedulers: what counts a schedule's steps, or follows a metric, and sets the optimizer's rates.
//
//   optim::LRScheduler scheduler(optimizer, optim::step_lr({.step_size = 30}));
//   for (...) {
//     optimizer.step();
//     scheduler.step();
//   }

#include "tern/optim/schedules/schedule.h"

namespace tern::optim {

class LRScheduler {
 public:
  /// Sets the rates of step 0. The optimizer must outlive it. Throws Error as Schedule::apply does.
  LRScheduler(Optimizer& optimizer, const Schedule& schedule);
  /// A schedule for each group.
  LRScheduler(Optimizer& optimizer, const std::vector<Schedule>& schedules);

  /// The rates of the next step; to be called after optimizer.step().
  void step();
  /// Steps done.
  int64_t last_epoch() const { return last_epoch_; }
  /// The rate of each group.
  std::vector<double> get_last_lr() const;

  /// "last_epoch" (int64 [1]), "base_lrs" (float64 [groups]), and for each schedule "schedule.K.NAME", the values of
  /// its options (float64). Copies.
  StateView state_dict() const;
  /// Sets the step and its rates. Throws Error that says what differs when the state is of another schedule, or of
  /// other base rates than the optimizer's; nothing has changed then.
  void load_state_dict(const StateView& state);

 private:
  void apply(int64_t step);
  std::vector<double> base_lrs() const;

  Optimizer& optimizer_;
  std::vector<Schedule> schedules_;  // one for each group, or one for all
  int64_t last_epoch_ = 0;
};

enum class PlateauMode { kMin, kMax };
enum class ThresholdMode { kRelative, kAbsolute };

struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::kMin;
  double factor = 0.1;    // of the rates, in [0, 1)
  int64_t patience = 10;  // metrics without improvement that are tolerated
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;              // metrics after a reduction that are not counted
  std::vector<double> min_lr = {0};  // one for all groups, or one for each
  double eps = 1e-8;                 // a rate that would change by no more stays
};

/// PyTorch's ReduceLROnPlateau. A metric improves when it is less than best * (1 - threshold) or best - threshold
/// (kMax: greater than best * (1 + threshold), best + threshold); NaN never does.
class ReduceLROnPlateau {
 public:
  /// The optimizer must outlive it. Throws Error on options out of range.
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});

  /// To be called after each validation.
  void step(double metric);
  int64_t last_epoch() const { return last_epoch_; }
  int64_t num_bad_epochs() const { return num_bad_epochs_; }
  double best() const { return best_; }
  std::vector<double> get_last_lr() const;

  /// "last_epoch", "num_bad_epochs" and "cooldown_counter" (int64 [1]), "best" (float64 [1]), "lr" (float64 [groups]),
  /// "options" (float64). Copies.
  StateView state_dict() const;
  /// Sets the rates too. Throws Error that says what differs when the state has other options or another number of
  /// groups; nothing has changed then.
  void load_state_dict(const StateView& state);

 private:
  bool improves(double metric) const;
  /// The least rate of each group.
  std::vector<double> min_rates() const;
  std::vector<std::pair<std::string, double>> named_options() const;

  Optimizer& optimizer_;
  const ReduceLROnPlateauOptions options_;
  double best_;
  int64_t last_epoch_ = 0, num_bad_epochs_ = 0, cooldown_counter_ = 0;
};

}  // namespace tern::optim
