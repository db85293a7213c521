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
// What may differ from replay to replay lies on the device: the inputs, the draws of generators (two replays give
// different masks, those of the same steps without capture), and what ops update in place (weights, optimizer state and
// its step count, loss scale). The learning rate does with the optimizers' option `capturable`. Everything else is as
// it was when the step was recorded: shapes, host numbers, branches. Gradients must be dropped within the step.
//
// Without an input on a GPU the function simply runs.

#include <functional>
#include <memory>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

struct CapturedStepOptions {
  /// Calls that run as usual before the step is recorded: they make what is made once (optimizer state). At least 1.
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

  /// One step. From the recording on, the results are the same tensors each time, overwritten by the next call; an
  /// input may then also lie on the CPU. Throws Error when an input's shape or dtype is not the recorded one, and,
  /// while recording, for whatever cannot be recorded (reading a value, copying from the host), which it names.
  const std::vector<Tensor>& operator()(const std::vector<Tensor>& inputs);

  /// True when calls are replays.
  bool captured() const;
  /// Kernels, copies and fills of one replay; 0 before the recording.
  int64_t nodes() const;
  /// Forgets the recording: the next call records again. For other shapes or a changed model.
  void reset();

 private:
  struct Recording;
  void record(const std::vector<Tensor>& inputs);
  void replay(const std::vector<Tensor>& inputs);

  Function function_;
  CapturedStepOptions options_;
  int64_t runs_ = 0;
  std::vector<Tensor> results_;
  std::vector<Generator> generators_;  // that drew in the runs so far
  std::unique_ptr<Recording> recording_;
};

namespace detail {
/// Throws Error "<what> is not possible in a captured step: ..." while this thread records one.
void forbid_while_recording(const char* what);
/// True while this thread records a step.
bool is_recording();
}  // namespace detail

}  // namespace tern
