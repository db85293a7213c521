#pragma once
// One optimizer step as work queued on the device, and what it found, read later: the host never waits for a step that
// it has just queued. On CUDA, steps of a task with fixed shapes are captured and replayed as one graph.

#include <optional>

#include "tern/core/autograd/captured_step.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/dist/loop/accumulation.h"
#include "tern/models/trainer/trainer.h"

namespace tern::models {

class TrainingStep {
 public:
  /// `total_steps`: what the learning rate's schedule spans.
  TrainingStep(TrainingTask& task, const TrainOptions& options, int64_t total_steps);

  /// One of the batches that make up a step.
  struct Part {
    StepInput batch;
    int64_t number = 0;  // of the batch within the epoch
    double weight = 1;   // of the part's loss in the step's; ignored in a step of one part in one process
  };

  /// A step that is queued.
  struct Pending {
    StepMetrics metrics;  // complete but for the numbers that the device finds
    std::vector<Part> parts;
    uint64_t offset = 0;  // of the module's generator at the start
    std::optional<HostCopy> loss;
    optim::StepResult update;
    bool ready() const { return loss->ready() && update.ready(); }
  };

  /// Queues step `number` (from 1) on these batches, one at least.
  Pending queue(int64_t number, int64_t epoch, std::vector<Part> parts);
  /// Waits for the step and returns its metrics. Throws Error that names the op when its loss or a gradient was not
  /// finite (float16: when too many updates in a row overflowed); the weights are then as if the step had not been.
  StepMetrics finish(Pending& pending);

  /// After a validation: the schedule plateau follows its metric.
  void on_validation(double metric);
  /// The averages of the weights; null without TrainOptions::ema.
  const optim::EMA* ema() const { return ema_ ? &*ema_ : nullptr; }

  /// The state of the optimizer (with TrainOptions::lookahead that of LookAhead), the loss scaler's under "scaler/",
  /// the averages' under "ema/" and the plateau's under "plateau/". Handles on live tensors. To be called by all ranks;
  /// of a sharded optimizer rank 0 alone has it.
  StateView state() const;
  /// Throws Error when it is not that of this optimizer and model.
  void load_state(const StateView& state);
  /// What this process holds after a step.
  dist::ModelStateMemory memory() const {
    return dist::model_state_memory(task_.module(), *optimizer_, options_.parallel);
  }

 private:
  /// Sets the learning rates of a step, counted from 0.
  void set_rates(int64_t step);
  Tensor forward(const StepInput& batch, std::span<const Tensor> tensors, int64_t max_length) const;
  bool is_parallel() const { return options_.parallel && options_.parallel->group()->size() > 1; }
  bool is_weighted() const { return parts_ > 1 || is_parallel(); }
  /// inputs: the tensors of every part, and if is_weighted() their weights, float32 [parts].
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  bool found_on_any_rank(bool found) const;
  [[noreturn]] void explain(Pending& pending, const std::string& what);

  TrainingTask& task_;
  const TrainOptions& options_;
  const int64_t total_steps_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  dist::Accumulation accumulation_;
  optim::Schedule schedule_;
  std::optional<optim::ReduceLROnPlateau> plateau_;
  std::vector<double> plateau_rates_;  // of each group, without the warmup
  std::optional<optim::LookAhead> lookahead_;
  std::optional<optim::EMA> ema_;
  const std::vector<Part>* work_ = nullptr;  // the parts of the step that is run or recorded
  int64_t parts_ = 1, recorded_parts_ = 0;
  optim::StepResult update_;
  CapturedStep captured_;
};

}  // namespace tern::models
