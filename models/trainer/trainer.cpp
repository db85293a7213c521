#include "tern/models/trainer/trainer.h"

#include <chrono>
#include <cmath>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler.h"

namespace tern::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// 16-bit gradients underflow without a scaled loss; bfloat16 has fp32's range.
bool needs_loss_scale(const nn::Module& module, const TrainOptions& options) {
  if (options.dtype == float16) return true;
  for (const NamedTensor& parameter : module.parameters())
    if (parameter.tensor.dtype() == float16) return true;
  return false;
}

/// A copy of all weights, to come back to.
class Snapshot {
 public:
  bool taken() const { return !state_.empty(); }
  void take(const nn::Module& module) {
    NoGrad off;
    const StateView state = module.state_dict();
    if (!taken()) {
      for (const NamedTensor& entry : state) state_.push_back({entry.name, entry.tensor.detach().clone()});
      return;
    }
    for (size_t i = 0; i < state.size(); ++i) state_[i].tensor.copy_(state[i].tensor.detach());
  }
  void restore(nn::Module& module) const { module.load_state_dict(state_); }

 private:
  StateView state_;
};

class Loop {
 public:
  Loop(TrainingTask& task, const TrainOptions& options, TrainObserver& observer)
      : task_(task),
        options_(options),
        observer_(observer),
        total_steps_(count_steps()),
        optimizer_(make_optimizer(task.module(), options)),
        scaler_({.enabled = needs_loss_scale(task.module(), options)}),
        schedule_(optim::schedule_by_name(options.schedule, {.total_steps = total_steps_, .warmup = options.warmup})) {}

  TrainResult run() {
    const Clock::time_point start = Clock::now();
    for (int64_t epoch = 0; epoch < task_.epochs() && !finished(); ++epoch) {
      run_epoch(epoch);
      if (result_.stopped) break;
      validate(epoch);
    }
    if (!result_.stopped && best_.taken()) best_.restore(task_.module());
    result_.seconds = seconds_since(start);
    return result_;
  }

 private:
  int64_t count_steps() const {
    int64_t steps = 0;
    for (int64_t epoch = 0; epoch < task_.epochs(); ++epoch) steps += task_.steps(epoch);
    if (options_.max_steps > 0) steps = std::min(steps, options_.max_steps);
    TERN_CHECK(steps > 0, "train: there is nothing to train on: no steps");
    return steps;
  }

  bool finished() const { return result_.stopped || result_.steps >= total_steps_; }

  void run_epoch(int64_t epoch) {
    task_.module().train();
    task_.begin_epoch(epoch);
    while (!finished()) {
      const Clock::time_point start = Clock::now();
      observer_.on_step_begin(result_.steps + 1);
      if (!next_batch()) break;
      StepMetrics metrics = step(epoch);
      metrics.seconds = seconds_since(start);
      result_.step_seconds += metrics.seconds;
      result_.items += metrics.items;
      observer_.on_step(metrics);
      if (options_.should_stop && options_.should_stop()) result_.stopped = true;
    }
  }

  bool next_batch() {
    const ProfileRange range("data");
    return task_.next_batch();
  }

  Tensor forward() {
    const ProfileRange range("forward");
    return autocast(options_.device, options_.dtype, [&] { return task_.loss(); });
  }

  void backward(const Tensor& loss) {
    const ProfileRange range("backward");
    scaler_.scale(loss).backward();
  }

