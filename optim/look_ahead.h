#pragma once

#include "tern/optim/optimizer.h"

namespace tern::optim {

struct LookAheadOptions {
  int64_t steps = 5;   // of the inner optimizer between two steps of the slow weights
  double alpha = 0.5;  // how far those go towards the weights
};

/// Zhang et al., "Lookahead Optimizer: k steps forward, 1 step back", arXiv:1907.08610, around any optimizer: every
/// `steps` steps the slow weights, at first the weights, become slow + alpha (weights - slow), and the weights become
/// the slow ones, and so do fp32 copies and compensations of 16-bit weights. A step that the inner optimizer skips
/// counts. Schedules, scalers and groups are those of the inner optimizer, which must outlive this object.
class LookAhead {
 public:
  /// Throws Error unless steps >= 1 and alpha is in [0, 1].
  explicit LookAhead(Optimizer& inner, const LookAheadOptions& options = {});
  /// For a dist::ShardedOptimizer, whose groups have parts of the weights: the whole weights, which must be fp32 or
  /// fp64. Each process then keeps all slow weights.
  LookAhead(Optimizer& inner, const std::vector<NamedTensor>& weights, const LookAheadOptions& options);

  /// The inner optimizer's step, and after_step().
  StepResult step(const StepOptions& options = {});
  /// Counts a step that the inner optimizer has made elsewhere, as in GradScaler::step(inner()).
  void after_step();
  void zero_grad() { inner_.zero_grad(); }
  Optimizer& inner() { return inner_; }

  /// The inner optimizer's state, "slow.<name>" of each parameter (fp32, fp64 for fp64 weights) and "steps_done".
  StateView state_dict() const;
  /// Missing, unexpected and mis-shaped entries are listed in one Error, and nothing is written then.
  void load_state_dict(const StateView& state);

 private:
  void synchronise();
  StateView own_state() const;

  Optimizer& inner_;
  LookAheadOptions options_;
  std::vector<NamedTensor> weights_;
  std::vector<Tensor> slow_;
  Tensor steps_done_;  // int64 on the host
};

}  // namespace tern::optim
