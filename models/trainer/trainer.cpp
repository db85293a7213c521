#include "tern/models/trainer/trainer.h"

#include <chrono>
#include <deque>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler.h"
#include "tern/models/trainer/training_step.h"

namespace tern::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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
        step_(task, options, total_steps_) {}

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
    int64_t number = result_.steps;
    while (!result_.stopped && number < total_steps_) {
      const Clock::time_point start = Clock::now();
      observer_.on_step_begin(number + 1);
      if (!next_batch()) break;
      queued_.push_back(step_.queue(++number, epoch));
      queued_.back().metrics.seconds = seconds_since(start);
      while (!queued_.empty() && (queued_.front().ready() || queued_.size() > steps_ahead())) finish_oldest();
      if (options_.should_stop && options_.should_stop()) result_.stopped = true;
    }
    while (!queued_.empty()) finish_oldest();
  }

  /// Steps that may be queued and not yet done: the host does not wait, but a bad step is still seen soon.
  size_t steps_ahead() const { return options_.device.is_cuda() ? 32 : 0; }

  void finish_oldest() {
    const Clock::time_point start = Clock::now();
    TrainingStep::Pending pending = std::move(queued_.front());
    queued_.pop_front();
    StepMetrics metrics;
    try {
      metrics = step_.finish(pending);
    } catch (...) {
      if (best_.taken()) best_.restore(task_.module());
      throw;
    }
    metrics.seconds += seconds_since(start);
    ++result_.steps;
    result_.step_seconds += metrics.seconds;
    result_.items += metrics.items;
    observer_.on_step(metrics);
  }

  bool next_batch() {
    const ProfileRange range("data");
    return task_.next_batch();
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
  TrainingStep step_;
  std::deque<TrainingStep::Pending> queued_;
  Snapshot best_;
};

}  // namespace

TrainResult train(TrainingTask& task, const TrainOptions& options, TrainObserver& observer) {
  return Loop(task, options, observer).run();
}

}  // namespace tern::models
