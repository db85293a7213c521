#include "tern/optim/schedules/lr_schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tern::optim {
namespace {

using Named = std::vector<std::pair<std::string, double>>;

void check_steps(const char* schedule, const char* option, int64_t value, int64_t least) {
  TERN_CHECK(value >= least, schedule, ": ", option, " must be at least ", least, ", got ", value);
}
void check_decay(const char* schedule, double gamma) { detail::check_not_negative(schedule, "gamma", gamma); }

double real(int64_t steps) { return static_cast<double>(steps); }

/// From `start` at 0 to `end` at 1.
double annealed(Anneal strategy, double start, double end, double part) {
  if (strategy == Anneal::kLinear) return (end - start) * part + start;
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * part));
}

/// In (0, 1), the smaller first.
template <class Options>
void check_momentums(const char* schedule, const Options& options) {
  if (!options.cycle_momentum) return;
  TERN_CHECK(options.base_momentum > 0 && options.base_momentum <= options.max_momentum && options.max_momentum < 1,
             schedule, ": momentums must be 0 < base_momentum <= max_momentum < 1, got ", options.base_momentum,
             " and ", options.max_momentum);
}

}  // namespace

Schedule step_lr(const StepLROptions& options) {
  check_steps("step_lr", "step_size", options.step_size, 1);
  check_decay("step_lr", options.gamma);
  return Schedule([=](int64_t step) { return std::pow(options.gamma, real(step / options.step_size)); },
                  {"step_lr", {{"step_size", real(options.step_size)}, {"gamma", options.gamma}}});
}

Schedule multi_step_lr(const MultiStepLROptions& options) {
  check_decay("multi_step_lr", options.gamma);
  std::vector<int64_t> milestones = options.milestones;
  std::sort(milestones.begin(), milestones.end());
  Named named = {{"gamma", options.gamma}};
  for (const int64_t milestone : milestones) {
    check_steps("multi_step_lr", "a milestone", milestone, 0);
    named.emplace_back("a milestone", real(milestone));
  }
  return Schedule(
      [milestones, gamma = options.gamma](int64_t step) {
        const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
        return std::pow(gamma, real(passed));
      },
      {"multi_step_lr", named});
}

Schedule exponential_lr(double gamma) {
  check_decay("exponential_lr", gamma);
  return Schedule([=](int64_t step) { return std::pow(gamma, real(step)); }, {"exponential_lr", {{"gamma", gamma}}});
}

Schedule constant_lr(const ConstantLROptions& options) {
  detail::check_share("constant_lr", "factor", options.factor);
  check_steps("constant_lr", "total_iters", options.total_iters, 0);
  return Schedule([=](int64_t step) { return step < options.total_iters ? options.factor : 1; },
                  {"constant_lr", {{"factor", options.factor}, {"total_iters", real(options.total_iters)}}});
}

Schedule linear_lr(const LinearLROptions& options) {
  const double start = options.start_factor, end = options.end_factor;
  TERN_CHECK(start > 0 && start <= 1, "linear_lr: start_factor must be in (0, 1], got ", start);
  detail::check_share("linear_lr", "end_factor", end);
  check_steps("linear_lr", "total_iters", options.total_iters, 1);
  return Schedule(
      [=, total = options.total_iters](int64_t step) {
        return start + (end - start) * real(std::min(step, total)) / real(total);
      },
      {"linear_lr", {{"start_factor", start}, {"end_factor", end}, {"total_iters", real(options.total_iters)}}});
}

Schedule polynomial_lr(const PolynomialLROptions& options) {
  check_steps("polynomial_lr", "total_iters", options.total_iters, 1);
  detail::check_not_negative("polynomial_lr", "power", options.power);
  return Schedule(
      [=, total = options.total_iters](int64_t step) {
        return step < total ? std::pow(1 - real(step) / real(total), options.power) : 0;
      },
      {"polynomial_lr", {{"total_iters", real(options.total_iters)}, {"power", options.power}}});
}

