#include "tern/models/trainer/lr_finder.h"

#include <algorithm>
#include <cmath>

#include "tern/dist/loop/accumulation.h"
#include "tern/kernels/base/check.h"
#include "tern/models/trainer/snapshot.h"

namespace tern::models {
namespace {

/// Keeps the losses, and knows when they diverge.
class LossCurve final : public TrainObserver {
 public:
  LossCurve(const LrFinderOptions& options, LrFinding& finding) : options_(options), finding_(finding) {}
  void on_step(const StepMetrics& m) override {
    if (finding_.diverged) return;  // steps that were queued already
    finding_.diverged = !std::isfinite(m.loss);
    if (finding_.diverged) return;
    average_ = options_.smoothing * average_ + (1 - options_.smoothing) * m.loss;
    const double steps = static_cast<double>(finding_.losses.size() + 1);
    const double smoothed = average_ / (1 - std::pow(options_.smoothing, steps));
    finding_.rates.push_back(m.lr);
    finding_.losses.push_back(m.loss);
    finding_.smoothed.push_back(smoothed);
    if (steps == 1 || smoothed < least_) least_ = smoothed;
    finding_.diverged = smoothed > options_.divergence * least_;
  }

 private:
  const LrFinderOptions& options_;
  LrFinding& finding_;
  double average_ = 0, least_ = 0;
};

int64_t steps_of_test(const TrainingTask& task, const TrainOptions& options, int64_t wanted) {
  const int64_t ranks = options.parallel ? options.parallel->group()->size() : 1;
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < task.epochs() && steps < wanted; ++epoch)
    steps += dist::StepPlan{task.steps(epoch), options.accumulate, ranks}.steps();
  return std::min(steps, wanted);
}

/// The slope of the line through values[first .. last], and its standard error.
struct Slope {
  double value = 0, error = 0;
};
Slope slope_of(const std::vector<double>& values, size_t first, size_t last) {
  const double n = static_cast<double>(last - first + 1), middle = static_cast<double>(first + last) / 2;
  double mean = 0, xx = 0, xy = 0, residuals = 0;
  for (size_t i = first; i <= last; ++i) mean += values[i] / n;
  for (size_t i = first; i <= last; ++i) {
    const double x = static_cast<double>(i) - middle;
    xx += x * x;
    xy += x * (values[i] - mean);
  }
  for (size_t i = first; i <= last; ++i) {
    const double rest = values[i] - mean - xy / xx * (static_cast<double>(i) - middle);
    residuals += rest * rest;
  }
  return {xy / xx, std::sqrt(residuals / (n - 2) / xx)};
}

}  // namespace

LrFinding find_lr(TrainingTask& task, const TrainOptions& options, const LrFinderOptions& finder) {
  TERN_CHECK(finder.lowest > 0 && finder.highest > finder.lowest && finder.steps >= 2 && finder.smoothing >= 0 &&
                 finder.smoothing < 1 && finder.divergence > 1,
             "find_lr: expected 0 < lowest < highest, 2 steps or more, a smoothing from 0 to below 1 and a divergence "
             "above 1, got ",
             finder.lowest, ", ", finder.highest, ", ", finder.steps, ", ", finder.smoothing, ", ", finder.divergence);
  LrFinding finding;
  LossCurve curve(finder, finding);
  const int64_t steps = steps_of_test(task, options, finder.steps);
  TrainOptions trial = options;
  trial.lr = finder.highest;
  trial.rate_factor = [finder, steps](int64_t step) {
    const double part = static_cast<double>(steps - 1 - step) / static_cast<double>(std::max<int64_t>(steps - 1, 1));
    return std::pow(finder.lowest / finder.highest, part);
  };
  trial.ema = 0;
  trial.max_steps = steps;
  trial.patience = 0;
  trial.validate = false;
  trial.explain_non_finite = false;
  trial.checkpoints = nullptr;
  trial.resume = nullptr;
  trial.should_stop = [&] { return finding.diverged || (options.should_stop && options.should_stop()); };
  ModuleState before(task.module());
  const TrainResult result = train(task, trial, curve);
  before.restore();
  finding.interrupted = result.stopped && !finding.diverged;
  finding.suggestion = suggested_lr(finding.rates, finding.losses, finding.smoothed);
  return finding;
}

std::optional<double> suggested_lr(const std::vector<double>& rates, const std::vector<double>& losses,
                                   const std::vector<double>& smoothed) {
  constexpr size_t kFirst = 10;
  const size_t n = losses.size(), half = std::max<size_t>(2, n / 12);
  if (n < kLeastLrFinderSteps) return std::nullopt;
  const auto end = static_cast<size_t>(std::min_element(smoothed.begin() + kFirst, smoothed.end()) - smoothed.begin());
  std::optional<double> rate;
  double steepest = 0;
  for (size_t i = kFirst; i <= end; ++i) {
    const Slope slope = slope_of(losses, std::max(i, half) - half, std::min(i + half, n - 1));
    if (slope.value >= steepest || slope.value > -3 * slope.error) continue;
    steepest = slope.value;
    rate = rates[i];
  }
  return rate;
}

}  // namespace tern::models
