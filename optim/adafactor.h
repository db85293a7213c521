#pragma once

#include "tern/kernels/optimizer/layerwise.h"
#include "tern/optim/rule_optimizer.h"

namespace tern::optim {

struct AdafactorOptions {
  static constexpr const char* kName = "adafactor";
  double lr = 1e-2;           // the largest relative step
  double beta2_decay = -0.8;  // beta2 of update t is 1 - t^beta2_decay
  double eps1 = 0;            // smallest squared gradient is eps1^2; 0: the epsilon of fp32 (fp64 for fp64 weights)
  double eps2 = 1e-3;         // smallest scale of a parameter
  double d = 1;               // an update whose root mean square is larger is scaled to it
  double weight_decay = 0;
  bool maximize = false;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // as AdamWOptions'
  bool capturable = false;     // as AdamWOptions'

  kernels::AdafactorRule rule() const;
  static std::vector<Algorithm::State> states();
  static void update_all(kernels::Stream stream, const std::vector<kernels::AdafactorRule>& groups,
                         const std::vector<kernels::OptimizerTensor>& tensors, const kernels::OptimizerStep& step);
};

/// Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", arXiv:1804.04235, with
/// torch.optim.Adafactor's defaults and order of operations. State: row_var and col_var of parameters with two
/// dimensions or more (for a matrix [m, n]: m + n numbers), variance of the others. Three passes over all parameters;
/// kernels/optimizer/layerwise.h says what they read and write.
using Adafactor = RuleOptimizer<AdafactorOptions>;

}  // namespace tern::optim
