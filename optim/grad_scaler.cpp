#include "tern/optim/grad_scaler.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/optim/gradient_norm.h"

namespace tern::optim {
namespace {

constexpr int64_t kStateWords = (sizeof(kernels::LossScale) + sizeof(float) - 1) / sizeof(float);
constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

void check_options(const GradScalerOptions& o) {
  const auto positive = [](double value) { return value > 0 && value <= std::numeric_limits<float>::max(); };
  const auto count = [](int64_t value) { return value >= 1 && value <= kMaxCount; };
  TERN_CHECK(positive(o.init_scale), "grad scaler: init_scale must be a positive number, got ", o.init_scale);
  TERN_CHECK(o.growth_factor > 1 && std::isfinite(o.growth_factor), "grad scaler: growth_factor must be > 1, got ",
             o.growth_factor);
  TERN_CHECK(o.backoff_factor > 0 && o.backoff_factor < 1, "grad scaler: backoff_factor must be in (0, 1), got ",
             o.backoff_factor);
  TERN_CHECK(count(o.growth_interval), "grad scaler: growth_interval must be 1 or more, got ", o.growth_interval);
  TERN_CHECK(count(o.hysteresis), "grad scaler: hysteresis must be 1 or more, got ", o.hysteresis);
  TERN_CHECK(o.min_scale >= 0 && o.min_scale <= o.init_scale,
             "grad scaler: min_scale must be between 0 and init_scale, got ", o.min_scale);
  TERN_CHECK(count(o.max_skipped_in_row), "grad scaler: max_skipped_in_row must be 1 or more, got ",
             o.max_skipped_in_row);
}

Tensor number(double value) { return full({1}, value, {.dtype = float64}); }
Tensor number(int64_t value) { return from_vector(std::vector<int64_t>{value}, {1}); }

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  check_options(options);
  policy_ = {.growth_factor = options.growth_factor,
             .backoff_factor = options.backoff_factor,
             .min_scale = options.min_scale,
             .growth_interval = static_cast<int32_t>(options.growth_interval),
             .hysteresis = static_cast<int32_t>(options.hysteresis),
             .consecutive_hysteresis = options.consecutive_hysteresis};
  kernels::LossScale first;
  first.set_scale(static_cast<float>(options.init_scale));
  first.tolerated = policy_.hysteresis - 1;
  initial_ = first;
}

kernels::LossScale GradScaler::read() const {
  if (initial_) return *initial_;
  const Tensor host = state_.to(cpu);
  kernels::LossScale value;
  std::memcpy(&value, host.raw_data(), sizeof value);
  return value;
}

void GradScaler::write(const kernels::LossScale& value, Device device) {
  Tensor host = zeros({kStateWords}, {.dtype = float32});
  std::memcpy(host.raw_data(), &value, sizeof value);
  state_ = host.to(device);
  initial_.reset();
}

void GradScaler::start(Device device) {
  if (initial_) write(*initial_, device);
  TERN_CHECK(state_.device() == device, "grad scaler: the scale is on ", state_.device(), ", the loss on ", device,
             "; one scaler serves one device");
}

Tensor GradScaler::scale(const Tensor& loss) {
  TERN_CHECK(loss.defined() && is_floating(loss.dtype()), "grad scaler: scale() takes a floating tensor");
  if (!enabled()) return loss;
  start(loss.device());
  // The first word of the state is the scale.
  return mul(loss, state_.detach().select(0, 0));
}

void GradScaler::unscale(Optimizer& optimizer) {
  if (!enabled()) return;
  PerOptimizer& mine = optimizers_[&optimizer];
  TERN_CHECK(mine.stage != Stage::kUnscaled,
             "unscale() has already been called on this optimizer since the last update()");
  TERN_CHECK(mine.stage != Stage::kStepped, "unscale() is being called after step()");
  TERN_CHECK(!initial_, "grad scaler: unscale() before any scale(loss): the gradients are not scaled");
  NoGrad off;
  const Tensor inverse = state_.detach().select(0, 1);
  std::vector<Tensor> gradients;
  for (const GroupState& group : optimizer.param_groups())
    for (const NamedTensor& parameter : group.parameters) {
      const Tensor gradient = parameter.tensor.grad();
      if (!gradient.defined()) continue;
      TERN_CHECK(!is_low_precision(gradient.dtype()), "attempting to unscale 16-bit gradients (", parameter.name,
                 "); leave unscale() out: step() unscales them in fp32");
      gradients.push_back(gradient);
    }
  mine.unscaled_norm = optimizer.gradient_norm();
  note(mine.unscaled_norm);
  for (Tensor& gradient : gradients) gradient.mul_(inverse);
  mine.stage = Stage::kUnscaled;
}

void GradScaler::note(const Tensor& norm) {
  TERN_CHECK(norm.device() == state_.device(), "grad scaler: the optimizer's parameters are on ", norm.device(),
             ", the scale is on ", state_.device(), " with the loss; one scaler serves one device");
  kernels::note_non_finite(current_stream(state_.device()), norm_data(norm), state());
}

void GradScaler::clip_grad_norm(Optimizer& optimizer, double max_norm) {
  TERN_CHECK(max_norm > 0, "grad scaler: clip_grad_norm() takes a positive norm, got ", max_norm);
  PerOptimizer& mine = optimizers_[&optimizer];
  TERN_CHECK(mine.stage != Stage::kStepped, "clip_grad_norm() is being called after step()");
  mine.max_norm = max_norm;
}

StepResult GradScaler::step(Optimizer& optimizer) {
  PerOptimizer& mine = optimizers_[&optimizer];
  if (!enabled()) return optimizer.step({.max_norm = std::exchange(mine.max_norm, 0)});
  TERN_CHECK(mine.stage != Stage::kStepped, "step() has already been called since the last update()");
  TERN_CHECK(!initial_, "grad scaler: step() before any scale(loss): the gradients are not scaled");
  StepOptions options{.max_norm = mine.max_norm, .skip_non_finite = true, .earlier_norm = mine.unscaled_norm};
  if (mine.stage == Stage::kReady) options.inverse_scale = state_.detach().select(0, 1);
  const StepResult result = optimizer.step(options);
  TERN_CHECK(!result.parameters_.empty(),
             "no inf checks were recorded for this optimizer: no parameter has a gradient");
  note(result.norm_);
  mine = {Stage::kStepped};
  return result;
}

void GradScaler::update() {
  if (!enabled()) return;
  bool any = false;
  for (const auto& [optimizer, entry] : optimizers_) any = any || entry.stage != Stage::kReady;
  TERN_CHECK(any, "no inf checks were recorded prior to update(): call step() first");
  optimizers_.clear();
  kernels::update_loss_scale(current_stream(state_.device()), policy_, state());
  state_.bump_version();
  if (state_.device().type == DeviceType::kCPU) check();
}

void GradScaler::check() const {
  if (!enabled()) return;
  const kernels::LossScale now = read();
  TERN_CHECK(now.skipped_in_row <= options_.max_skipped_in_row, "grad scaler: ", now.skipped_in_row,
             " updates in a row were skipped because gradients overflowed, and the scale has fallen to ", now.scale,
             "; the model itself gives infinities or NaN in fp16: try bf16 or fp32, or a lower learning rate");
  TERN_CHECK(!options_.error_at_min_scale || now.overflows_at_minimum == 0, "grad scaler: the scale is ", now.scale,
             ", the least that min_scale allows, and gradients still overflow; the model itself gives infinities or "
             "NaN in fp16: try bf16 or fp32, or a lower learning rate");
}

StateView GradScaler::state_dict() const {
  if (!enabled()) return {};
  const kernels::LossScale now = read();
  return {
      {"scale", number(static_cast<double>(now.scale))},        {"growth_factor", number(options_.growth_factor)},
      {"backoff_factor", number(options_.backoff_factor)},      {"growth_interval", number(options_.growth_interval)},
      {"_growth_tracker", number(int64_t{now.growth_tracker})}, {"_tolerated", number(int64_t{now.tolerated})},
      {"_skipped_in_row", number(int64_t{now.skipped_in_row})}, {"_skipped", number(now.skipped)}};
}

void GradScaler::load_state_dict(const StateView& state) {
  if (!enabled()) {
    TERN_CHECK(state.empty(), "grad scaler: it is disabled, but the state is not empty");
    return;
  }
  StateView loaded = state_dict(), given = state;
  constexpr size_t kOfPyTorch = 5;
  if (given.size() == kOfPyTorch) {
    given.push_back({loaded[5].name, number(int64_t{policy_.hysteresis} - 1)});
    given.push_back({loaded[6].name, number(int64_t{0})});
    given.push_back({loaded[7].name, number(int64_t{0})});
  }
  load_state(loaded, given);
  const auto value = [&](size_t i) { return loaded[i].tensor.item<double>(); };
  GradScalerOptions options = options_;
  options.growth_factor = value(1);
  options.backoff_factor = value(2);
  options.growth_interval = loaded[3].tensor.item<int64_t>();
  options.init_scale = value(0);
  options.min_scale = std::min(options.min_scale, value(0));  // a stored scale may be below this scaler's minimum
  check_options(options);
  for (size_t i = 4; i < loaded.size(); ++i)
    TERN_CHECK(value(i) >= 0 && (i == 7 || value(i) <= static_cast<double>(kMaxCount)), "grad scaler: the state's ",
               loaded[i].name, " cannot be ", value(i));
  kernels::LossScale next;
  next.set_scale(static_cast<float>(value(0)));
  next.growth_tracker = static_cast<int32_t>(value(4));
  next.tolerated = static_cast<int32_t>(value(5));
  next.skipped_in_row = static_cast<int32_t>(value(6));
  next.skipped = loaded[7].tensor.item<int64_t>();
  options_.growth_factor = policy_.growth_factor = options.growth_factor;
  options_.backoff_factor = policy_.backoff_factor = options.backoff_factor;
  options_.growth_interval = options.growth_interval;
  policy_.growth_interval = static_cast<int32_t>(options.growth_interval);
  if (initial_)
    initial_ = next;
  else
    write(next, state_.device());
}

}  // namespace tern::optim
