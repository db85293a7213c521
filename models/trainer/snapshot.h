#pragma once
// Copies of a module's weights and buffers that can be restored.

#include "tern/core/autograd/grad_mode.h"
#include "tern/nn/module.h"

namespace tern::models {

class Snapshot {
 public:
  bool taken() const { return !state_.empty(); }
  /// Sets the copy to `weights` of a module of the same class.
  void load(const nn::Module& module, const StateView& weights) {
    take(module);
    NoGrad off;
    load_state(state_, weights);
  }
  void take(const nn::Module& module) {
    NoGrad off;
    const StateView state = module.state_dict();
    if (!taken()) {
      for (const NamedTensor& entry : state) state_.push_back({entry.name, entry.tensor.detach().clone()});
      return;
    }
    for (size_t i = 0; i < state.size(); ++i) state_[i].tensor.copy_(state[i].tensor.detach());
  }
  void restore(nn::Module& module) const { module.load_state_dict(state_); }
  const StateView& state() const { return state_; }

 private:
  StateView state_;
};

/// What a trial changes in a module: restore() brings back its weights, buffers, generator and mode, and drops the
/// gradients.
class ModuleState {
 public:
  explicit ModuleState(nn::Module& module)
      : module_(module),
        seed_(module.generator().seed()),
        offset_(module.generator().offset()),
        training_(module.is_training()) {
    weights_.take(module);
  }
  void restore() {
    weights_.restore(module_);
    module_.zero_grad();
    module_.generator().set_seed(seed_);
    module_.generator().set_offset(offset_);
    module_.train(training_);
  }

 private:
  nn::Module& module_;
  Snapshot weights_;
  uint64_t seed_, offset_;
  bool training_;
};

}  // namespace tern::models
