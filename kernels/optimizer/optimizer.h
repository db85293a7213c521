#pragma once
// Optimizer updates over all parameters in one pass, with gradient clipping and the non-finite skip folded in.

#include "tern/kernels/kernel.h"
#include "tern/kernels/math/math.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels {

/// States that a rule keeps of each weight, at most: CUDA's kernel parameters hold no more for 400 tensors.
inline constexpr int kMaxOptimizerStates = 3;

/// min(1, max_norm / (norm + 1e-6)) as clip_grad_norm_; NaN stays NaN.
TERN_HD inline double clip_factor(double norm, double max_norm) {
  const double ratio = max_norm / (norm + 1e-6);
  return ratio >= 1 ? 1 : ratio;
}

/// One parameter tensor; all members contiguous with `size` elements. Dtypes: weight and gradient any floating type
/// (they may differ), states and master fp32 (fp64 for fp64 weights). master is null unless the weight is 16-bit with a
/// master copy: then the update is computed on master and rounded into weight. compensation (bf16, for bf16 weights
/// without a master copy; else null) is the weight's rounding error: the update is computed on their fp32 sum,
/// which is split again into its bf16 rounding and the bf16 rounding of the rest. That is Kahan's summation with an
/// fp32 register (Zamirai et al., "Revisiting BFloat16 Training", arXiv:2010.06192, algorithm 2).
struct OptimizerTensor {
  void* weight = nullptr;
  const void* gradient = nullptr;
  void* states[kMaxOptimizerStates] = {};  // as the rule's state_names; those that it does not keep are not read
  void* master = nullptr;
  void* compensation = nullptr;
  int64_t size = 0;
  // The sizes of the matrices that the last two dimensions are; 0 for a tensor with fewer dimensions. For rules of
  // whole parameters.
  int64_t rows = 0, columns = 0;
  DType weight_dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  int32_t group = 0;  // index into the groups
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

  // In a kernel:
  /// Whether the update is left out.
  TERN_HD bool is_skipped() const {
    return skip_non_finite && ((norm && norm->non_finite) || (earlier && earlier->non_finite));
  }
  TERN_HD int64_t& count() const { return *step; }
  /// What gradients are multiplied by: 1 / loss scale and the clipping factor. The norm was taken of gradients as they
  /// lie in memory, that is, times the loss scale.
  TERN_HD double gradient_factor() const {
    const double unscale = inverse_scale ? static_cast<double>(*inverse_scale) : 1;
    if (!norm || max_norm <= 0) return unscale;
    return unscale * clip_factor(math::sqrt(norm->sum_of_squares) * unscale, max_norm);
  }
};

/// Updates n weights held in contiguous arrays of F. step: the rule's Step<F>.
template <class F>
using RuleTile = void (*)(const void* step, F* weight, const F* gradient, F* const* states, int64_t n);

/// A group's rule in one update, computed in F.
template <class F>
struct PreparedRule {
  alignas(16) unsigned char step[128];  // the rule's Step<F>
  RuleTile<F> tile = nullptr;           // its loop for the cases that hold
  F factor = 1;                         // of the gradients
};
template <class F>
using PrepareRule = void (*)(const void* groups, int32_t group, const OptimizerStep& step, PreparedRule<F>& prepared);

/// A rule for the loops of the CPU.
struct RuleFunctions {
  PrepareRule<float> f32 = nullptr;
  PrepareRule<double> f64 = nullptr;
};

struct OptimizerRules;
/// The type of `update_weights` below.
using OptimizerFunction = void(Stream stream, const OptimizerRules& rules, const OptimizerTensor* tensors,
                               int64_t count, const OptimizerStep& step);

/// The rule of every group; make_rules() in optimizer/tiles.h makes one. `builtin` is its index in BuiltinRules
/// (optimizer/rules.h), or -1 for a rule that a user defined: then `custom` holds its loops and `on_cuda` its kernels,
/// if it has any (cuda/optimizer/kernel.h).
struct OptimizerRules {
  int builtin = -1;
  const void* groups = nullptr;  // an array of the rule's struct
  RuleFunctions custom;
  OptimizerFunction* on_cuda = nullptr;
};

/// Updates all tensors by the rules of their groups.
TERN_KERNEL(void, update_weights, Stream stream, const OptimizerRules& rules, const OptimizerTensor* tensors,
            int64_t count, const OptimizerStep& step);

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
  bool equal = false;          // the mean of all weights so far instead of a decay
  double decay = 0.999;
  double warmup_gamma = 0, warmup_power = 1;  // gamma 0: no warmup
  const GradientNorm* norm = nullptr;         // device; the update is left out where one of these is not finite
  const GradientNorm* earlier = nullptr;

  TERN_HD bool is_skipped() const { return (norm && norm->non_finite) || (earlier && earlier->non_finite); }
  TERN_HD int64_t& count() const { return *updates; }
  /// How far update n, from 1, takes the averages to the weights: timm's ModelEmaV3.get_decay, 1 minus it. The first
  /// copies them.
  TERN_HD double share(int64_t n) const {
    if (n <= 1) return 1;
    if (equal) return 1 / static_cast<double>(n);
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
