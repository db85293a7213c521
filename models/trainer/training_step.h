#pragma once
// One optimizer step as work queued on the device, and what it found, read later: the host never waits for a step that
// it has just queued. On CUDA, steps of a task with fixed shapes are captured and replayed as one graph.

#include <optional>

#include "tern/core/captured_step.h"
#include "tern/core/stream.h"
#include "tern/models/trainer/trainer.h"

namespace tern::models {

class TrainingStep {
 public:
  /// `total_steps`: what the learning rate's schedule spans.
  TrainingStep(TrainingTask& task, const TrainOptions& options, int64_t total_steps);

  /// A step that is queued.
  struct Pending {
    StepMetrics metrics;  // complete but for the numbers that the device finds
    TrainingBatch batch;
    uint64_t offset = 0;  // of the module's generator at the start
    std::optional<HostCopy> loss;
    optim::StepResult update;
    bool ready() const { return loss->ready() && update.ready(); }
  };

  /// Queues step `number` (from 1) on the task's current batch.
  Pending queue(int64_t number, int64_t epoch);
  /// Waits for the step and returns its metrics. Throws Error that names the op when its loss or a gradient was not
  /// finite (float16: when too many updates in a row overflowed); the weights are then as if the step had not been.
  StepMetrics finish(Pending& pending);

 private:
  Tensor forward(const TrainingBatch& batch);
  std::vector<Tensor> run(const TrainingBatch& batch);
  [[noreturn]] void explain(Pending& pending, const std::string& what);

  TrainingTask& task_;
  const TrainOptions& options_;
  const int64_t total_steps_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_;
  optim::Schedule schedule_;
  int64_t longest_ = 0;  // TrainingBatch::longest of the captured step
  optim::StepResult update_;
  CapturedStep captured_;
};

}  // namespace tern::models
