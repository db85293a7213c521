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
// The check, unscaling, clipping and the update are one pass over the parameters; whether to skip is decided on the
// device, and nothing waits for it.

#include <map>
#include <optional>

#include "tern/kernels/loss_scale.h"
#include "tern/optim/optimizer.h"

namespace tern::optim {

struct GradScalerOptions {
  bool enabled = true;  // false: every call does what it would do without a scaler
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;       // sound updates in a row before the scale grows
  int64_t hysteresis = 1;               // overflows before it falls
  bool consecutive_hysteresis = false;  // count overflows afresh after every sound update
  double min_scale = 0;                 // the scale does not fall below
  bool error_at_min_scale = false;      // an overflow that finds the scale at min_scale is an error
  int64_t max_skipped_in_row = 40;      // more updates than this without a sound one: an error

  /// DeepSpeed's dynamic scaler by its defaults: grows after 1,000 updates, tolerates one overflow, and ends with an
  /// error when it would have to go below 1.
  static GradScalerOptions deepspeed() {
    return {.growth_interval = 1000, .hysteresis = 2, .min_scale = 1, .error_at_min_scale = true};
  }
};

class GradScaler {
 public:
  /// Throws Error on options that cannot work: growth_factor <= 1, backoff_factor outside (0, 1), counts below 1...
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss * scale. The first call decides the device.
  Tensor scale(const Tensor& loss);
  /// Divides the optimizer's gradients in memory by the scale, for code that looks at them, or changes them, before
  /// step(). A gradient that is not finite now leaves that step out, whatever becomes of it. Throws Error for 16-bit
  /// gradients (step() unscales those on the fly), a second call, or a call after step().
  void unscale(Optimizer& optimizer);
  /// The next step() clips to this norm of the unscaled gradients. Gradients in memory stay as they are.
  void clip_grad_norm(Optimizer& optimizer, double max_norm);
  /// One update, skipped on the device when a gradient is not finite. grad_norm() of the result is of the unscaled
  /// gradients. Throws Error when called twice since update(), or when no parameter has a gradient.
  StepResult step(Optimizer& optimizer);
  /// Adapts the scale to what the steps and unscale() found since the last update. Throws Error when there was none of
  /// them, and check()'s error on the CPU; on CUDA nothing waits for the device, so call check() now and then.
  void update();
  /// Throws Error after more than max_skipped_in_row skipped updates, and by error_at_min_scale. Waits for the device.
  void check() const;

  bool enabled() const { return options_.enabled; }
  /// The numbers as they stand; reading them waits for the device.
  double current_scale() const { return read().scale; }
  int64_t skipped() const { return read().skipped; }

  /// PyTorch's keys (scale, growth_factor, backoff_factor, growth_interval, _growth_tracker) and our counters
  /// (_tolerated, _skipped_in_row, _skipped); empty when disabled.
  StateView state_dict() const;
  /// Takes PyTorch's five entries alone too; our counters then start afresh. Throws Error, and changes nothing, on
  /// missing or unexpected entries and on values that cannot be.
  void load_state_dict(const StateView& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    double max_norm = 0;
    Tensor unscaled_norm = {};  // of the gradients as unscale() found them
  };

  void start(Device device);
  /// Remembers in the state whether the norm saw an infinity or NaN.
  void note(const Tensor& norm);
  kernels::LossScale* state() const { return static_cast<kernels::LossScale*>(state_.raw_data()); }
  kernels::LossScale read() const;
  void write(const kernels::LossScale& value, Device device);

  GradScalerOptions options_;
  kernels::LossScalePolicy policy_;
  Tensor state_;                               // the bytes of a kernels::LossScale; undefined before the first scale()
  std::optional<kernels::LossScale> initial_;  // until then
  std::map<const Optimizer*, PerOptimizer> optimizers_;
};

}  // namespace tern::optim