namespace {

/// Half a cosine from base_lr to low.
double cosine_rate(double base_lr, double low, double part) {
  return low + (base_lr - low) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

}  // namespace

Schedule cosine_annealing_lr(const CosineAnnealingLROptions& options) {
  check_steps("cosine_annealing_lr", "t_max", options.t_max, 1);
  detail::check_not_negative("cosine_annealing_lr", "eta_min", options.eta_min);
  const Schedule::Description description = {"cosine_annealing_lr",
                                             {{"t_max", real(options.t_max)}, {"eta_min", options.eta_min}}};
  const auto rate = [=](int64_t step, double base_lr) {
    return cosine_rate(base_lr, options.eta_min, real(step) / real(options.t_max));
  };
  if (options.eta_min > 0) return Schedule::of_rates(rate, description);
  return Schedule([=](int64_t step) { return rate(step, 1); }, description);
}

Schedule cosine_annealing_warm_restarts(const CosineAnnealingWarmRestartsOptions& options) {
  const char* const name = "cosine_annealing_warm_restarts";
  check_steps(name, "t_0", options.t_0, 1);
  check_steps(name, "t_mult", options.t_mult, 1);
  detail::check_not_negative(name, "eta_min", options.eta_min);
  const auto rate = [=](int64_t step, double base_lr) {
    int64_t period = options.t_0, begin = 0;
    if (options.t_mult == 1)
      begin = step / period * period;
    else
      while (step - begin >= period) {
        begin += period;
        period = period > INT64_MAX / options.t_mult ? INT64_MAX : period * options.t_mult;
      }
    return cosine_rate(base_lr, options.eta_min, real(step - begin) / real(period));
  };
  return Schedule::of_rates(
      rate, {name, {{"t_0", real(options.t_0)}, {"t_mult", real(options.t_mult)}, {"eta_min", options.eta_min}}});
}

namespace {

/// What a phase of a cycle begins with, and what the last one ends with.
struct CyclePoint {
  double step, lr, momentum;
};

std::vector<CyclePoint> one_cycle_points(const OneCycleLROptions& o) {
  const double first = o.max_lr / o.div_factor, last = first / o.final_div_factor, total = real(o.total_steps);
  std::vector<CyclePoint> points = {{0, first, o.max_momentum}, {o.pct_start * total - 1, o.max_lr, o.base_momentum}};
  if (o.three_phase) points.push_back({2 * o.pct_start * total - 2, first, o.max_momentum});
  points.push_back({total - 1, last, o.max_momentum});
  return points;
}

void check_one_cycle(const OneCycleLROptions& o) {
  const char* const name = "one_cycle_lr";
  check_steps(name, "total_steps", o.total_steps, 1);
  detail::check_share(name, "pct_start", o.pct_start);
  for (const auto& [option, value] :
       {std::pair("max_lr", o.max_lr), {"div_factor", o.div_factor}, {"final_div_factor", o.final_div_factor}})
    TERN_CHECK(value > 0 && std::isfinite(value), name, ": ", option, " must be a finite number > 0, got ", value);
  check_momentums(name, o);
}

}  // namespace

Schedule one_cycle_lr(const OneCycleLROptions& options) {
  check_one_cycle(options);
  const auto value = [=, points = one_cycle_points(options)](int64_t step, double CyclePoint::*of) {
    TERN_CHECK(step <= options.total_steps, "one_cycle_lr: the cycle has ", options.total_steps, " steps, got step ",
               step);
    const double at = real(step);
    size_t phase = 1;
    while (phase + 1 < points.size() && at > points[phase].step) ++phase;
    const CyclePoint &from = points[phase - 1], &to = points[phase];
    const double part = to.step == from.step ? 1 : std::min(1.0, (at - from.step) / (to.step - from.step));
    return annealed(options.anneal_strategy, from.*of, to.*of, part);
  };
  const Named named = {{"max_lr", options.max_lr},
                       {"total_steps", real(options.total_steps)},
                       {"pct_start", options.pct_start},
                       {"anneal_strategy", real(static_cast<int>(options.anneal_strategy))},
                       {"cycle_momentum", options.cycle_momentum},
                       {"base_momentum", options.base_momentum},
                       {"max_momentum", options.max_momentum},
                       {"div_factor", options.div_factor},
                       {"final_div_factor", options.final_div_factor},
                       {"three_phase", options.three_phase}};
  Schedule::Factor momentum;
  if (options.cycle_momentum) momentum = [=](int64_t step) { return value(step, &CyclePoint::momentum); };
  return Schedule::of_rates([=](int64_t step, double) { return value(step, &CyclePoint::lr); }, {"one_cycle_lr", named},
                            momentum);
}

namespace {

/// How far step is from the base rate to the maximum, with the amplitude of its cycle.
double cyclic_height(const CyclicLROptions& o, int64_t step) {
  const double up = real(o.step_size_up), total = up + (o.step_size_down > 0 ? real(o.step_size_down) : up);
  const double ratio = up / total, cycle = std::floor(1 + real(step) / total), x = 1 + real(step) / total - cycle;
  const double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  if (o.scale) return height * o.scale(o.scale_by_step ? real(step) : cycle);
  if (o.mode == CyclicMode::kTriangular2) return height / std::exp2(cycle - 1);
  return o.mode == CyclicMode::kExpRange ? height * std::pow(o.gamma, real(step)) : height;
}

}  // namespace

Schedule cyclic_lr(const CyclicLROptions& options) {
  const char* const name = "cyclic_lr";
  detail::check_not_negative(name, "base_lr", options.base_lr);
  detail::check_not_negative(name, "max_lr", options.max_lr);
  check_steps(name, "step_size_up", options.step_size_up, 1);
  check_steps(name, "step_size_down", options.step_size_down, 0);
  check_decay(name, options.gamma);
  check_momentums(name, options);
  const Named named = {{"base_lr", options.base_lr},
                       {"max_lr", options.max_lr},
                       {"step_size_up", real(options.step_size_up)},
                       {"step_size_down", real(options.step_size_down)},
                       {"mode", real(static_cast<int>(options.mode))},
                       {"gamma", options.gamma},
                       {"scale", options.scale != nullptr},
                       {"scale_by_step", options.scale_by_step},
                       {"cycle_momentum", options.cycle_momentum},
                       {"base_momentum", options.base_momentum},
                       {"max_momentum", options.max_momentum}};
  Schedule::Factor momentum;
  if (options.cycle_momentum)
    momentum = [=](int64_t step) {
      return options.max_momentum - (options.max_momentum - options.base_momentum) * cyclic_height(options, step);
    };
  return Schedule::of_rates(
      [=](int64_t step, double) {
        return options.base_lr + (options.max_lr - options.base_lr) * cyclic_height(options, step);
      },
      {name, named}, momentum);
}

Schedule inverse_sqrt_schedule(const InverseSqrtOptions& options) {
  const char* const name = "inverse_sqrt_schedule";
  check_steps(name, "warmup", options.warmup, 0);
  check_steps(name, "timescale", options.timescale, 0);
  const int64_t warmup = options.warmup;
  const double scale = real(options.timescale > 0 ? options.timescale : warmup > 0 ? warmup : 10'000);
  return Schedule(
      [=](int64_t step) {
        if (step < warmup) return real(step) / real(warmup);
        return 1 / std::sqrt((real(step - warmup) + scale) / scale);
      },
      {name, {{"warmup", real(warmup)}, {"timescale", scale}}});
}

Schedule swa_lr(const SWALROptions& options) {
  detail::check_not_negative("swa_lr", "swa_lr", options.swa_lr);
  check_steps("swa_lr", "anneal_epochs", options.anneal_epochs, 0);
  return Schedule::of_rates(
      [=](int64_t step, double base_lr) {
        const double part = real(step) / real(std::max<int64_t>(1, options.anneal_epochs));
        return annealed(options.anneal_strategy, base_lr, options.swa_lr, std::min(1.0, part));
      },
      {"swa_lr",
       {{"swa_lr", options.swa_lr},
        {"anneal_epochs", real(options.anneal_epochs)},
        {"anneal_strategy", real(static_cast<int>(options.anneal_strategy))}}});
}

namespace {

/// The description of a schedule made of others.
Schedule::Description joined(const std::string& name, const std::vector<Schedule>& schedules, Named options) {
  Schedule::Description all{name + "(", std::move(options)};
  for (size_t i = 0; i < schedules.size(); ++i) {
    const auto& [part, part_options] = schedules[i].description();
    all.name += (i > 0 ? "," : "") + part;
    for (const auto& [option, value] : part_options) all.options.emplace_back(part + "'s " + option, value);
  }
  all.name += ")";
  return all;
}

}  // namespace

Schedule chained_scheduler(const std::vector<Schedule>& schedules) {
  TERN_CHECK(!schedules.empty(), "chained_scheduler: there are no schedules");
  for (const Schedule& schedule : schedules)
    TERN_CHECK(schedule.has_factor(), "chained_scheduler: ", schedule.description().name,
               " gives rates, and only factors of the base rate can be multiplied; use sequential_lr");
  return Schedule(
      [schedules](int64_t step) {
        double product = 1;
        for (const Schedule& schedule : schedules) product *= schedule.factor(step);
        return product;
      },
      joined("chained_scheduler", schedules, {}));
}

Schedule sequential_lr(const std::vector<Schedule>& schedules, const std::vector<int64_t>& milestones) {
  TERN_CHECK(!schedules.empty() && milestones.size() + 1 == schedules.size(),
             "sequential_lr: expected one milestone less than schedules, got ", milestones.size(), " for ",
             schedules.size());
  Named named;
  for (size_t i = 0; i < milestones.size(); ++i) {
    check_steps("sequential_lr", "a milestone", milestones[i], 1);
    TERN_CHECK(i == 0 || milestones[i] > milestones[i - 1], "sequential_lr: milestones must rise, got ", milestones[i],
               " after ", milestones[i - 1]);
    named.emplace_back("a milestone", real(milestones[i]));
  }
  const bool momentum = schedules.front().momentum(0).has_value();
  for (const Schedule& schedule : schedules)
    TERN_CHECK(schedule.momentum(0).has_value() == momentum,
               "sequential_lr: all schedules cycle the momentum, or none does");
  /// The schedule of this step, and the step as it counts.
  const auto at = [=](int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    const auto index = static_cast<size_t>(passed);
    return std::pair(&schedules[index], index > 0 ? step - milestones[index - 1] : step);
  };
  Schedule::Factor momentums;
  if (momentum) momentums = [=](int64_t step) { return *at(step).first->momentum(at(step).second); };
  return Schedule::of_rates(
      [=](int64_t step, double base_lr) {
        const auto [schedule, own_step] = at(step);
        return schedule->rate(own_step, base_lr);
      },
      joined("sequential_lr", schedules, named), momentums);
}

}  // namespace tern::optim
