// Steps of optimizers whose rules are made of ops (Algorithm::whole), on the parameters' device.

#include <cmath>
#include <map>
#include <set>

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/profiler/profiler.h"
#include "tern/optim/optimizer.h"

namespace tern::optim {
namespace {

/// A GradientNorm's sum of squares, float64 without dimensions.
Tensor sum_of_squares(const Tensor& norm) { return norm.select(0, 0); }

/// True where the update is left out; undefined where it never is. The sum is finite exactly when all gradients are.
Tensor skip_flag(const Tensor& norm, const Tensor& earlier) {
  Tensor flag;
  for (const Tensor& found : {norm, earlier}) {
    if (!found.defined()) continue;
    const Tensor bad = logical_not(isfinite(sum_of_squares(found)));
    flag = flag.defined() ? logical_or(flag, bad) : bad;
  }
  return flag;
}

/// What gradients are multiplied by, float64 without dimensions: 1 / loss scale and the clipping factor
/// (kernels::OptimizerStep::gradient_factor); undefined: 1.
Tensor gradient_factor(const Tensor& inverse_scale, const Tensor& norm, double max_norm) {
  Tensor factor;
  if (inverse_scale.defined()) factor = inverse_scale.reshape({}).to(float64);
  if (!(max_norm > 0) || !std::isfinite(max_norm)) return factor;
  Tensor length = sqrt(sum_of_squares(norm));
  if (factor.defined()) length = length * factor;
  const Tensor clip = minimum(max_norm / (length + 1e-6), ones({}, length.options()));
  return factor.defined() ? factor * clip : clip;
}

}  // namespace

void Optimizer::run_whole_updates(const Gradients& gradients, const StepOptions& options, const StepResult& result) {
  const ProfileRange range(algorithm_.name, RangeKind::kOp);
  const Tensor skip = options.skip_non_finite ? skip_flag(result.norm_, result.earlier_) : Tensor();
  const Tensor factor = gradient_factor(result.inverse_scale_, result.norm_, options.max_norm);
  const auto unless_skipped = [&](const Tensor& value, const Tensor& old) {
    return skip.defined() ? where(skip, old, value) : value;
  };
  std::set<const tern::detail::TensorImpl*> counted;
  std::vector<Tensor> counters;
  std::map<int32_t, std::vector<size_t>> of_group;  // places in `gradients`
  for (size_t k = 0; k < gradients.tensors.size(); ++k) {
    Slot& slot = slots_[static_cast<size_t>(gradients.parameters[k])];
    if (counted.insert(slot.step.impl()).second) counters.push_back(slot.step);
    slot.weight.bump_version();
    if (is_own(gradients.parameters[k])) of_group[slot.group].push_back(k);
  }
  for (const auto& [group, places] : of_group) {
    std::vector<WholeParameter> parameters;
    std::vector<Tensor> before;
    for (const size_t k : places) {
      const Slot& slot = slots_[static_cast<size_t>(gradients.parameters[k])];
      const DType compute = slot.weight.dtype() == float64 ? float64 : float32;
      before.push_back((slot.master.defined() ? slot.master : slot.weight.detach()).to(compute));
      Tensor gradient = gradients.tensors[k].to(compute);
      if (factor.defined()) gradient = gradient * factor.to(compute);
      parameters.push_back({slot.name, before.back(), gradient, slot.states, (slot.step.reshape({}) + 1).to(float64)});
    }
    algorithm_.whole(groups_[static_cast<size_t>(group)], parameters);
    for (size_t p = 0; p < places.size(); ++p) {
      Slot& slot = slots_[static_cast<size_t>(gradients.parameters[places[p]])];
      for (size_t i = 0; i < slot.states.size(); ++i)
        if (slot.states[i].defined()) slot.states[i].copy_(unless_skipped(parameters[p].states[i], slot.states[i]));
      Tensor target = slot.master.defined() ? slot.master : slot.weight.detach();
      target.copy_(unless_skipped(parameters[p].weight, before[p]));
      if (slot.master.defined()) slot.weight.detach().copy_(slot.master);
    }
  }
  for (Tensor& counter : counters) {
    const Tensor next = counter + 1;
    counter.copy_(skip.defined() ? where(skip, counter, next) : next);
  }
  on_step_end();
}

}  // namespace tern::optim
