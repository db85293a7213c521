#include "tern/optim/schedules/named_schedules.h"

#include <algorithm>
#include <cmath>

#include "tern/optim/schedules/lr_schedules.h"

namespace tern::optim {
namespace {

/// A length in steps that must be given; `what` names it in errors.
int64_t named_length(const char* what, double value, const ScheduleOptions& options) {
  TERN_CHECK(value != 0, "schedule: ", what, " must be given: a number of steps, or a fraction of all in (0, 1)");
  return detail::length_in_steps(what, value, options.total_steps);
}

int64_t named_warmup(const ScheduleOptions& options) {
  return detail::length_in_steps("warmup", options.warmup, options.total_steps);
}

double named_gamma(const char* name, const ScheduleParameters& parameters, std::optional<double> by_default) {
  const std::optional<double> gamma = parameters.gamma ? parameters.gamma : by_default;
  TERN_CHECK(gamma, "schedule: ", name, " needs a gamma, the factor of one step");
  detail::check_share("schedule", "gamma", *gamma);
  return *gamma;
}

Schedule described(Schedule::Factor factor, const char* name, Schedule::Description of, int64_t warmup) {
  of.options.emplace_back("warmup", static_cast<double>(warmup));
  return Schedule(std::move(factor), {name, of.options});
}

/// Counts all steps; the warmup scales it.
Schedule scaled_by_warmup(const char* name, const Schedule& shape, const ScheduleOptions& options) {
  const int64_t warmup = named_warmup(options);
  return described(
      [=](int64_t step) {
        const double scale = step < warmup ? static_cast<double>(step) / static_cast<double>(warmup) : 1;
        return scale * shape.rate(step, 1);
      },
      name, shape.description(), warmup);
}

/// Begins after the warmup.
Schedule after_warmup(const char* name, const Schedule& shape, const ScheduleOptions& options) {
  const int64_t warmup = named_warmup(options);
  return described(
      [=](int64_t step) {
        return step < warmup ? static_cast<double>(step) / static_cast<double>(warmup) : shape.rate(step - warmup, 1);
      },
      name, shape.description(), warmup);
}

Schedule named_step(const ScheduleOptions& options, const ScheduleParameters& p) {
  const int64_t size = named_length("step's step_size", p.step_size, options);
  return scaled_by_warmup("step", step_lr({.step_size = size, .gamma = named_gamma("step", p, 0.1)}), options);
}

Schedule named_multi_step(const ScheduleOptions& options, const ScheduleParameters& p) {
  TERN_CHECK(!p.milestones.empty(), "schedule: multi-step needs milestones, the steps at which the rate falls");
  std::vector<int64_t> milestones;
  for (const double milestone : p.milestones)
    milestones.push_back(named_length("multi-step's milestone", milestone, options));
  const double gamma = named_gamma("multi-step", p, 0.1);
  return scaled_by_warmup("multi-step", multi_step_lr({.milestones = milestones, .gamma = gamma}), options);
}

Schedule named_exponential(const ScheduleOptions& options, const ScheduleParameters& p) {
  return scaled_by_warmup("exponential", exponential_lr(named_gamma("exponential", p, {})), options);
}

void check_named_total(const char* name, const ScheduleOptions& options) {
  TERN_CHECK(options.total_steps >= 1, "schedule: ", name,
             " spans total_steps, the number of steps of the training; it must be at least 1, got ",
             options.total_steps);
}

Schedule named_polynomial(const ScheduleOptions& options, const ScheduleParameters& p) {
  check_named_total("polynomial", options);
  const int64_t left = std::max<int64_t>(1, options.total_steps - named_warmup(options));
  return after_warmup("polynomial", polynomial_lr({.total_iters = left, .power = p.power}), options);
}

Schedule named_one_cycle(const ScheduleOptions& options, const ScheduleParameters& p) {
  check_named_total("one-cycle", options);
  TERN_CHECK(options.warmup == 0, "schedule: one-cycle rises by itself: set its rise, and warmup = 0, got ",
             options.warmup);
  detail::check_share("schedule", "rise", p.rise);
  // A momentum that cycles would be part of a captured step, and not every optimizer has one.
  return scaled_by_warmup(
      "one-cycle",
      one_cycle_lr({.max_lr = 1, .total_steps = options.total_steps, .pct_start = p.rise, .cycle_momentum = false}),
      options);
}

Schedule named_restarts(const ScheduleOptions& options, const ScheduleParameters& p) {
  const int64_t period = named_length("cosine-restarts' period", p.period, options);
  TERN_CHECK(p.period_factor >= 1, "schedule: period_factor must be at least 1, got ", p.period_factor);
  return after_warmup("cosine-restarts", cosine_annealing_warm_restarts({.t_0 = period, .t_mult = p.period_factor}),
                      options);
}

Schedule named_inverse_sqrt(const ScheduleOptions& options, const ScheduleParameters& p) {
  const int64_t scale = detail::length_in_steps("inverse-sqrt's timescale", p.timescale, options.total_steps);
  return inverse_sqrt_schedule({.warmup = named_warmup(options), .timescale = scale});
}

Schedule named_plateau(const ScheduleOptions& options, const ScheduleParameters& p) {
  plateau_options(p);
  return constant_schedule(options);
}

template <Schedule (*kMake)(const ScheduleOptions&)>
Schedule with_min_ratio(const ScheduleOptions& options, const ScheduleParameters&) {
  return kMake(options);
}

template <Schedule (*kMake)(const ScheduleOptions&, const ScheduleParameters&)>
Schedule without_min_ratio(const ScheduleOptions& options, const ScheduleParameters& parameters) {
  const ScheduleOptions defaults;
  TERN_CHECK(options.min_ratio == defaults.min_ratio && options.cycles == defaults.cycles,
             "schedule: min_ratio and cycles are for linear, cosine and constant, got ", options.min_ratio, " and ",
             options.cycles);
  return kMake(options, parameters);
}

const struct {
  const char* name;
  Schedule (*make)(const ScheduleOptions& options, const ScheduleParameters& parameters);
} kNamedSchedules[] = {
    {"linear", with_min_ratio<linear_schedule>},
    {"cosine", with_min_ratio<cosine_schedule>},
    {"constant", with_min_ratio<constant_schedule>},
    {"step", without_min_ratio<named_step>},
    {"multi-step", without_min_ratio<named_multi_step>},
    {"exponential", without_min_ratio<named_exponential>},
    {"polynomial", without_min_ratio<named_polynomial>},
    {"one-cycle", without_min_ratio<named_one_cycle>},
    {"cosine-restarts", without_min_ratio<named_restarts>},
    {"inverse-sqrt", without_min_ratio<named_inverse_sqrt>},
    {"plateau", without_min_ratio<named_plateau>},
};

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& schedule : kNamedSchedules) names.push_back(schedule.name);
  return names;
}

Schedule schedule_by_name(const std::string& name, const ScheduleOptions& options,
                          const ScheduleParameters& parameters) {
  std::string known;
  for (const auto& schedule : kNamedSchedules) {
    if (name == schedule.name) return schedule.make(options, parameters);
    known += std::string(known.empty() ? "" : ", ") + schedule.name;
  }
  fail("schedule: unknown name '", name, "'; known: ", known);
}

ReduceLROnPlateauOptions plateau_options(const ScheduleParameters& parameters) {
  const double gamma = parameters.gamma.value_or(0.1);
  TERN_CHECK(gamma >= 0 && gamma < 1, "schedule: plateau's gamma must be in [0, 1), got ", gamma);
  TERN_CHECK(parameters.patience >= 0, "schedule: plateau's patience must be >= 0, got ", parameters.patience);
  // Relative thresholds are wrong for metrics below zero.
  return {.mode = PlateauMode::kMax,
          .factor = gamma,
          .patience = parameters.patience,
          .threshold_mode = ThresholdMode::kAbsolute};
}

}  // namespace tern::optim
