#pragma once
// A training step recorded once and replayed as one CUDA graph: the host queues one launch instead of hundreds.
//
//   CapturedStep step([&](const std::vector<Tensor>& batch) {
//     Tensor loss = cross_entropy(net.forward(batch[0]), batch[1]);
//     loss.backward();
//     optimizer.step({.max_norm = 1.0});
//     optimizer.zero_grad();
//     return std::vector<Tensor>{loss};
//   });
//   for (...) Tensor loss = step({images, labels})[0];
//
// The values that may change between replays are in device memory: the inputs, the draws of generators (two replays
// draw different masks, the same as in steps without capture), and tensors that ops update in place (weights, optimizer
// state and its step count, loss scale). The learning rate may change with the optimizers' option `capturable`.
// Everything else stays as recorded: shapes, host numbers, branches. Gradients must be dropped within the step.
//
// Without an input on a GPU the function runs without capture.

#include <functional>
#include <memory>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

struct CapturedStepOptions {
  /// Calls that run without capture before the recording, because they create state (the optimizer's). At least 1.
  int64_t warmup = 2;
  /// False: never record.
  bool enabled = true;
};

class CapturedStep {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

  explicit CapturedStep(Function function, const CapturedStepOptions& options = {});
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// Runs one step. From the recording on, the results are the same tensors each time, overwritten by the next call,
  /// and inputs may also be on the CPU. Throws Error when an input's shape or dtype differs from the recorded one and,
  /// while recording, for operations that cannot be recorded (reading a value, copying from the host), by name.
  const std::vector<Tensor>& operator()(const std::vector<Tensor>& inputs);

  /// True after the recording: calls are replays.
  bool captured() const;
  /// Number of kernels, copies and fills of one replay; 0 before the recording.
  int64_t nodes() const;
  /// Discards the recording; the next call records again, for other shapes or a changed model.
  void reset();

 private:
  struct Recording;
  void record(const std::vector<Tensor>& inputs);
  void replay(const std::vector<Tensor>& inputs);

  Function function_;
  CapturedStepOptions options_;
  int64_t runs_ = 0;
  std::vector<Tensor> results_;
  std::vector<Generator> generators_;  // that drew numbers in the runs so far
  std::unique_ptr<Recording> recording_;
};

}  // namespace tern
