#pragma once
// A step of DistilBERT.

#include <vector>

#include "tern/bench/train/model_step.h"
#include "tern/models/distilbert/distilbert.h"

namespace tern::bench {

class TextStep final : public ModelStep {
 public:
  explicit TextStep(const ModelOptions& options);
  void run(const data::TokenInput& input, const Tensor& labels);
  const models::DistilBertConfig& config() const { return model_.config(); }

 private:
  Tensor logits(const std::vector<Tensor>& batch) override;

  models::DistilBert model_;
  int64_t longest_ = 0;  // longest sequence of the batch
};

/// Floating-point operations of a step's matrix products over sequences of these lengths, attention included. Skipped
/// rows of the last layer do not count.
double step_flops(const models::DistilBertConfig& config, const std::vector<int64_t>& lengths,
                  const ModelOptions& options);

}  // namespace tern::bench
