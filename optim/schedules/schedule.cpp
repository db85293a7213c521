#include "tern/optim/schedules/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tern::optim {

int64_t detail::length_in_steps(const char* what, double value, int64_t total_steps) {
  TERN_CHECK(total_steps >= 0, "schedule: total_steps must be >= 0, got ", total_steps);
  TERN_CHECK(value == 0 || is_steps_or_fraction(value), "schedule: ", what,
             " must be a whole number of steps or a fraction in [0, 1), got ", value);
  if (value == 0 || value >= 1) return static_cast<int64_t>(value);
  TERN_CHECK(total_steps > 0, "schedule: ", what, " ", value,
             " is a fraction of total_steps, which is 0; give total_steps or a whole number of steps");
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * value));
}

bool is_steps_or_fraction(double value) {
  return value > 0 && value < 1e15 && (value < 1 || value == std::floor(value));
}

namespace {

void check_total(const char* name, const ScheduleOptions& options) {
  TERN_CHECK(options.total_steps >= 1, "schedule: ", name,
             " decays over total_steps, the number of steps of the training; "
             "it must be at least 1, got ",
             options.total_steps);
}

/// Warmup, then decay(done, left): the steps since the warmup and until total_steps, in units of its length.
template <class Decay>
Schedule with_warmup(const char* name, const ScheduleOptions& options, Decay decay) {
  TERN_CHECK(options.min_ratio >= 0 && options.min_ratio <= 1, "schedule: min_ratio must be in [0, 1], got ",
             options.min_ratio);
  TERN_CHECK(options.cycles >= 0 && std::isfinite(options.cycles), "schedule: cycles must be finite and >= 0, got ",
             options.cycles);
  const int64_t warmup = detail::length_in_steps("warmup", options.warmup, options.total_steps);
  const auto length = static_cast<double>(std::max<int64_t>(1, options.total_steps - warmup));
  const auto factor_at = [=, total = options.total_steps, low = options.min_ratio](int64_t step) {
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    const double factor =
        std::max(0.0, decay(static_cast<double>(step - warmup) / length, static_cast<double>(total - step) / length));
    return low + (1 - low) * factor;
  };
  return Schedule(factor_at, {name,
                              {{"total_steps", static_cast<double>(options.total_steps)},
                               {"warmup", static_cast<double>(warmup)},
                               {"min_ratio", options.min_ratio},
                               {"cycles", options.cycles}}});
}

}  // namespace

Schedule::Schedule(Factor factor, Rate rate, Factor momentum, Description description)
    : factor_(std::move(factor)),
      rate_(std::move(rate)),
      momentum_(std::move(momentum)),
      description_(std::move(description)) {
  TERN_CHECK(factor_ != nullptr || rate_ != nullptr, "schedule: the function is empty");
}

Schedule::Schedule(Factor factor, Description description)
    : Schedule(std::move(factor), nullptr, nullptr, std::move(description)) {}

Schedule Schedule::of_rates(Rate rate, Description description, Factor momentum) {
  return Schedule(nullptr, std::move(rate), std::move(momentum), std::move(description));
}

double Schedule::factor(int64_t step) const {
  TERN_CHECK(has_factor(), "schedule: ", description_.name, " gives rates, not factors of a base rate");
  TERN_CHECK(step >= 0, "schedule: step must be >= 0, got ", step);
  const double factor = factor_(step);
  TERN_CHECK(factor >= 0 && std::isfinite(factor), "schedule: the factor at step ", step,
             " must be a finite number >= 0, the function gave ", factor);
  return factor;
}

double Schedule::rate(int64_t step, double base_lr) const {
  if (has_factor()) return base_lr * factor(step);
  TERN_CHECK(step >= 0, "schedule: step must be >= 0, got ", step);
  const double rate = rate_(step, base_lr);
  TERN_CHECK(rate >= 0 && std::isfinite(rate), "schedule: the rate at step ", step,
             " must be a finite number >= 0, the function gave ", rate);
  return rate;
}

std::optional<double> Schedule::momentum(int64_t step) const {
  if (!momentum_) return std::nullopt;
  return momentum_(step);
}

void Schedule::apply(Optimizer& optimizer, int64_t step) const {
  apply(std::vector<Schedule>(optimizer.param_groups().size(), *this), optimizer, step);
}

void Schedule::apply(const std::vector<Schedule>& schedules, Optimizer& optimizer, int64_t step) {
  const std::vector<GroupState>& groups = optimizer.param_groups();
  TERN_CHECK(schedules.size() == groups.size(), "schedule: the optimizer has ", groups.size(), " groups, there are ",
             schedules.size(), " schedules; give one for each");
  std::vector<double> rates, momentums;
  for (size_t g = 0; g < groups.size(); ++g) {
    rates.push_back(schedules[g].rate(step, groups[g].base_lr));
    if (const std::optional<double> momentum = schedules[g].momentum(step)) momentums.push_back(*momentum);
  }
  TERN_CHECK(momentums.empty() || momentums.size() == groups.size(),
             "schedule: the schedules of all groups cycle the momentum, or none does; ", momentums.size(), " of ",
             groups.size(), " do");
  if (!momentums.empty()) optimizer.set_group_momentum(momentums);
  optimizer.set_group_lr(rates);
}

Schedule constant_schedule(const ScheduleOptions& options) {
  return with_warmup("constant_schedule", options, [](double, double) { return 1.0; });
}

Schedule linear_schedule(const ScheduleOptions& options) {
  check_total("linear_schedule", options);
  return with_warmup("linear_schedule", options, [](double, double left) { return left; });
}

Schedule cosine_schedule(const ScheduleOptions& options) {
  check_total("cosine_schedule", options);
  return with_warmup("cosine_schedule", options, [cycles = options.cycles](double done, double) {
    return 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * done));
  });
}

}  // namespace tern::optim
