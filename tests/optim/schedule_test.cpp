// Schedules against Hugging Face's and PyTorch's numbers (tests/golden/schedules.json), and schedulers' states.

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/optim/optim.h"
#include "tern/tests/core/state.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"

namespace tern {
namespace {

nlohmann::json golden(const char* part) {
  return nlohmann::json::parse(std::ifstream(test::source_dir() + "/tests/golden/schedules.json")).at(part);
}

TEST(Schedule, AsHuggingFace) {
  const nlohmann::json cases = golden("hugging_face");
  ASSERT_EQ(cases.size(), 15u);
  for (const auto& c : cases) {
    const std::string full_name = c["schedule"], name = full_name.substr(0, full_name.find('_'));
    const optim::Schedule schedule =
        optim::schedule_by_name(name, {.total_steps = c["total"].get<int64_t>(), .warmup = c["warmup"].get<double>()});
    int64_t step = 0;
    for (const double expected : c["factors"]) {
      EXPECT_NEAR(schedule.factor(step), expected, 1e-15) << full_name << " step " << step << " of " << c["total"];
      ++step;
    }
    EXPECT_GT(step, 3);
  }
}

TEST(Schedule, FractionsOfWarmupRoundUp) {
  const auto by_fraction = optim::linear_schedule({.total_steps = 105, .warmup = 0.1});
  const auto by_steps = optim::linear_schedule({.total_steps = 105, .warmup = 11});
  for (int64_t step = 0; step < 110; ++step) EXPECT_EQ(by_fraction.factor(step), by_steps.factor(step));
  const auto whole = optim::linear_schedule({.total_steps = 100, .warmup = 0.06});
  EXPECT_EQ(whole.factor(6), 1);
  EXPECT_LT(whole.factor(5), 1);
}

TEST(Schedule, MinimumRatioAndCycles) {
  const auto linear = optim::linear_schedule({.total_steps = 10, .min_ratio = 0.2});
  EXPECT_EQ(linear.factor(0), 1);
  EXPECT_NEAR(linear.factor(5), 0.6, 1e-15);
  EXPECT_EQ(linear.factor(10), 0.2);
  EXPECT_EQ(linear.factor(1000), 0.2);
  const auto cosine = optim::cosine_schedule({.total_steps = 12, .warmup = 2, .min_ratio = 0.1, .cycles = 1});
  EXPECT_EQ(cosine.factor(1), 0.5);  // the warmup starts at 0
  for (int64_t step = 2; step <= 12; ++step) {
    const double expected = 0.1 + 0.9 * 0.5 * (1 + std::cos(2 * M_PI * static_cast<double>(step - 2) / 10));
    EXPECT_NEAR(cosine.factor(step), expected, 1e-14);
  }
  EXPECT_EQ(optim::constant_schedule().factor(0), 1);
}

TEST(Schedule, AppliesToEveryGroup) {
  Tensor a = ones({1}), b = ones({1});
  optim::SGD optimizer({{.parameters = {{"a", a}}}, {.parameters = {{"b", b}}, .lr = 0.5}}, {.lr = 2});
  const auto schedule = optim::linear_schedule({.total_steps = 4});
  for (int64_t step = 0; step < 5; ++step) {
    schedule.apply(optimizer, step);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 2 * (1 - static_cast<double>(step) / 4));
    EXPECT_EQ(optimizer.param_groups()[1].lr, 0.5 * (1 - static_cast<double>(step) / 4));
  }
  optim::Schedule([](int64_t step) { return std::pow(0.5, static_cast<double>(step)); }).apply(optimizer, 3);
  EXPECT_EQ(optimizer.lr(), 0.25);
}

TEST(Schedule, NothingToDecayOverIsAnError) {
  for (const int64_t total : {int64_t{0}, int64_t{-1}, INT64_MIN})
    for (const std::string name : {"linear", "cosine"})
      test::expect_error([&] { optim::schedule_by_name(name, {.total_steps = total}); }, {"total_steps"});
  EXPECT_THROW(optim::linear_schedule({}), Error);
  EXPECT_THROW(optim::cosine_schedule({}), Error);
  EXPECT_THROW(optim::constant_schedule({.total_steps = -1}), Error);
  EXPECT_THROW(optim::constant_schedule({.warmup = 0.1}), Error);  // a fraction needs total_steps
  EXPECT_EQ(optim::constant_schedule({.warmup = 4}).factor(1), 0.25);
  for (const auto& schedule : {optim::linear_schedule({.total_steps = 1}), optim::cosine_schedule({.total_steps = 1})})
    EXPECT_EQ(schedule.factor(0), 1);
}

TEST(Schedule, EveryOptionIsChecked) {
  for (const std::string name : {"constant", "linear", "cosine"}) {
    const auto make = [&](double warmup, double min_ratio, double cycles) {
      return optim::schedule_by_name(name,
                                     {.total_steps = 10, .warmup = warmup, .min_ratio = min_ratio, .cycles = cycles});
    };
    EXPECT_THROW(make(0.5, 0.5, 0.5).factor(-1), Error) << name;  // the options are good, the step is not
    EXPECT_EQ(make(0.5, 0.5, 0.5).factor(5), 1) << name;
    for (const double bad : {-1.0, -1e-9, 1.5, 1e300, double{NAN}, double{INFINITY}, -double{INFINITY}})
      EXPECT_THROW(make(bad, 0, 0.5), Error) << name << " warmup " << bad;
    for (const double bad : {-0.1, 1.1, double{NAN}, double{INFINITY}})
      EXPECT_THROW(make(0, bad, 0.5), Error) << name << " min_ratio " << bad;
    for (const double bad : {-0.5, double{NAN}, double{INFINITY}})
      EXPECT_THROW(make(0, 0, bad), Error) << name << " cycles " << bad;
  }
  test::expect_error([] { optim::schedule_by_name("steps", {}); }, {"linear"});
}

TEST(Schedule, AWarmupLongerThanTheTrainingIsCutOff) {  // as Hugging Face does
  for (const std::string name : {"constant", "linear", "cosine"}) {
    const auto schedule = optim::schedule_by_name(name, {.total_steps = 10, .warmup = 40});
    for (int64_t step = 0; step < 10; ++step) EXPECT_EQ(schedule.factor(step), static_cast<double>(step) / 40);
  }
}

TEST(Schedule, PastTheEnd) {
  const auto linear = optim::linear_schedule({.total_steps = 12, .warmup = 2, .min_ratio = 0.25});
  const auto cosine = optim::cosine_schedule({.total_steps = 12, .warmup = 2, .min_ratio = 0.25});
  EXPECT_EQ(cosine.factor(12), 0.25);
  for (const int64_t step : {12, 13, 22, 1000}) EXPECT_EQ(linear.factor(step), 0.25);
  EXPECT_NEAR(cosine.factor(17), 0.625, 1e-12);  // half of the second rise
  EXPECT_NEAR(cosine.factor(22), 1, 1e-12);
  EXPECT_NEAR(cosine.factor(32), 0.25, 1e-12);
}

TEST(Schedule, AFunctionThatGivesNoRateIsAnError) {
  EXPECT_THROW(optim::Schedule({}), Error);
  for (const double bad : {-0.5, double{NAN}, double{INFINITY}})
    EXPECT_THROW(optim::Schedule([=](int64_t step) { return step == 3 ? bad : 1; }).factor(3), Error);
  optim::Schedule one = optim::linear_schedule({.total_steps = 4});
  const optim::Schedule two = std::move(one);
  EXPECT_EQ(one.factor(1), two.factor(1));  // NOLINT(bugprone-use-after-move): what is tested
}

/// Two groups with PyTorch's base rates.
struct TwoGroups {
  Tensor a = zeros({1}), b = zeros({1});
  optim::SGD optimizer{{{.parameters = {{"a", a}}, .lr = 0.3}, {.parameters = {{"b", b}}, .lr = 0.05}},
                       {.momentum = 0.9}};
};

/// make(group) for both groups.
template <class Make>
std::vector<optim::Schedule> for_groups(const Make& make) {
  return {make(0), make(1)};
}

/// Those of tests/golden/golden_schedules.py.
std::vector<std::pair<std::string, std::vector<optim::Schedule>>> torch_schedules() {
  using namespace optim;
  const double low[] = {0.01, 0.02}, high[] = {0.1, 0.3}, peak[] = {0.5, 0.1}, swa[] = {0.05, 0.2};
  const auto cyclic = [&](CyclicLROptions options) {
    return for_groups([&](int g) {
      options.base_lr = low[g];
      options.max_lr = high[g];
      return cyclic_lr(options);
    });
  };
  const auto one_cycle = [&](OneCycleLROptions options) {
    return for_groups([&](int g) {
      options.max_lr = peak[g];
      return one_cycle_lr(options);
    });
  };
  const auto average = [&](Anneal strategy) {
    return for_groups(
        [&](int g) { return swa_lr({.swa_lr = swa[g], .anneal_epochs = 50, .anneal_strategy = strategy}); });
  };
  return {
      {"step_lr", {step_lr({.step_size = 30, .gamma = 0.7})}},
      {"multi_step_lr", {multi_step_lr({.milestones = {400, 5, 80, 80}, .gamma = 0.5})}},
      {"exponential_lr", {exponential_lr(0.99)}},
      {"constant_lr", {constant_lr({.factor = 0.4, .total_iters = 100})}},
      {"linear_lr", {linear_lr({.start_factor = 0.25, .end_factor = 0.9, .total_iters = 300})}},
      {"polynomial_lr", {polynomial_lr({.total_iters = 700, .power = 1.7})}},
      {"cosine_annealing_lr", {cosine_annealing_lr({.t_max = 300, .eta_min = 0.01})}},
      {"cosine_annealing_lr_to_zero", {cosine_annealing_lr({.t_max = 1000})}},
      {"cosine_annealing_warm_restarts", {cosine_annealing_warm_restarts({.t_0 = 70, .eta_min = 0.001})}},
      {"cosine_annealing_warm_restarts_longer", {cosine_annealing_warm_restarts({.t_0 = 30, .t_mult = 2})}},
      {"one_cycle_lr", one_cycle({.total_steps = 1001})},
      {"one_cycle_lr_three_phase", one_cycle({.total_steps = 1000,
                                              .pct_start = 0.2,
                                              .anneal_strategy = Anneal::kLinear,
                                              .base_momentum = 0.8,
                                              .max_momentum = 0.9,
                                              .div_factor = 10,
                                              .final_div_factor = 1e3,
                                              .three_phase = true})},
      {"cyclic_lr", cyclic({.step_size_up = 70, .step_size_down = 30})},
      {"cyclic_lr_triangular2",
       cyclic({.step_size_up = 50, .mode = CyclicMode::kTriangular2, .cycle_momentum = false})},
      {"cyclic_lr_exp_range", cyclic({.step_size_up = 50,
                                      .mode = CyclicMode::kExpRange,
                                      .gamma = 0.999,
                                      .base_momentum = 0.5,
                                      .max_momentum = 0.7})},
      {"cyclic_lr_function",
       cyclic({.step_size_up = 50, .scale = [](double cycle) { return 1 / (cycle + 1); }, .cycle_momentum = false})},
      {"inverse_sqrt_schedule", {inverse_sqrt_schedule({.warmup = 40})}},
      {"inverse_sqrt_schedule_timescale", {inverse_sqrt_schedule({.warmup = 40, .timescale = 100})}},
      {"inverse_sqrt_schedule_no_warmup", {inverse_sqrt_schedule()}},
      {"swa_lr", average(Anneal::kCosine)},
      {"swa_lr_linear", average(Anneal::kLinear)},
      {"lambda_lr",
       {Schedule([](int64_t step) { return 1 / (1 + static_cast<double>(step)); }),
        Schedule([](int64_t step) { return 1 - static_cast<double>(step) / 2000; })}},
      {"chained_scheduler",
       {chained_scheduler({constant_lr({.factor = 0.5, .total_iters = 100}), exponential_lr(0.995),
                           step_lr({.step_size = 200, .gamma = 0.5})})}},
      {"sequential_lr",
       {sequential_lr({linear_lr({.start_factor = 0.1, .total_iters = 50}),
                       cosine_annealing_lr({.t_max = 400, .eta_min = 0.001}), exponential_lr(0.99)},
                      {50, 450})}},
  };
}

/// A thousand steps as PyTorch recorded them: the rates at some steps, their sums, and the momentum if it moves.
template <class Advance>
void expect_as_recorded(const nlohmann::json& torch, const nlohmann::json& expected, const optim::Optimizer& optimizer,
                        const Advance& advance) {
  size_t at = 0;
  double sum[2] = {}, squares[2] = {};
  for (int64_t step = 0; step < 1000; ++step) {
    if (step > 0) advance(step - 1);
    for (size_t g = 0; g < 2; ++g) {
      const double rate = optimizer.param_groups()[g].lr;
      sum[g] += rate;
      squares[g] += rate * rate;
      if (torch["steps"][at] != step) continue;
      EXPECT_NEAR(rate, expected["lr"][g][at].get<double>(), 1e-12 * 0.5) << step << " group " << g;
    }
    if (torch["steps"][at] != step) continue;
    if (!expected["momentum"].empty()) {
      EXPECT_NEAR(*optimizer.param_groups()[0].momentum, expected["momentum"][at].get<double>(), 1e-12) << step;
    }
    ++at;
  }
  EXPECT_EQ(at, torch["steps"].size());
  for (size_t g = 0; g < 2; ++g) {
    EXPECT_NEAR(sum[g], expected["sum"][g].get<double>(), 1e-12 * 500);
    EXPECT_NEAR(squares[g], expected["sum_of_squares"][g].get<double>(), 1e-12 * 500);
  }
}

TEST(Schedule, AThousandStepsAsPyTorch) {
  const nlohmann::json torch = golden("torch");
  const auto schedules = torch_schedules();
  ASSERT_EQ(torch["cases"].size(), schedules.size());
  for (size_t i = 0; i < schedules.size(); ++i) {
    const auto& [name, of_groups] = schedules[i];
    SCOPED_TRACE(name);
    ASSERT_EQ(torch["cases"][i]["name"], name);
    TwoGroups groups;
    optim::LRScheduler scheduler(groups.optimizer, of_groups);
    expect_as_recorded(torch, torch["cases"][i], groups.optimizer, [&](int64_t) { scheduler.step(); });
    EXPECT_EQ(scheduler.last_epoch(), 999);
    // A scheduler that continues from the state has the same rates at once; one step on, they are the same too.
    TwoGroups others;
    optim::LRScheduler resumed(others.optimizer, of_groups);
    const int64_t before = 998;
    StateView state = test::copy_of(scheduler.state_dict());
    find(state, "last_epoch").fill_(before);
    resumed.load_state_dict(state);
    resumed.step();
    EXPECT_EQ(resumed.get_last_lr(), scheduler.get_last_lr());
    EXPECT_EQ(others.optimizer.param_groups()[1].momentum, groups.optimizer.param_groups()[1].momentum);
  }
}

optim::ReduceLROnPlateauOptions plateau_options(const std::string& name) {
  using optim::PlateauMode, optim::ThresholdMode;
  if (name == "cooldown") return {.factor = 0.5, .patience = 3, .cooldown = 7, .min_lr = {0.01, 0.001}};
  if (name == "max") return {.mode = PlateauMode::kMax, .factor = 0.7, .patience = 2, .threshold = 0.05};
  if (name == "absolute")
    return {.factor = 0.9, .patience = 5, .threshold = 0.1, .threshold_mode = ThresholdMode::kAbsolute, .eps = 1e-3};
  if (name == "max_absolute")
    return {.mode = PlateauMode::kMax, .patience = 20, .threshold = 0.2, .threshold_mode = ThresholdMode::kAbsolute};
  return {};
}

TEST(ReduceLROnPlateau, AThousandMetricsAsPyTorch) {
  const auto metric = [](int64_t step) {
    return step == 40 ? NAN : static_cast<double>(step * 7919 % 1000) / 4000 + 100 / static_cast<double>(step + 10);
  };
  const nlohmann::json torch = golden("torch");
  ASSERT_EQ(torch["plateaus"].size(), 5u);
  for (const auto& expected : torch["plateaus"]) {
    SCOPED_TRACE(expected["name"]);
    TwoGroups groups, others;
    const optim::ReduceLROnPlateauOptions options = plateau_options(expected["name"]);
    optim::ReduceLROnPlateau plateau(groups.optimizer, options), resumed(others.optimizer, options);
    expect_as_recorded(torch, expected, groups.optimizer, [&](int64_t step) {
      if (step == 33) resumed.load_state_dict(test::copy_of(plateau.state_dict()));
      plateau.step(metric(step));
      if (step >= 33) resumed.step(metric(step));
    });
    EXPECT_EQ(test::values_of(resumed.state_dict()), test::values_of(plateau.state_dict()));
  }
}

TEST(ReduceLROnPlateau, BadOptionsAndStatesAreErrors) {
  TwoGroups groups;
  const auto make = [&](const optim::ReduceLROnPlateauOptions& options) {
    return optim::ReduceLROnPlateau(groups.optimizer, options);
  };
  test::expect_error([&] { make({.factor = 1}); }, {"factor must be in [0, 1), got 1"});
  test::expect_error([&] { make({.patience = -1}); }, {"patience", "-1"});
  test::expect_error([&] { make({.threshold = NAN}); }, {"threshold", "nan"});
  test::expect_error([&] { make({.min_lr = {1, 2, 3}}); }, {"min_lr", "2 groups", "got 3"});
  optim::ReduceLROnPlateau plateau = make({.patience = 0});
  plateau.step(1);
  plateau.step(2);
  const auto rates = plateau.get_last_lr();
  test::expect_error([&] { plateau.load_state_dict(make({.patience = 3}).state_dict()); },
                     {"patience is 3 in the state and 0 here"});
  test::expect_error([&] { plateau.load_state_dict({}); }, {"last_epoch", "best"});
  EXPECT_EQ(plateau.get_last_lr(), rates);
  EXPECT_EQ(plateau.last_epoch(), 2);
}

TEST(LRScheduler, StatesOfOthersAreErrors) {
  TwoGroups groups;
  optim::LRScheduler step(groups.optimizer, optim::step_lr({.step_size = 3}));
  step.step();
  const auto refuse = [&](const StateView& state, const std::vector<std::string>& parts) {
    test::expect_error([&] { step.load_state_dict(state); }, parts);
    EXPECT_EQ(step.last_epoch(), 1);
  };
  const auto state_of = [](optim::Optimizer& optimizer, const optim::Schedule& schedule) {
    return optim::LRScheduler(optimizer, schedule).state_dict();
  };
  TwoGroups same, other;
  other.optimizer.set_lr(0.7);
  Tensor w = zeros({1});
  optim::SGD single({{"w", w}}, {.lr = 0.3});
  refuse(state_of(same.optimizer, optim::exponential_lr(0.9)), {"exponential_lr", "step_lr"});
  refuse(state_of(same.optimizer, optim::step_lr({.step_size = 4})), {"step_lr's step_size is 4", "3 here"});
  refuse(state_of(same.optimizer, optim::step_lr({.step_size = 3, .gamma = 0.2})), {"gamma is 0.2", "0.1 here"});
  refuse(state_of(other.optimizer, optim::step_lr({.step_size = 3})), {"[0.7, 0.7]", "[0.3, 0.05]"});
  refuse(state_of(single, optim::step_lr({.step_size = 3})), {"base_lrs"});
  StateView negative = test::copy_of(step.state_dict());
  find(negative, "last_epoch").fill_(-2);
  refuse(negative, {"last_epoch", ">= 0", "-2"});
}

TEST(LRScheduler, OneScheduleIsForGroupsThatAreAddedToo) {
  TwoGroups groups;
  optim::LRScheduler all(groups.optimizer, optim::exponential_lr(0.5));
  Tensor c = zeros({1});
  groups.optimizer.add_param_group({.parameters = {{"c", c}}, .lr = 8.0});
  all.step();
  EXPECT_EQ(all.get_last_lr(), (std::vector<double>{0.15, 0.025, 4}));
  optim::LRScheduler(groups.optimizer, std::vector(3, optim::exponential_lr(0.5)));
  test::expect_error([&] { optim::LRScheduler(groups.optimizer, std::vector(2, optim::exponential_lr(0.5))); },
                     {"3 groups", "2 schedules"});
}

TEST(Schedule, BadOptionsOfPyTorchsAreErrors) {
  using namespace optim;
  const double nan = NAN;
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { step_lr({}); }, "step_lr: step_size must be at least 1, got 0"},
      {[=] { step_lr({.step_size = 1, .gamma = nan}); }, "step_lr: gamma must be"},
      {[] {
         multi_step_lr({.milestones = {3, -1}});
       },
       "multi_step_lr: a milestone must be at least 0, got -1"},
      {[] { exponential_lr(-1); }, "exponential_lr: gamma must be"},
      {[] { constant_lr({.factor = 1.5}); }, "constant_lr: factor must be in [0, 1], got 1.5"},
      {[] { linear_lr({.start_factor = 0}); }, "linear_lr: start_factor must be in (0, 1], got 0"},
      {[] { linear_lr({.total_iters = 0}); }, "linear_lr: total_iters must be at least 1"},
      {[=] { polynomial_lr({.power = nan}); }, "polynomial_lr: power must be"},
      {[] { cosine_annealing_lr({}); }, "cosine_annealing_lr: t_max must be at least 1"},
      {[] { cosine_annealing_lr({.t_max = 1, .eta_min = -1}); }, "eta_min must be"},
      {[] { cosine_annealing_warm_restarts({.t_0 = 1, .t_mult = 0}); }, "t_mult must be at least 1, got 0"},
      {[] { one_cycle_lr({.total_steps = 9}); }, "one_cycle_lr: max_lr must be a finite number > 0, got 0"},
      {[] { one_cycle_lr({.max_lr = 1, .total_steps = 9, .pct_start = 2}); }, "pct_start must be in [0, 1], got 2"},
      {[] { one_cycle_lr({.max_lr = 1, .total_steps = 9, .max_momentum = 1}); }, "max_momentum < 1"},
      {[] { one_cycle_lr({.max_lr = 1, .total_steps = 9}).rate(10, 1); }, "has 9 steps, got step 10"},
      {[] { cyclic_lr({.max_lr = 1, .step_size_up = 0}); }, "cyclic_lr: step_size_up must be at least 1"},
      {[] { cyclic_lr({.max_lr = 1, .base_momentum = 0.95}); }, "base_momentum <= max_momentum"},
      {[] { inverse_sqrt_schedule({.warmup = -1}); }, "warmup must be at least 0"},
      {[] { swa_lr({.swa_lr = -1}); }, "swa_lr must be"},
      {[] { chained_scheduler({}); }, "there are no schedules"},
      {[] { chained_scheduler({cosine_annealing_lr({.t_max = 3, .eta_min = 0.1})}); }, "gives rates"},
      {[] { cyclic_lr({.max_lr = 1}).factor(0); }, "cyclic_lr gives rates"},
      {[] { sequential_lr({exponential_lr(1)}, {3}); }, "expected one milestone less than schedules, got 1 for 1"},
      {[] {
         sequential_lr(std::vector(3, exponential_lr(1)), {3, 3});
       },
       "milestones must rise, got 3 after 3"},
      {[] {
         sequential_lr({exponential_lr(1), cyclic_lr({.max_lr = 1})}, {3});
       },
       "cycle the momentum"},
  };
  for (const auto& [make, message] : cases) test::expect_error(make, {message});
  const Schedule cycle = one_cycle_lr({.max_lr = 1, .total_steps = 9, .anneal_strategy = Anneal::kLinear});
  EXPECT_EQ(cycle.rate(9, 1), cycle.rate(8, 1));
  // A cycle of the momentum needs one, and then leaves the rates as they are.
  Tensor w = zeros({1});
  optim::SGD plain({{"w", w}}, {.lr = 0.3});
  test::expect_error([&] { LRScheduler(plain, one_cycle_lr({.max_lr = 1, .total_steps = 9})); }, {"sgd", "no state"});
  EXPECT_EQ(plain.lr(), 0.3);
}

}  // namespace
}  // namespace tern
