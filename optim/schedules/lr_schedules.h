#pragma once
// The schedules of torch.optim.lr_scheduler as functions of the step, with PyTorch's names, formulas and defaults, and
// Hugging Face's inverse square root. PyTorch computes most of them from the rate before, which adds up rounding
// errors; the rates agree to some 1e-13 of the base rate over a thousand steps. All throw Error on options out of
// range.

#include "tern/optim/schedules/schedule.h"

namespace tern::optim {

struct StepLROptions {
  int64_t step_size = 0;  // at least 1
  double gamma = 0.1;
};
/// gamma ^ (step / step_size, rounded down)
Schedule step_lr(const StepLROptions& options);

struct MultiStepLROptions {
  std::vector<int64_t> milestones = {};  // in any order; one that is given twice counts twice
  double gamma = 0.1;
};
/// gamma ^ (number of milestones that are <= step)
Schedule multi_step_lr(const MultiStepLROptions& options);

/// gamma ^ step
Schedule exponential_lr(double gamma);

struct ConstantLROptions {
  double factor = 1.0 / 3;  // in [0, 1]
  int64_t total_iters = 5;
};
/// The factor before step total_iters, 1 from there on.
Schedule constant_lr(const ConstantLROptions& options = {});

struct LinearLROptions {
  double start_factor = 1.0 / 3, end_factor = 1;  // in (0, 1] and [0, 1]
  int64_t total_iters = 5;
};
/// From start_factor to end_factor along a line of total_iters steps.
Schedule linear_lr(const LinearLROptions& options = {});

struct PolynomialLROptions {
  int64_t total_iters = 5;
  double power = 1;
};
/// (1 - step / total_iters) ^ power, and 0 from step total_iters on.
Schedule polynomial_lr(const PolynomialLROptions& options = {});

struct CosineAnnealingLROptions {
  int64_t t_max = 0;   // at least 1: steps from the base rate to eta_min; then the cosine rises again
  double eta_min = 0;  // a rate
};
/// Loshchilov & Hutter, arXiv:1608.03983, without restarts; a factor if eta_min is 0.
Schedule cosine_annealing_lr(const CosineAnnealingLROptions& options);

struct CosineAnnealingWarmRestartsOptions {
  int64_t t_0 = 0;     // at least 1: steps of the first period
  int64_t t_mult = 1;  // at least 1: how many times as long the next one is
  double eta_min = 0;  // a rate
};
/// Loshchilov & Hutter, arXiv:1608.03983: half a cosine from the base rate to eta_min in every period.
Schedule cosine_annealing_warm_restarts(const CosineAnnealingWarmRestartsOptions& options);

enum class Anneal { kCosine, kLinear };

struct OneCycleLROptions {
  double max_lr = 0;        // > 0; the base rate is not looked at
  int64_t total_steps = 0;  // at least 1
  double pct_start = 0.3;   // the rise's part of the steps, in [0, 1]
  Anneal anneal_strategy = Anneal::kCosine;
  bool cycle_momentum = true;  // momentum, or beta1, falls while the rate rises; the optimizer needs one > 0
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         // the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  // the last one is the first / final_div_factor
  bool three_phase = false;       // down to the first rate in as many steps as up, then on to the last one
};
/// Smith & Topin, arXiv:1708.07120. Step total_steps, which a scheduler reaches after the last update, has the last
/// rate (PyTorch extrapolates, even to negative rates). Later ones are an Error.
Schedule one_cycle_lr(const OneCycleLROptions& options);

enum class CyclicMode { kTriangular, kTriangular2, kExpRange };

struct CyclicLROptions {
  double base_lr = 0, max_lr = 0;  // the optimizer's base rate is not looked at
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;  // 0: as up
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1;  // kExpRange: the amplitude is gamma ^ step of the first
  /// If given, the amplitude as a part of the first, of the cycle (from 1) or with scale_by_step of the step; `mode` is
  /// not looked at then.
  std::function<double(double)> scale = nullptr;
  bool scale_by_step = false;
  bool cycle_momentum = true;  // as OneCycleLROptions
  double base_momentum = 0.8, max_momentum = 0.9;
};
/// Smith, arXiv:1506.01186: up and down between two rates; kTriangular2 halves the amplitude in every cycle.
Schedule cyclic_lr(const CyclicLROptions& options);

struct InverseSqrtOptions {
  int64_t warmup = 0;     // steps from 0 to the base rate
  int64_t timescale = 0;  // 0: warmup, or 10,000 without one
};
/// get_inverse_sqrt_schedule of transformers: after the warmup 1 / sqrt((step - warmup + timescale) / timescale).
Schedule inverse_sqrt_schedule(const InverseSqrtOptions& options = {});

struct SWALROptions {
  double swa_lr = 0;  // the rate at the end
  int64_t anneal_epochs = 10;
  Anneal anneal_strategy = Anneal::kCosine;
};
/// torch.optim.swa_utils.SWALR, from the base rate: to start from the current one, optimizer.set_lr(optimizer.lr()).
Schedule swa_lr(const SWALROptions& options);

/// The product of the factors, as ChainedScheduler. Throws Error for a schedule that gives rates, as those with rates
/// among their options do.
Schedule chained_scheduler(const std::vector<Schedule>& schedules);

/// SequentialLR: schedule k from step milestones[k - 1] on, where its own step 0 is. Milestones rise; there is one less
/// than schedules.
Schedule sequential_lr(const std::vector<Schedule>& schedules, const std::vector<int64_t>& milestones);

}  // namespace tern::optim
