// Schedules by name: formulas in double with random options, and what is refused. PyTorch's numbers for the formulas
// are in schedule_test.cpp.

#include "tern/optim/schedules/named_schedules.h"

#include <cmath>
#include <numbers>

#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"

namespace tern {
namespace {

using optim::schedule_by_name;
using optim::ScheduleParameters;

double half_cosine(double part) { return (1 + std::cos(std::numbers::pi * part)) / 2; }

class NamedSchedules : public testing::Test {
 protected:
  int64_t whole(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  double real(double least, double most) { return std::uniform_real_distribution<double>(least, most)(random_); }
  /// Compares with expected(step) in all steps of the training.
  template <class Expected>
  void expect_factors(const char* name, const ScheduleParameters& parameters, const Expected& expected) {
    const optim::Schedule schedule =
        schedule_by_name(name, {.total_steps = total_, .warmup = static_cast<double>(warmup_)}, parameters);
    ASSERT_TRUE(schedule.has_factor());
    for (int64_t step = 0; step < total_; ++step)
      ASSERT_NEAR(schedule.factor(step), expected(step), 1e-12) << name << " step " << step << " of " << total_;
  }
  double rise(int64_t step) const {
    return step < warmup_ ? static_cast<double>(step) / static_cast<double>(warmup_) : 1;
  }

  std::mt19937_64 random_ = fresh_random();
  int64_t total_ = whole(30, 300), warmup_ = whole(0, 20);
};

TEST_F(NamedSchedules, ThoseThatCountAllSteps) {
  for (int round = 0; round < 20; ++round, total_ = whole(30, 300), warmup_ = whole(0, 20)) {
    const double gamma = real(0, 1);
    const int64_t size = whole(1, 100), a = whole(1, 100), b = whole(1, 100);
    expect_factors("step", {.gamma = gamma, .step_size = static_cast<double>(size)}, [&](int64_t step) {
      double factor = rise(step);
      for (int64_t fall = size; fall <= step; fall += size) factor *= gamma;
      return factor;
    });
    expect_factors("multi-step", {.milestones = {static_cast<double>(a), static_cast<double>(b)}},
                   [&](int64_t step) { return rise(step) * (step >= a ? 0.1 : 1) * (step >= b ? 0.1 : 1); });
    expect_factors("exponential", {.gamma = gamma}, [&](int64_t step) {
      double factor = rise(step);
      for (int64_t i = 0; i < step; ++i) factor *= gamma;
      return factor;
    });
  }
}

TEST_F(NamedSchedules, ThoseThatBeginAfterTheWarmup) {
  for (int round = 0; round < 20; ++round, total_ = whole(30, 300), warmup_ = whole(0, 20)) {
    const double power = real(0, 3);
    const auto after = [&](int64_t step) { return static_cast<double>(step - warmup_); };
    expect_factors("polynomial", {.power = power}, [&](int64_t step) {
      return step < warmup_ ? rise(step) : std::pow(1 - after(step) / after(total_), power);
    });
    const int64_t period = whole(1, 50), times = whole(1, 3), scale = whole(1, 50);
    expect_factors("cosine-restarts", {.period = static_cast<double>(period), .period_factor = times},
                   [&](int64_t step) {
                     if (step < warmup_) return rise(step);
                     int64_t done = step - warmup_, length = period;
                     for (; done >= length; length *= times) done -= length;
                     return half_cosine(static_cast<double>(done) / static_cast<double>(length));
                   });
    expect_factors("plateau", {}, [&](int64_t step) { return step < warmup_ ? rise(step) : 1.0; });
    expect_factors("inverse-sqrt", {.timescale = static_cast<double>(scale)}, [&](int64_t step) {
      return step < warmup_ ? rise(step) : std::sqrt(static_cast<double>(scale) / (after(step) + scale));
    });
  }
}

TEST_F(NamedSchedules, OneCycleRisesAndFalls) {
  warmup_ = 0;
  for (const double part : {0.3, 0.5}) {
    const double top = part * static_cast<double>(total_) - 1, last = static_cast<double>(total_ - 1);
    expect_factors("one-cycle", {.rise = part}, [&](int64_t step) {
      const auto at = static_cast<double>(step);
      return at <= top ? 1 - 0.96 * half_cosine(at / top) : 4e-6 + (1 - 4e-6) * half_cosine((at - top) / (last - top));
    });
  }
  EXPECT_FALSE(schedule_by_name("one-cycle", {.total_steps = 9}).momentum(0).has_value());
}

/// Fractions are of all steps, and rounded up.
TEST_F(NamedSchedules, Fractions) {
  const auto equal = [](const char* name, const ScheduleParameters& one, const ScheduleParameters& two) {
    const optim::Schedule a = schedule_by_name(name, {.total_steps = 101, .warmup = 0.05}, one);
    const optim::Schedule b = schedule_by_name(name, {.total_steps = 101, .warmup = 6}, two);
    for (int64_t step = 0; step < 101; ++step) EXPECT_EQ(a.factor(step), b.factor(step)) << name << " " << step;
  };
  equal("step", {.step_size = 0.25}, {.step_size = 26});
  equal("multi-step", {.milestones = {0.5, 70}}, {.milestones = {70, 51}});
  equal("cosine-restarts", {.period = 0.1}, {.period = 11});
  equal("inverse-sqrt", {.timescale = 0.1}, {.timescale = 11});
  equal("inverse-sqrt", {}, {.timescale = 6});
}

TEST(NamedSchedulesErrors, NameTheOption) {
  const auto refused = [](const char* name, const ScheduleParameters& parameters, const char* part,
                          const optim::ScheduleOptions& options = {.total_steps = 10}) {
    SCOPED_TRACE(std::string(name) + ": " + part);
    test::expect_error([&] { schedule_by_name(name, options, parameters); }, {part});
  };
  refused("steps", {}, "known: linear, cosine, constant, step, multi-step, ");
  refused("step", {}, "step's step_size must be given");
  refused("step", {.step_size = 1.5},
          "step's step_size must be a whole number of steps or a fraction in [0, 1), got 1.5");
  refused("step", {.step_size = NAN}, "step's step_size");
  refused("step", {.gamma = 1.5, .step_size = 2}, "gamma must be in [0, 1], got 1.5");
  refused("multi-step", {}, "multi-step needs milestones");
  refused("multi-step", {.milestones = {3, -1}}, "multi-step's milestone");
  refused("multi-step", {.milestones = {0}}, "multi-step's milestone must be given");
  refused("exponential", {}, "exponential needs a gamma");
  refused("polynomial", {.power = -1}, "power must be");
  refused("polynomial", {}, "polynomial spans total_steps", {});
  refused("cosine-restarts", {}, "cosine-restarts' period must be given");
  refused("cosine-restarts", {.period = 3, .period_factor = 0}, "period_factor must be at least 1, got 0");
  refused("inverse-sqrt", {.timescale = -2}, "inverse-sqrt's timescale");
  refused("inverse-sqrt", {.timescale = 0.5}, "is a fraction of total_steps, which is 0", {});
  refused("plateau", {.gamma = 1}, "plateau's gamma must be in [0, 1), got 1");
  refused("plateau", {.patience = -1}, "plateau's patience must be >= 0, got -1");
  refused("one-cycle", {.rise = 1.5}, "rise must be in [0, 1], got 1.5");
  refused("one-cycle", {}, "warmup = 0, got 0.1", {.total_steps = 10, .warmup = 0.1});
  for (const std::string& name : optim::schedule_names())
    if (name != "linear" && name != "cosine" && name != "constant")
      refused(name.c_str(), {.gamma = 0.5, .step_size = 1, .milestones = {1}, .period = 1},
              "min_ratio and cycles are for", {.total_steps = 10, .min_ratio = 0.5});
}

}  // namespace
}  // namespace tern
