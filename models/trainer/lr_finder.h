#pragma once
// The learning rate range test (Smith, "Cyclical Learning Rates for Training Neural Networks", arXiv:1506.01186), as
// Lightning's Tuner.lr_find and fastai's lr_find make it. They suggest the rate of the steepest fall between
// neighbouring steps of the average, which for noisy losses is chance; here the fall is that of a line through several
// losses.

#include <optional>
#include <vector>

#include "tern/models/trainer/trainer.h"

namespace tern::models {

struct LrFinderOptions {
  double lowest = 1e-7, highest = 1;  // the rate rises exponentially from one to the other
  int64_t steps = 100;                // or as many as the task has
  double smoothing = 0.9;             // decay of the loss's moving average, corrected for its start
  double divergence = 4;              // the test ends when the average is so many times its least value
};

struct LrFinding {
  std::vector<double> rates, losses, smoothed;  // of each step, as long as the loss was finite
  bool diverged = false;
  bool interrupted = false;               // by TrainOptions::should_stop
  std::optional<double> suggestion = {};  // suggested_lr()
};

/// Trains by `options` with its own schedule, without validation and checkpoints. The module is afterwards as before.
/// With several processes all of them call it. Throws Error when the options are out of range.
LrFinding find_lr(TrainingTask& task, const TrainOptions& options, const LrFinderOptions& finder = {});

/// Fewer steps suggest nothing.
inline constexpr size_t kLeastLrFinderSteps = 18;

/// The rate at which the loss falls most: the slope of the line through a sixth of the steps around each (least
/// squares), the first 10 steps and those behind the least smoothed loss left out. Nothing if the slope is not below 0
/// by three of its standard errors, or with fewer steps than kLeastLrFinderSteps.
std::optional<double> suggested_lr(const std::vector<double>& rates, const std::vector<double>& losses,
                                   const std::vector<double>& smoothed);

}  // namespace tern::models
