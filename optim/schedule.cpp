#include "tern/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tern::optim {
namespace {

int64_t warmup_steps(const ScheduleOptions& options) {
  const double warmup = options.warmup;
  TERN_CHECK(options.total_steps >= 0, "schedule: total_steps must be >= 0, got ", options.total_steps);
  TERN_CHECK(warmup >= 0 && warmup < 1e15 && (warmup < 1 || warmup == std::floor(warmup)),
             "schedule: warmup must be a whole number of steps or a fraction in [0, 1), got ", warmup);
  TERN_CHECK(warmup == 0 || warmup >= 1 || options.total_steps > 0, "schedule: a warmup of ", warmup,
             " is a fraction of total_steps, which is 0; give total_steps or a whole number of steps");
  if (warmup >= 1) return static_cast<int64_t>(warmup);
  return static_cast<int64_t>(std::ceil(static_cast<double>(options.total_steps) * warmup));
}

void check_total(const char* name, const ScheduleOptions& options) {
  TERN_CHECK(options.total_steps >= 1, "schedule: ", name,
             " decays over total_steps, the number of steps of the training; "
             "it must be at least 1, got ",
             options.total_steps);
}

/// Warmup, then decay(done, left): the steps since the warmup and until total_steps, in units of its length.
template <class Decay>
Schedule with_warmup(const ScheduleOptions& options, Decay decay) {
  TERN_CHECK(options.min_ratio >= 0 && options.min_ratio <= 1, "schedule: min_ratio must be in [0, 1], got ",
             options.min_ratio);
  TERN_CHECK(options.cycles >= 0 && std::isfinite(options.cycles), "schedule: cycles must be finite and >= 0, got ",
             options.cycles);
  const int64_t warmup = warmup_steps(options);
  const auto length = static_cast<double>(std::max<int64_t>(1, options.total_steps - warmup));
  return Schedule([=, total = options.total_steps, low = options.min_ratio](int64_t step) {
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    const double factor =
        std::max(0.0, decay(static_cast<double>(step - warmup) / length, static_cast<double>(total - step) / length));
    return low + (1 - low) * factor;
  });
}

}  // namespace

Schedule::Schedule(std::function<double(int64_t)> factor) : factor_(std::move(factor)) {
  TERN_CHECK(factor_ != nullptr, "schedule: the function is empty");
}

double Schedule::factor(int64_t step) const {
  TERN_CHECK(step >= 0, "schedule: step must be >= 0, got ", step);
  const double factor = factor_(step);
  TERN_CHECK(factor >= 0 && std::isfinite(factor), "schedule: the factor at step ", step,
             " must be a finite number >= 0, the function gave ", factor);
  return factor;
}

Schedule constant_schedule(const ScheduleOptions& options) {
  return with_warmup(options, [](double, double) { return 1.0; });
}

Schedule linear_schedule(const ScheduleOptions& options) {
  check_total("linear_schedule", options);
  return with_warmup(options, [](double, double left) { return left; });
}

Schedule cosine_schedule(const ScheduleOptions& options) {
  check_total("cosine_schedule", options);
  return with_warmup(options, [cycles = options.cycles](double done, double) {
    return 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * done));
  });
}

namespace {

const std::pair<const char*, Schedule (*)(const ScheduleOptions&)> kSchedules[] = {
    {"linear", linear_schedule}, {"cosine", cosine_schedule}, {"constant", constant_schedule}};

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kSchedules) names.push_back(name);
  return names;
}

Schedule schedule_by_name(const std::string& name, const ScheduleOptions& options) {
  std::string known;
  for (const auto& [of, make] : kSchedules) {
    if (name == of) return make(options);
    known += std::string(known.empty() ? "" : ", ") + of;
  }
  fail("schedule: unknown name '", name, "'; known: ", known);
}

}  // namespace tern::optim
