#pragma once
// A character-level GPT, as docs/examples/char_gpt.cpp has it: RMS norms before the sub-layers, rotary embeddings,
// grouped heads, SwiGLU.

#include <memory>

#include "tern/bench/train/model_step.h"
#include "tern/core/ops/attention/attention.h"

namespace tern::bench {

struct GptConfig {
  int64_t characters = 65, width = 128, layers = 4, heads = 4, kv_heads = 2;
};

class GptStep final : public ModelStep {
 public:
  GptStep(const ModelOptions& options, int64_t batch, int64_t length);
  ~GptStep() override;
  /// ids, next: [batch * length].
  void run(const Tensor& ids, const Tensor& next);
  const GptConfig& config() const { return config_; }
  /// Floating-point operations in matrix products of one token, forward and backward, attention included.
  double flops() const;

 private:
  class Model;
  Tensor logits(const std::vector<Tensor>& batch) override;

  const GptConfig config_;
  const int64_t length_;
  std::unique_ptr<Model> model_;
  SequenceLayout layout_;
};

}  // namespace tern::bench
