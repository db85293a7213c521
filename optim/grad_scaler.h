#pragma once
// The loss scaler for fp16 training, with torch.amp.GradScaler's rules.
//
//   optim::GradScaler scaler({.enabled = low == float16});
//   scaler.scale(loss).backward();
//   scaler.clip_grad_norm(optimizer, 1.0);
//   scaler.step(optimizer);                 // left out when a gradient is not finite
//   scaler.update();
//   optimizer.zero_grad();
//
// The check, unscaling, clipping and the update are one pass over the parameters; the device decides whether to skip,
// without waiting.

#include <map>
#include <optional>

#include "tern/kernels/optimizer/loss_scale.h"
#include "tern/optim/optimizer.h"

namespace tern::optim {

struct GradScalerOptions {
  bool enabled = true;  // false: every call behaves as without a scaler
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;       // finite updates in a row before the scale grows
  int64_t hysteresis = 1;               // overflows before it falls
  bool consecutive_hysteresis = false;  // restart the count of overflows after every finite update
  double min_scale = 0;                 // lower bound of the scale
  bool error_at_min_scale = false;      // an overflow at min_scale is an error
  int64_t max_skipped_in_row = 40;      // more skipped updates in a row are an error

  /// The defaults of DeepSpeed's dynamic scaler: grows after 1,000 updates, tolerates one overflow, and throws when the
  /// scale would fall below 1.
  static GradScalerOptions deepspeed() {
    return {.growth_interval = 1000, .hysteresis = 2, .min_scale = 1, .error_at_min_scale = true};
  }
};

class GradScaler {
 public:
  /// Throws Error on invalid options: growth_factor <= 1, backoff_factor outside (0, 1), counts below 1...
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Returns loss * scale. The first call determines the device.
  Tensor scale(const Tensor& loss);
  /// Divides the optimizer's gradients in memory by the scale, for code that reads or changes them before step(). If a
  /// gradient is not finite now, that step is skipped even if the gradient is changed later. Throws Error for 16-bit
  /// gradients (step() unscales those on the fly), a second call, or a call after step().
  void unscale(Optimizer& optimizer);
  /// The next step() clips to this norm of the unscaled gradients. Gradients in memory are not changed.
  void clip_grad_norm(Optimizer& optimizer, double max_norm);
  /// One update, skipped on the device when a gradient is not finite. The result's grad_norm() is that of the unscaled
  /// gradients. Throws Error on a second call before update(), or when no parameter has a gradient.
  StepResult step(Optimizer& optimizer);
  /// Adapts the scale to the results of step() and unscale() since the last update. Throws Error without such calls,
  /// and on the CPU also check()'s error; on CUDA it does not wait for the device, so call check() regularly.
  void update();
  /// Throws Error after more than max_skipped_in_row skipped updates, and for error_at_min_scale. Waits for the device.
  void check() const;

  bool enabled() const { return options_.enabled; }
  /// The current values; reading them waits for the device.
  double current_scale() const { return read().scale; }
  int64_t skipped() const { return read().skipped; }

  /// PyTorch's keys (scale, growth_factor, backoff_factor, growth_interval, _growth_tracker) and Tern's counters
  /// (_tolerated, _skipped_in_row, _skipped); empty when disabled.
  StateView state_dict() const;
  /// Accepts PyTorch's five entries alone too; Tern's counters are then reset. Throws Error, and changes nothing, on
  /// missing or unexpected entries and on invalid values.
  void load_state_dict(const StateView& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    double max_norm = 0;
    Tensor unscaled_norm = {};  // of the gradients at the time of unscale()
  };

  void start(Device device);
  /// Records in the state whether the norm contains an infinity or NaN.
  void note(const Tensor& norm);
  kernels::LossScale* state() const { return static_cast<kernels::LossScale*>(state_.raw_data()); }
  kernels::LossScale read() const;
  void write(const kernels::LossScale& value, Device device);

  GradScalerOptions options_;
  kernels::LossScalePolicy policy_;
  Tensor state_;                               // the bytes of a kernels::LossScale; undefined before the first scale()
  std::optional<kernels::LossScale> initial_;  // until the first scale()
  std::map<const Optimizer*, PerOptimizer> optimizers_;
};

}  // namespace tern::optim
