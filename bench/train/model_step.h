#pragma once
// One step of the comparison's model rows: what a user's training loop or prediction does. The profiler sees its parts
// as "forward", "backward" and "optimizer".

#include <memory>
#include <string>
#include <vector>

#include "tern/core/captured_step.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/optim/optim.h"

namespace tern::bench {

struct ModelOptions {
  std::string preset;  // "base", "small" or "tiny"
  bool train = true;   // otherwise logits without gradients
  bool full_last_layer =
      false;  // all rows of the last layer, as PyTorch does, where the classifier reads one a sequence
  DType dtype = DType::kFloat32;  // bfloat16: autocast
  Device device = {};
  bool capture = true;  // CUDA: replay steps as one graph; their batches must have equal shapes
};

class ModelStep {
 public:
  explicit ModelStep(const ModelOptions& options);

  /// Forward, backward, clipping to norm 1 and AdamW over all parameters; or the logits. The batch may lie on the CPU.
  void run(const models::EncoderInput& input, const Tensor& labels);

  const ModelOptions& options() const { return options_; }
  models::DistilBert& model() { return *model_; }
  /// Kernels, copies and fills of a captured step; 0 where steps are not captured.
  int64_t launches() const { return captured_->nodes(); }

 private:
  Tensor logits(const models::EncoderInput& input);
  Tensor train(const models::EncoderInput& input, const Tensor& labels);
  Tensor infer(const models::EncoderInput& input);

  ModelOptions options_;
  std::unique_ptr<models::DistilBert> model_;
  std::unique_ptr<optim::AdamW> optimizer_;
  std::unique_ptr<CapturedStep> captured_;
  int64_t longest_ = 0;  // sequence of the batch
};

/// A linear layer's matrix product in the forward pass: x [rows, in] times weight [out, in].
struct Product {
  int64_t rows, in, out;
  int64_t layers;  // how many like it
  double flops() const { return 2.0 * static_cast<double>(rows * in * out * layers); }
};

/// All linear layers of a step over sequences of these lengths, as the model computes them.
std::vector<Product> products(const models::DistilBertConfig& config, const std::vector<int64_t>& lengths,
                              bool full_last_layer);
/// Floating-point operations of a step's matrix products, attention included: what is computed, not what is saved.
double step_flops(const models::DistilBertConfig& config, const std::vector<int64_t>& lengths,
                  const ModelOptions& options);

}  // namespace tern::bench
