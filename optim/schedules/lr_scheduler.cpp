#include "tern/optim/schedules/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tern/core/autograd/grad_mode.h"

namespace tern::optim {
namespace {

using NamedNumbers = std::vector<std::pair<std::string, double>>;

Tensor numbers(const std::vector<double>& values) { return from_vector(values, {static_cast<int64_t>(values.size())}); }
Tensor counter(int64_t value) { return from_vector<int64_t>({value}, {1}); }

std::vector<double> values_of(const NamedNumbers& named) {
  std::vector<double> values;
  for (const auto& [name, value] : named) values.push_back(value);
  return values;
}

std::vector<double> rates_of(const Optimizer& optimizer) {
  std::vector<double> rates;
  for (const GroupState& group : optimizer.param_groups()) rates.push_back(group.lr);
  return rates;
}

std::string list_of(const std::vector<double>& values) {
  std::string list;
  for (const double value : values) list += (list.empty() ? "" : ", ") + tern::detail::concatenate(value);
  return "[" + list + "]";
}

/// Reads `target`'s entries from `state`, checked as load_state() does.
StateView read(const StateView& target, const StateView& state) {
  NoGrad off;
  load_state(target, state);
  return target;
}
int64_t read_count(const char* name, const StateView& state, const std::string& entry) {
  const auto count = find(state, entry).item<int64_t>();
  TERN_CHECK(count >= 0, name, ": the state's ", entry, " must be >= 0, got ", count);
  return count;
}

/// The options of a state against those here.
void compare_options(const std::string& what, const NamedNumbers& here, const Tensor& saved) {
  const auto values = saved.to_vector<double>();
  for (size_t i = 0; i < here.size(); ++i)
    TERN_CHECK(values[i] == here[i].second, what, "'s ", here[i].first, " is ", values[i], " in the state and ",
               here[i].second, " here");
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer, const Schedule& schedule)
    : LRScheduler(optimizer, std::vector{schedule}) {}

LRScheduler::LRScheduler(Optimizer& optimizer, const std::vector<Schedule>& schedules)
    : optimizer_(optimizer), schedules_(schedules) {
  apply(0);
}

void LRScheduler::apply(int64_t step) {
  if (schedules_.size() == 1)
    schedules_.front().apply(optimizer_, step);
  else
    Schedule::apply(schedules_, optimizer_, step);
}

void LRScheduler::step() {
  apply(last_epoch_ + 1);
  ++last_epoch_;
}

std::vector<double> LRScheduler::get_last_lr() const { return rates_of(optimizer_); }

std::vector<double> LRScheduler::base_lrs() const {
  std::vector<double> rates;
  for (const GroupState& group : optimizer_.param_groups()) rates.push_back(group.base_lr);
  return rates;
}

StateView LRScheduler::state_dict() const {
  StateView state = {{"last_epoch", counter(last_epoch_)}, {"base_lrs", numbers(base_lrs())}};
  for (size_t k = 0; k < schedules_.size(); ++k) {
    const auto& [name, options] = schedules_[k].description();
    state.push_back({"schedule." + std::to_string(k) + "." + name, numbers(values_of(options))});
  }
  return state;
}

void LRScheduler::load_state_dict(const StateView& state) {
  for (size_t k = 0; k < schedules_.size(); ++k) {
    const std::string prefix = "schedule." + std::to_string(k) + ".", name = schedules_[k].description().name;
    for (const NamedTensor& entry : state)
      TERN_CHECK(!entry.name.starts_with(prefix) || entry.name == prefix + name, "scheduler: the state is of ",
                 entry.name.substr(prefix.size()), ", but this schedule is ", name);
  }
  const StateView read = optim::read(state_dict(), state);
  const int64_t step = read_count("scheduler", read, "last_epoch");
  for (size_t k = 0; k < schedules_.size(); ++k) {
    const auto& [name, options] = schedules_[k].description();
    compare_options("scheduler: " + name, options, read[2 + k].tensor);
  }
  const auto saved = find(read, "base_lrs").to_vector<double>();
  TERN_CHECK(saved == base_lrs(), "scheduler: the state's base rates are ", list_of(saved), ", the optimizer's ",
             list_of(base_lrs()), "; make the optimizer with the rates it had");
  apply(step);
  last_epoch_ = step;
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(optimizer), options_(options) {
  const char* const name = "reduce_lr_on_plateau";
  detail::check_fraction(name, "factor", options.factor);
  detail::check_not_negative(name, "threshold", options.threshold);
  detail::check_not_negative(name, "eps", options.eps);
  TERN_CHECK(options.patience >= 0 && options.cooldown >= 0, name, ": patience and cooldown must be >= 0, got ",
             options.patience, " and ", options.cooldown);
  min_rates();
  for (const double rate : options.min_lr) detail::check_not_negative(name, "min_lr", rate);
  best_ = std::numeric_limits<double>::infinity() * (options.mode == PlateauMode::kMin ? 1 : -1);
}

bool ReduceLROnPlateau::improves(double metric) const {
  const double sign = options_.mode == PlateauMode::kMin ? -1 : 1;
  const double limit = options_.threshold_mode == ThresholdMode::kRelative ? best_ * (1 + sign * options_.threshold)
                                                                           : best_ + sign * options_.threshold;
  return options_.mode == PlateauMode::kMin ? metric < limit : metric > limit;
}

std::vector<double> ReduceLROnPlateau::min_rates() const {
  const size_t groups = optimizer_.param_groups().size(), given = options_.min_lr.size();
  TERN_CHECK(given == 1 || given == groups, "reduce_lr_on_plateau: expected one min_lr, or one for each of ", groups,
             " groups, got ", given);
  return given == 1 ? std::vector<double>(groups, options_.min_lr[0]) : options_.min_lr;
}

void ReduceLROnPlateau::step(double metric) {
  int64_t bad = num_bad_epochs_ + 1, cooldown = cooldown_counter_;
  const bool better = improves(metric);
  if (better) bad = 0;
  if (cooldown > 0) {
    --cooldown;
    bad = 0;
  }
  if (bad > options_.patience) {
    std::vector<double> rates = rates_of(optimizer_);
    const std::vector<double> least = min_rates();
    for (size_t g = 0; g < rates.size(); ++g) {
      const double reduced = std::max(rates[g] * options_.factor, least[g]);
      if (rates[g] - reduced > options_.eps) rates[g] = reduced;
    }
    optimizer_.set_group_lr(rates);
    cooldown = options_.cooldown;
    bad = 0;
  }
  if (better) best_ = metric;
  num_bad_epochs_ = bad;
  cooldown_counter_ = cooldown;
  ++last_epoch_;
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const { return rates_of(optimizer_); }

NamedNumbers ReduceLROnPlateau::named_options() const {
  NamedNumbers named = {{"mode", static_cast<double>(options_.mode)},
                        {"factor", options_.factor},
                        {"patience", static_cast<double>(options_.patience)},
                        {"threshold", options_.threshold},
                        {"threshold_mode", static_cast<double>(options_.threshold_mode)},
                        {"cooldown", static_cast<double>(options_.cooldown)},
                        {"eps", options_.eps}};
  for (const double rate : options_.min_lr) named.emplace_back("min_lr", rate);
  return named;
}

StateView ReduceLROnPlateau::state_dict() const {
  return {{"last_epoch", counter(last_epoch_)},
          {"num_bad_epochs", counter(num_bad_epochs_)},
          {"cooldown_counter", counter(cooldown_counter_)},
          {"best", numbers({best_})},
          {"lr", numbers(rates_of(optimizer_))},
          {"options", numbers(values_of(named_options()))}};
}

void ReduceLROnPlateau::load_state_dict(const StateView& state) {
  const char* const name = "reduce_lr_on_plateau";
  const StateView read = optim::read(state_dict(), state);
  compare_options(name, named_options(), find(read, "options"));
  const int64_t epoch = read_count(name, read, "last_epoch"), bad = read_count(name, read, "num_bad_epochs"),
                cooldown = read_count(name, read, "cooldown_counter");
  optimizer_.set_group_lr(find(read, "lr").to_vector<double>());
  best_ = find(read, "best").item<double>();
  last_epoch_ = epoch;
  num_bad_epochs_ = bad;
  cooldown_counter_ = cooldown;
}

}  // namespace tern::optim
