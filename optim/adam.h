#pragma once

#include "tern/optim/optimizer.h"

namespace tern::optim {

template <bool kDecoupled>
struct BasicAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = kDecoupled ? 0.01 : 0;
  bool amsgrad = false;
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead: needs master_weights = false
  bool capturable = false;     // learning rates on the device: set_lr() reaches a captured step
};

/// The two differ in weight decay only: w *= 1 - lr * weight_decay (decoupled) or an L2 term in the gradient.
template <bool kDecoupled>
class BasicAdam final : public Optimizer {
 public:
  using Options = BasicAdamOptions<kDecoupled>;
  /// Throws Error on hyper-parameters out of range, when a parameter is given twice, and for kahan with master_weights
  /// or with a parameter that is not bf16.
  BasicAdam(const std::vector<NamedTensor>& parameters, const Options& options = {});
  BasicAdam(const std::vector<ParameterGroup>& groups, const Options& options = {});

 private:
  void update(kernels::Stream stream, const std::vector<kernels::OptimizerTensor>& tensors,
              const kernels::OptimizerStep& step) const override;

  Options options_;
};

/// Kingma & Ba, arXiv:1412.6980, with PyTorch's defaults and order of operations; state exp_avg, exp_avg_sq and, with
/// amsgrad, max_exp_avg_sq.
using Adam = BasicAdam<false>;
using AdamOptions = BasicAdamOptions<false>;
/// Loshchilov & Hutter, arXiv:1711.05101.
using AdamW = BasicAdam<true>;
using AdamWOptions = BasicAdamOptions<true>;

}  // namespace tern::optim
