#pragma once
// Optimizer updates over all parameters in one pass, with gradient clipping and the non-finite skip folded in.

#include "tern/kernels/kernel.h"
#include "tern/kernels/math.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels {

/// One parameter tensor; all members contiguous with `size` elements. Dtypes: weight and gradient any floating type
/// (they may differ), states and master fp32 (fp64 for fp64 weights). master is null unless the weight is 16-bit with a
/// master copy: then the update is computed on master and rounded into weight. compensation (bf16, for bf16 weights
/// without a master copy; else null) is what rounding took from the weight: the update is computed on their fp32 sum,
/// which is split again into its bf16 rounding and the bf16 rounding of the rest. That is Kahan's summation with an
/// fp32 register (Zamirai et al., "Revisiting BFloat16 Training", arXiv:2010.06192, algorithm 2).
struct OptimizerTensor {
  void* weight = nullptr;
  const void* gradient = nullptr;
  void* state1 = nullptr;  // Adam: exponential average of gradients; SGD: momentum buffer (null without momentum)
  void* state2 = nullptr;  // Adam: exponential average of squared gradients
  void* state3 = nullptr;  // Adam with amsgrad: largest second moment so far
  void* master = nullptr;
  void* compensation = nullptr;
  int64_t size = 0;
  DType weight_dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  int32_t group = 0;  // index into the groups
};

/// Hyper-parameters of one group. Adam and AdamW: PyTorch's formulas and order of operations (torch.optim.AdamW,
/// fused).
struct AdamGroup {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;  // AdamW: w *= 1 - lr * decay; otherwise decay is added to the gradient (Adam, L2)
  bool amsgrad = false;
  bool maximize = false;
};
struct SgdGroup {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

/// What holds for the whole update. Everything that a captured step changes lives in device memory.
struct OptimizerStep {
  int64_t* step = nullptr;                // device; the count of updates done, incremented here unless skipped
  const GradientNorm* norm = nullptr;     // device; null: no clipping and no skip
  double max_norm = 0;                    // > 0: gradients are scaled by min(1, max_norm / (norm + 1e-6))
  const float* inverse_scale = nullptr;   // device; loss scaler's 1/scale, null: 1
  bool skip_non_finite = true;            // leave everything unchanged when norm->non_finite is set
  const GradientNorm* earlier = nullptr;  // device; its non_finite counts as norm's (a check of an earlier pass)
  const double* lr = nullptr;             // device; a learning rate for each group, null: the groups' own

  /// In a kernel: whether the update is left out.
  TERN_HD bool is_skipped() const {
    return skip_non_finite && ((norm && norm->non_finite) || (earlier && earlier->non_finite));
  }
};

/// Update all tensors. SGD sets the momentum buffer to the gradient when *step is 0, as PyTorch does.
TERN_KERNEL(void, adam, Stream stream, const OptimizerTensor* tensors, int64_t count, const AdamGroup* groups,
            int64_t group_count, OptimizerStep step);
TERN_KERNEL(void, sgd, Stream stream, const OptimizerTensor* tensors, int64_t count, const SgdGroup* groups,
            int64_t group_count, OptimizerStep step);

/// One parameter and its running average, both contiguous with `size` elements.
struct AverageTensor {
  void* average = nullptr;  // fp32; fp64 for fp64 weights
  const void* weight = nullptr;
  int64_t size = 0;
  DType weight_dtype = DType::kFloat32;
};

/// What holds for all of them. As in OptimizerStep, what a captured step changes lives in device memory.
struct AverageStep {
  int64_t* updates = nullptr;  // device; done so far, incremented here unless skipped
  double decay = 0.999;
  double warmup_gamma = 0, warmup_power = 1;  // gamma 0: no warmup
  const GradientNorm* norm = nullptr;         // device; the update is left out where one of these is not finite
  const GradientNorm* earlier = nullptr;

  TERN_HD bool is_skipped() const { return (norm && norm->non_finite) || (earlier && earlier->non_finite); }
  /// How far update n, from 1, takes the averages to the weights: timm's ModelEmaV3.get_decay, 1 minus it. The first
  /// copies them.
  TERN_HD double share(int64_t n) const {
    if (n <= 1) return 1;
    if (warmup_gamma <= 0) return 1 - decay;
    const double slow = 1 - math::pow(1 + static_cast<double>(n - 1) / warmup_gamma, -warmup_power);
    return 1 - (slow < decay ? slow : decay);
  }
};

/// average += share * (weight - average) for all of them, as torch.lerp computes it.
TERN_KERNEL(void, average_weights, Stream stream, const AverageTensor* tensors, int64_t count, AverageStep step);

/// x *= factor for all tensors, factor = min(1, max_norm / (norm + 1e-6)): clip_grad_norm_ outside an optimizer.
TERN_KERNEL(void, scale_by_norm, Stream stream, const View* tensors, int64_t count, const GradientNorm* norm,
            double max_norm);

}  // namespace tern::kernels
