// Every --schedule: the rates of a run's steps by formulas in double, and runs that go on.

#include <cmath>
#include <functional>
#include <numbers>

#include "tern/optim/schedules/named_schedules.h"
#include "tern/tests/program/resume.h"

namespace tern::program {
namespace {

constexpr int kSteps = 20;
constexpr double kRate = 1e-3;

struct NamedCase {
  const char* name;
  Words options;
  std::function<double(double step)> factor;  // from 0
};

double rise(double step, double warmup) { return std::min(1.0, step / warmup); }
double half_cosine(double part) { return (1 + std::cos(std::numbers::pi * part)) / 2; }

std::vector<NamedCase> named_cases() {
  return {
      {"linear", "--warmup 4", [](double s) { return s < 4 ? s / 4 : (20 - s) / 16; }},
      {"cosine", "--warmup 0", [](double s) { return half_cosine(s / 20); }},
      {"constant", "--warmup 0.25", [](double s) { return rise(s, 5); }},
      {"step", "--warmup 4 --schedule-step 3", [](double s) { return rise(s, 4) * std::pow(0.1, std::floor(s / 3)); }},
      {"step", "--warmup 0 --schedule-step 0.24 --schedule-gamma 0.5",  // of 20 steps: 5
       [](double s) { return std::pow(0.5, std::floor(s / 5)); }},
      {"multi-step", "--warmup 2 --schedule-milestones 15,0.25 --schedule-gamma 0.25",
       [](double s) {
         return rise(s, 2) * (s < 5 ? 1 : s < 15 ? 0.25 : 0.0625);
       }},
      {"exponential", "--warmup 3 --schedule-gamma 0.9", [](double s) { return rise(s, 3) * std::pow(0.9, s); }},
      {"polynomial", "--warmup 4 --schedule-power 2",
       [](double s) { return s < 4 ? s / 4 : (20 - s) / 16 * (20 - s) / 16; }},
      {"polynomial", "--warmup 0", [](double s) { return 1 - s / 20; }},
      {"cosine-restarts", "--warmup 2 --schedule-period 3 --schedule-period-factor 2",
       [](double s) {
         return s < 2    ? s / 2
                : s < 5  ? half_cosine((s - 2) / 3)
                : s < 11 ? half_cosine((s - 5) / 6)
                         : half_cosine((s - 11) / 12);
       }},
      {"inverse-sqrt", "--warmup 4 --schedule-timescale 9",
       [](double s) { return s < 4 ? s / 4 : 1 / std::sqrt((s - 4 + 9) / 9); }},
      {"inverse-sqrt", "--warmup 0.2", [](double s) { return s < 4 ? s / 4 : 1 / std::sqrt(s / 4); }},
      // The first validation, after 17 steps, is the best so far.
      {"plateau", "--warmup 4 --schedule-patience 0", [](double s) { return rise(s, 4); }},
      {"one-cycle", "--schedule-rise 0.25",  // up in 0.25 * 20 - 1 steps, down in 15
       [](double s) {
         return s <= 4 ? 1 + (0.04 - 1) * half_cosine(s / 4)
                       : 0.04 / 1e4 + (1 - 0.04 / 1e4) * half_cosine((s - 4) / 15);
       }},
  };
}

class ScheduleProgramTest : public InterruptedRuns {
 protected:
  static Words run(const std::string& out, const NamedCase& c) {
    return arguments(out,
                     Words{"--keep", "9", "--max-steps", std::to_string(kSteps), "--schedule", c.name} + c.options);
  }
};

TEST_F(ScheduleProgramTest, TheRatesOfARun) {
  std::vector<std::string> tried;
  for (const NamedCase& c : named_cases()) {
    SCOPED_TRACE(testing::PrintToString(c.options));
    const std::string out = "run" + std::to_string(tried.size());
    tried.push_back(c.name);
    succeeds(run(out, c));
    const std::vector<Json> lines = steps(out);
    ASSERT_EQ(lines.size(), size_t{kSteps}) << c.name;
    for (size_t i = 0; i < lines.size(); ++i)
      EXPECT_NEAR(lines[i].at("lr").get<double>(), kRate * c.factor(static_cast<double>(i)), kRate * 1e-12)
          << c.name << " " << i;
  }
  for (const std::string& name : optim::schedule_names())
    EXPECT_NE(std::find(tried.begin(), tried.end(), name), tried.end()) << name;
}

/// A run goes on from its middle with the recorded schedule, and with no other.
TEST_F(ScheduleProgramTest, AResumedRunKeepsIt) {
  const std::vector<NamedCase> cases = named_cases();
  const NamedCase& c = cases[random_() % cases.size()];
  SCOPED_TRACE(c.name + testing::PrintToString(c.options));
  succeeds(run("whole", c));
  copy("whole", "again");
  succeeds(resume("again/checkpoints/step-00000010"));
  expect_same("again", "whole");

  const NamedCase step{"step", "--schedule-step 6 --schedule-gamma 0.5", {}};
  succeeds(run("falls", step));
  const auto refused = [&](const Words& more, const std::string& difference) {
    const Words words = with_defaults("--schedule-step 6 --schedule-gamma 0.5", more);
    const Words again = with_defaults("--schedule step", words);
    expect_error(tern(arguments("falls", Words("--max-steps 20 --resume falls") + again)), 1, {difference});
  };
  refused("--schedule-step 7", "--schedule-step was 6.0 and is 7.0");
  refused("--schedule-gamma 0.25", "--schedule-gamma was 0.5 and is 0.25");
  expect_error(tern(arguments("falls", "--max-steps 20 --resume falls --schedule multi-step --schedule-milestones 6")),
               1, {"--schedule was step and is multi-step", "--schedule-milestones was not given and is 6"});
}

/// --patience ends a run, and one that goes on ends with it, from wherever it was cut.
TEST_F(ScheduleProgramTest, PatienceEndsARun) {
  const Words options = "--patience 1 --min-delta 0.001 --lr 2e-3 --keep 99";
  const Result result = succeeds(arguments("whole", options));
  std::vector<double> validated;
  for (const Json& line : metrics("whole"))
    if (line.contains("val_accuracy")) validated.push_back(line["val_accuracy"].get<double>());
  size_t ends = 1;
  for (double best = validated[0]; ends < validated.size() && validated[ends] > best + 0.001; ++ends)
    best = validated[ends];
  ASSERT_LT(ends, size_t{5}) << "the metric rises in every epoch: the test needs another run";
  EXPECT_EQ(validated.size(), ends + 1);
  EXPECT_EQ(metrics("whole").back()["stopped_early"], true);
  EXPECT_TRUE(has(result.err, "stopped early: no better accuracy in 1 validation; the best was that of epoch "));
  for (const std::string& name : checkpoints("whole")) {
    SCOPED_TRACE(name);
    fs::remove_all(file("again"));
    copy("whole", "again");
    succeeds(resume("again/checkpoints/" + name));
    expect_same("again", "whole");
  }
  succeeds(arguments("long", "--patience 6"));
  EXPECT_EQ(metrics("long").back()["stopped_early"], false);
  expect_error(tern(arguments("none", "--patience 1 --split all")), 1, {"--patience", "no rows are validated on"});
  expect_error(tern("train distilbert --min-delta 0.1"), 2, {"--min-delta requires --patience"});
}

/// The rate falls after each validation whose accuracy is not the best so far, and wherever the run is cut.
TEST_F(ScheduleProgramTest, PlateauFollowsTheValidations) {
  const Words options = "--schedule plateau --schedule-patience 0 --schedule-gamma 0.5 --warmup 0 --keep 99";
  succeeds(arguments("whole", options));
  double rate = kRate, best = -1;
  int falls = 0;
  for (const Json& line : metrics("whole")) {
    if (line.contains("lr")) {
      EXPECT_NEAR(line["lr"].get<double>(), rate, 1e-15) << line;
    }
    if (!line.contains("val_accuracy")) continue;
    const double now = line["val_accuracy"].get<double>();
    if (now > best + 1e-4)
      best = now;
    else
      rate *= 0.5, ++falls;
  }
  EXPECT_GE(falls, 2);
  for (const std::string& name : checkpoints("whole")) {
    SCOPED_TRACE(name);
    fs::remove_all(file("again"));
    copy("whole", "again");
    succeeds(resume("again/checkpoints/" + name));
    expect_same("again", "whole");
  }
  expect_error(tern(arguments("none", "--schedule plateau --split all")), 1, {"no rows are validated on", "--split"});
  expect_error(tern("train distilbert --schedule plateau --schedule-gamma 1"), 2, {"--schedule-gamma", "below 1"});
  expect_error(tern("train distilbert --schedule-patience 2"), 2, {"--schedule-patience is for --schedule plateau"});
}

}  // namespace
}  // namespace tern::program
