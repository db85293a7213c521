#pragma once
// Schedules by the names of `tern train --schedule`.

#include <optional>
#include <string>
#include <vector>

#include "tern/optim/schedules/lr_scheduler.h"

namespace tern::optim {

/// What only some of the named schedules take; the others do not look at it. Lengths are steps, if they are a whole
/// number >= 1; below 1 a fraction of total_steps (rounded up), as ScheduleOptions::warmup.
struct ScheduleParameters {
  std::optional<double> gamma =
      {};                // in [0, 1]; step, multi-step, plateau: 0.1 unless given; exponential: must be given
  double step_size = 0;  // step: must be given
  std::vector<double> milestones = {};  // multi-step: at least one; in any order
  double power = 1;                     // polynomial
  double period = 0;                    // cosine-restarts: of the first half cosine; must be given
  int64_t period_factor = 1;            // cosine-restarts: how many times as long each one is as the one before
  double rise = 0.3;                    // one-cycle: the part of the steps in which the rate rises
  double timescale = 0;                 // inverse-sqrt; 0: the warmup, or 10,000 without one
  int64_t patience = 1;                 // plateau: metrics without improvement that are tolerated
};

/// linear, cosine, constant, step, multi-step, exponential, polynomial, one-cycle, cosine-restarts, inverse-sqrt,
/// plateau.
std::vector<std::string> schedule_names();

/// The schedule of that name: schedule.h's, or with the formulas of lr_schedules.h. All give factors of the base rate,
/// and begin with the warmup, from 0 to 1, except one-cycle, which begins at 1/25 and rises by itself: its warmup must
/// be 0; it leaves the momentum as it is. step, multi-step and exponential count all steps of the training, the
/// warmup's too, and the warmup scales their factor; polynomial and cosine-restarts begin after the warmup. plateau is
/// the warmup alone, as constant: it scales the rates of a ReduceLROnPlateau of plateau_options().
///
/// Throws Error that lists the names when there is none of that name, and on options out of range; min_ratio and cycles
/// are for linear, cosine and constant.
Schedule schedule_by_name(const std::string& name, const ScheduleOptions& options,
                          const ScheduleParameters& parameters = {});

/// plateau's: of a metric whose greater values are better, and which improves when it rises by more than 1e-4. A rate
/// falls to gamma times itself. Throws Error on parameters out of range.
ReduceLROnPlateauOptions plateau_options(const ScheduleParameters& parameters);

}  // namespace tern::optim
