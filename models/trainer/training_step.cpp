#include "tern/models/trainer/training_step.h"

#include <cmath>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler.h"
#include "tern/optim/gradient_norm.h"

namespace tern::models {
namespace {

/// 16-bit gradients underflow without a scaled loss; bfloat16 has fp32's range.
bool needs_loss_scale(const nn::Module& module, const TrainOptions& options) {
  if (options.dtype == float16) return true;
  for (const NamedTensor& parameter : module.parameters())
    if (parameter.tensor.dtype() == float16) return true;
  return false;
}

}  // namespace

TrainingStep::TrainingStep(TrainingTask& task, const TrainOptions& options, int64_t total_steps)
    : task_(task),
      options_(options),
      total_steps_(total_steps),
      optimizer_(make_optimizer(task.module(), options)),
      scaler_({.enabled = needs_loss_scale(task.module(), options)}),
      schedule_(optim::schedule_by_name(options.schedule, {.total_steps = total_steps, .warmup = options.warmup})),
      captured_(
          [this](const std::vector<Tensor>& tensors) {
            return run({tensors, longest_});
          },
          {.enabled = options.capture && options.device.is_cuda() && task.fixed_shapes()}) {}

Tensor TrainingStep::forward(const TrainingBatch& batch) {
  const ProfileRange range("forward");
  return autocast(options_.device, options_.dtype, [&] { return task_.loss(batch); });
}

/// Forward, backward and update. Nothing in it waits for the device or depends on what the device finds.
std::vector<Tensor> TrainingStep::run(const TrainingBatch& batch) {
  const Tensor loss = forward(batch);
  {
    const ProfileRange range("backward");
    scaler_.scale(loss).backward();
  }
  // Without clipping the norm is still wanted: an infinite limit measures it and changes nothing.
  const double max_norm = options_.clip > 0 ? options_.clip : std::numeric_limits<double>::infinity();
  const ProfileRange range("optimizer");
  if (scaler_.enabled()) {
    scaler_.clip_grad_norm(*optimizer_, max_norm);
    update_ = scaler_.step(*optimizer_);
    scaler_.update();
  } else {
    // A loss that is not finite skips the update too, whatever its gradients are.
    update_ = optimizer_->step({.max_norm = max_norm,
                                .skip_non_finite = true,
                                .earlier_norm = optim::gradient_norm({loss.detach()}, loss.device())});
  }
  optimizer_->zero_grad();
  return {loss.detach()};
}

TrainingStep::Pending TrainingStep::queue(int64_t number, int64_t epoch) {
  Generator& generator = task_.module().generator();
  // Masks keyed by the data differ between epochs through the draw's number alone.
  if (task_.keyed_dropout()) generator.set_offset(static_cast<uint64_t>(epoch + 1) << 32);
  schedule_.apply(*optimizer_, number - 1);

  Pending pending;
  pending.offset = generator.offset();
  pending.batch = task_.batch();
  longest_ = pending.batch.longest;
  pending.loss.emplace(captured_(pending.batch.tensors)[0]);
  pending.update = update_.fetch();
  StepMetrics& metrics = pending.metrics;
  metrics.step = number;
  metrics.total_steps = total_steps_;
  metrics.epoch = epoch + 1;
  metrics.lr = optimizer_->lr();
  metrics.items = task_.items();
  return pending;
}

StepMetrics TrainingStep::finish(Pending& pending) {
  StepMetrics metrics = pending.metrics;
  metrics.loss = pending.loss->values()[0];
  metrics.grad_norm = pending.update.grad_norm();
  if (scaler_.enabled()) {
    metrics.loss_scale = pending.update.loss_scale();
    metrics.skipped = pending.update.skipped();
    if (metrics.skipped && options_.device.is_cuda()) scaler_.check();
    if (std::isnan(metrics.loss) && !metrics.skipped) explain(pending, "the loss is " + std::to_string(metrics.loss));
  } else if (!std::isfinite(metrics.loss)) {
    explain(pending, "the loss is " + std::to_string(metrics.loss));
  } else if (pending.update.skipped()) {
    explain(pending, "the gradient of " + pending.update.first_non_finite() + " is not finite");
  }
  return metrics;
}

/// Repeats the step under anomaly mode, which names the op, and throws. Its own update was left out.
void TrainingStep::explain(Pending& pending, const std::string& what) {
  optimizer_->zero_grad();
  task_.module().generator().set_offset(pending.offset);
  std::string reason = "repeating the step found no single op to blame";
  try {
    DetectAnomaly anomaly(Anomaly::kNonFinite);
    forward(pending.batch).backward();
  } catch (const Error& error) {
    reason = error.what();
  }
  optimizer_->zero_grad();
  fail("step ", pending.metrics.step, ": ", what, "; ", reason,
       "; try a lower --lr, a longer --warmup or --dtype fp32");
}

std::unique_ptr<optim::Optimizer> make_optimizer(const nn::Module& module, const TrainOptions& options) {
  const auto groups = optim::no_decay_groups(module.parameters(), options.weight_decay);
  const bool copies = !options.kahan, on_device = options.device.is_cuda();
  if (options.optimizer == "adamw")
    return std::make_unique<optim::AdamW>(
        groups, optim::AdamWOptions{
                    .lr = options.lr, .master_weights = copies, .kahan = options.kahan, .capturable = on_device});
  if (options.optimizer == "adam")
    return std::make_unique<optim::Adam>(
        groups, optim::AdamOptions{
                    .lr = options.lr, .master_weights = copies, .kahan = options.kahan, .capturable = on_device});
  if (options.optimizer == "sgd")
    return std::make_unique<optim::SGD>(groups, optim::SGDOptions{.lr = options.lr,
                                                                  .momentum = 0.9,
                                                                  .master_weights = copies,
                                                                  .kahan = options.kahan,
                                                                  .capturable = on_device});
  fail("optimizer: expected adamw, adam or sgd, got '", options.optimizer, "'");
}

}  // namespace tern::models
