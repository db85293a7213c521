#pragma once

#include "tern/optim/optimizer.h"

namespace tern::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2
  bool nesterov = false;    // needs momentum > 0 and no dampening
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step
};

/// Stochastic gradient descent with PyTorch's momentum: buffer = momentum * buffer + (1 - dampening) * gradient, at
/// first the gradient itself. State momentum_buffer, none without momentum.
class SGD final : public Optimizer {
 public:
  /// Throws Error on hyper-parameters out of range, when a parameter is given twice, and for kahan with master_weights
  /// or with a parameter that is not bf16.
  SGD(const std::vector<NamedTensor>& parameters, const SGDOptions& options = {});
  SGD(const std::vector<ParameterGroup>& groups, const SGDOptions& options = {});

 private:
  void update(kernels::Stream stream, const std::vector<kernels::OptimizerTensor>& tensors,
              const kernels::OptimizerStep& step) const override;

  SGDOptions options_;
};

}  // namespace tern::optim
