// Schedules against Hugging Face's numbers (tests/golden/schedules.json).

#include "tern/optim/schedule.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/optim/sgd.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"

namespace tern {
namespace {

TEST(Schedule, AsHuggingFace) {
  std::ifstream file(test::source_dir() + "/tests/golden/schedules.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
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
  test::expect_error([] { optim::schedule_by_name("step", {}); }, {"linear"});
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

}  // namespace
}  // namespace tern
