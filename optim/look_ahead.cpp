#include "tern/optim/look_ahead.h"

#include <map>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise.h"

namespace tern::optim {
namespace {

DType slow_dtype(const Tensor& weight) { return weight.dtype() == float64 ? float64 : float32; }

}  // namespace

LookAhead::LookAhead(Optimizer& inner, const LookAheadOptions& options)
    : inner_(inner), options_(options), steps_done_(zeros({1}, {.dtype = int64})) {
  TERN_CHECK(options.steps >= 1, "look_ahead: steps must be >= 1, got ", options.steps);
  detail::check_share("look_ahead", "alpha", options.alpha);
  NoGrad off;
  for (const GroupState& group : inner.param_groups())
    for (const NamedTensor& parameter : group.parameters) {
      weights_.push_back(parameter);
      slow_.push_back(parameter.tensor.detach().to(slow_dtype(parameter.tensor)).clone());
    }
}

StepResult LookAhead::step(const StepOptions& options) {
  size_t parameters = 0;
  for (const GroupState& group : inner_.param_groups()) parameters += group.parameters.size();
  TERN_CHECK(parameters == weights_.size(), "look_ahead: the optimizer has ", parameters, " parameters, but had ",
             weights_.size(), " at first: add groups before making a LookAhead");
  const StepResult result = inner_.step(options);
  int64_t& done = steps_done_.data<int64_t>()[0];
  if (++done % options_.steps == 0) synchronise();
  return result;
}

void LookAhead::synchronise() {
  NoGrad off;
  // 16-bit weights are rounded from the optimizer's fp32 copies, which must follow.
  std::map<std::string, Tensor> masters;
  for (const NamedTensor& entry : inner_.state_dict())
    if (entry.name.rfind("master.", 0) == 0) masters[entry.name.substr(7)] = entry.tensor;
  for (size_t i = 0; i < weights_.size(); ++i) {
    Tensor weight = weights_[i].tensor.detach();
    const auto master = masters.find(weights_[i].name);
    const Tensor fast = master != masters.end() ? master->second : weight;
    slow_[i].copy_(lerp(slow_[i], fast.to(slow_[i].dtype()), options_.alpha));
    if (master != masters.end()) master->second.copy_(slow_[i]);
    weight.copy_(slow_[i]);
  }
}

StateView LookAhead::own_state() const {
  StateView state;
  for (size_t i = 0; i < weights_.size(); ++i) state.push_back({"slow." + weights_[i].name, slow_[i]});
  state.push_back({"steps_done", steps_done_});
  return state;
}

StateView LookAhead::state_dict() const {
  StateView state = inner_.state_dict();
  for (const NamedTensor& entry : own_state()) state.push_back(entry);
  return state;
}

void LookAhead::load_state_dict(const StateView& state) {
  const StateView own = own_state();
  StateView of_inner, of_this;
  for (const NamedTensor& entry : state) {
    const bool is_own = entry.name == "steps_done" || entry.name.rfind("slow.", 0) == 0;
    (is_own ? of_this : of_inner).push_back(entry);
  }
  StateView copies;  // a state that does not fit changes nothing
  for (const NamedTensor& entry : own) copies.push_back({entry.name, entry.tensor.clone()});
  load_state(copies, of_this);
  TERN_CHECK(copies.back().tensor.data<int64_t>()[0] >= 0, "look_ahead: the state's steps_done must be >= 0");
  inner_.load_state_dict(of_inner);
  load_state(own, of_this);
}

}  // namespace tern::optim
