// The options of `tern train` that are for some schedules only.

#include <algorithm>
#include <charconv>

#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/families.h"

namespace tern::cli {
namespace {

/// Which schedules an option is for.
struct OfSchedules {
  const char* flag;
  Words schedules;
};

const std::vector<OfSchedules>& options_of_schedules() {
  static const std::vector<OfSchedules> options = [] {
    Words with_warmup = optim::schedule_names();
    std::erase(with_warmup, "one-cycle");
    return std::vector<OfSchedules>{{"--warmup", with_warmup},
                                    {"--schedule-gamma", {"step", "multi-step", "exponential", "plateau"}},
                                    {"--schedule-step", {"step"}},
                                    {"--schedule-milestones", {"multi-step"}},
                                    {"--schedule-power", {"polynomial"}},
                                    {"--schedule-period", {"cosine-restarts"}},
                                    {"--schedule-period-factor", {"cosine-restarts"}},
                                    {"--schedule-rise", {"one-cycle"}},
                                    {"--schedule-timescale", {"inverse-sqrt"}},
                                    {"--schedule-patience", {"plateau"}}};
  }();
  return options;
}

void check_needed(const TrainArguments& a, const char* schedule, const char* flag, bool is_there) {
  if (a.schedule == schedule && !is_there)
    throw UsageError("--schedule " + a.schedule + " requires " + flag + ": " + a.find(flag)->help());
}

void check_length(const char* flag, std::optional<double> value) {
  if (value && *value != 0 && !optim::is_steps_or_fraction(*value))
    throw UsageError(std::string(flag) + ": must be a whole number of steps or a fraction below 1, got '" +
                     std::to_string(*value) + "'");
}

}  // namespace

std::optional<std::vector<double>> parse_milestones(const std::string& text) {
  std::vector<double> milestones;
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    double milestone = 0;
    const auto [stopped, error] = std::from_chars(at, end, milestone);
    if (error != std::errc() || !optim::is_steps_or_fraction(milestone)) return std::nullopt;
    milestones.push_back(milestone);
    if (stopped == end) return milestones;
    if (*stopped != ',') return std::nullopt;
    at = stopped + 1;
  }
}

optim::ScheduleParameters schedule_parameters(const TrainArguments& a) {
  return {.gamma = a.schedule_gamma,
          .step_size = a.schedule_step.value_or(0),
          .milestones = parse_milestones(a.schedule_milestones).value_or(std::vector<double>()),
          .power = a.schedule_power,
          .period = a.schedule_period.value_or(0),
          .period_factor = a.schedule_period_factor,
          .rise = a.schedule_rise,
          .timescale = a.schedule_timescale.value_or(0),
          .patience = a.schedule_patience};
}

void check_schedule_arguments(const TrainArguments& a) {
  for (const auto& [flag, schedules] : options_of_schedules()) {
    const bool is_for_it = std::find(schedules.begin(), schedules.end(), a.schedule) != schedules.end();
    if (a.given(flag) && !is_for_it)
      throw UsageError(std::string(flag) + " is for --schedule " + models::in_words(schedules) + ", not for " +
                       a.schedule);
  }
  check_length("--warmup", a.warmup);
  check_length("--schedule-step", a.schedule_step);
  check_length("--schedule-period", a.schedule_period);
  check_length("--schedule-timescale", a.schedule_timescale);
  check_needed(a, "step", "--schedule-step", a.schedule_step.has_value());
  check_needed(a, "multi-step", "--schedule-milestones", !a.schedule_milestones.empty());
  check_needed(a, "exponential", "--schedule-gamma", a.schedule_gamma.has_value());
  if (a.schedule == "plateau" && a.schedule_gamma == 1.0)
    throw UsageError("--schedule-gamma: a factor of 1 leaves --schedule plateau's rate as it is; give one below 1");
  check_needed(a, "cosine-restarts", "--schedule-period", a.schedule_period.has_value());
}

}  // namespace tern::cli