  StepMetrics step(int64_t epoch) {
    Generator& generator = task_.module().generator();
    // Masks keyed by the data differ between epochs through the draw's number alone.
    if (task_.keyed_dropout()) generator.set_offset(static_cast<uint64_t>(epoch + 1) << 32);
    const uint64_t offset = generator.offset();
    schedule_.apply(*optimizer_, result_.steps);

    StepMetrics metrics;
    const Tensor loss = forward();
    metrics.loss = loss.item<double>();
    if (!std::isfinite(metrics.loss)) explain(offset, "the loss is " + std::to_string(metrics.loss));
    backward(loss);
    // Without clipping the norm is still wanted: an infinite limit measures it and changes nothing.
    const double max_norm = options_.clip > 0 ? options_.clip : std::numeric_limits<double>::infinity();
    optim::StepResult update;
    const ProfileRange range("optimizer");
    if (scaler_.enabled()) {
      scaler_.clip_grad_norm(*optimizer_, max_norm);
      update = scaler_.step(*optimizer_);
      metrics.loss_scale = scaler_.current_scale();
      metrics.skipped = update.skipped();
      scaler_.update();
    } else {
      update = optimizer_->step({.max_norm = max_norm, .skip_non_finite = true});
    }
    metrics.grad_norm = update.grad_norm();
    if (update.skipped() && !metrics.skipped)
      explain(offset, "the gradient of " + update.first_non_finite() + " is not finite");
    optimizer_->zero_grad();

    ++result_.steps;
    metrics.step = result_.steps;
    metrics.total_steps = total_steps_;
    metrics.epoch = epoch + 1;
    metrics.lr = optimizer_->lr();
    metrics.items = task_.items();
    return metrics;
  }

  /// Repeats the current step under anomaly mode, which names the op, and throws. The weights are those before the
  /// step.
  [[noreturn]] void explain(uint64_t offset, const std::string& what) {
    optimizer_->zero_grad();
    task_.module().generator().set_offset(offset);
    std::string reason = "repeating the step found no single op to blame";
    try {
      DetectAnomaly anomaly(Anomaly::kNonFinite);
      forward().backward();
    } catch (const Error& error) {
      reason = error.what();
    }
    optimizer_->zero_grad();
    if (best_.taken()) best_.restore(task_.module());
    fail("step ", result_.steps + 1, ": ", what, "; ", reason, "; try a lower --lr, a longer --warmup or --dtype fp32");
  }

  void validate(int64_t epoch) {
    if (!task_.can_validate()) return;
    observer_.on_validation_begin(epoch + 1);
    const ProfileRange range("validation");
    task_.module().eval();
    EpochMetrics metrics;
    metrics.epoch = epoch + 1;
    {
      NoGrad off;
      metrics.validation = task_.validate();
    }
    if (options_.should_stop && options_.should_stop()) {
      result_.stopped = true;
      return;
    }
    const Evaluation& now = metrics.validation;
    metrics.best = result_.best_epoch == 0 || now.accuracy > result_.best.accuracy ||
                   (now.accuracy == result_.best.accuracy && now.loss < result_.best.loss);
    if (metrics.best) {
      result_.best_epoch = metrics.epoch;
      result_.best = now;
      best_.take(task_.module());
    }
    observer_.on_epoch(metrics);
  }

  TrainingTask& task_;
  const TrainOptions& options_;
  TrainObserver& observer_;
  TrainResult result_;
  const int64_t total_steps_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_;
  optim::Schedule schedule_;
  Snapshot best_;
};

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const nn::Module& module, const TrainOptions& options) {
  const auto groups = optim::no_decay_groups(module.parameters(), options.weight_decay);
  const bool copies = !options.kahan;
  if (options.optimizer == "adamw")
    return std::make_unique<optim::AdamW>(
        groups, optim::AdamWOptions{.lr = options.lr, .master_weights = copies, .kahan = options.kahan});
  if (options.optimizer == "adam")
    return std::make_unique<optim::Adam>(
        groups, optim::AdamOptions{.lr = options.lr, .master_weights = copies, .kahan = options.kahan});
  if (options.optimizer == "sgd")
    return std::make_unique<optim::SGD>(
        groups, optim::SGDOptions{.lr = options.lr, .momentum = 0.9, .master_weights = copies, .kahan = options.kahan});
  fail("optimizer: expected adamw, adam or sgd, got '", options.optimizer, "'");
}

TrainResult train(TrainingTask& task, const TrainOptions& options, TrainObserver& observer) {
  return Loop(task, options, observer).run();
}

}  // namespace tern::models
