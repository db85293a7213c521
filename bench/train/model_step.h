#pragma once
// One step of the comparison's model rows, equal to a user's training loop or prediction. The profiler shows its parts
// as "forward", "backward" and "optimizer".

#include <memory>
#include <string>
#include <vector>

#include "tern/core/autograd/captured_step.h"
#include "tern/nn/module.h"
#include "tern/optim/optim.h"

namespace tern::bench {

struct ModelOptions {
  std::string preset;  // of the row's model
  bool train = true;   // otherwise logits without gradients
  bool full_last_layer =
      false;  // compute all rows of the last layer, as PyTorch does, though the classifier reads one per sequence
  DType dtype = DType::kFloat32;  // bfloat16: autocast
  Device device = {};
  bool capture = true;  // CUDA: replay steps as one graph; all batches must have the same shapes
};

class ModelStep {
 public:
  virtual ~ModelStep() = default;
  const ModelOptions& options() const { return options_; }
  /// Number of kernels, copies and fills of a captured step; 0 if steps are not captured.
  int64_t launches() const { return captured_->nodes(); }

 protected:
  explicit ModelStep(const ModelOptions& options) : options_(options) {}
  /// Sets the module's mode and creates the optimizer; must be called once before run().
  void prepare(nn::Module& module);
  /// Forward, backward, clipping to norm 1 and AdamW over all parameters; or the logits. The tensors may be on the CPU;
  /// some may be undefined.
  void run(std::vector<Tensor> batch, const Tensor& labels);
  /// Logits [n, labels] of a batch on the model's device.
  virtual Tensor logits(const std::vector<Tensor>& batch) = 0;

 private:
  Tensor train(const std::vector<Tensor>& batch, const Tensor& labels);
  Tensor infer(const std::vector<Tensor>& batch);

  ModelOptions options_;
  std::unique_ptr<optim::AdamW> optimizer_;
  std::unique_ptr<CapturedStep> captured_;
};

}  // namespace tern::bench
