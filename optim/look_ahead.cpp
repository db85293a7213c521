#include "tern/optim/look_ahead.h"

#include <algorithm>
#include <map>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"

namespace tern::optim {
namespace {

std::vector<NamedTensor> parameters_of(const Optimizer& optimizer) {
  std::vector<NamedTensor> parameters;
  for (const GroupState& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  return parameters;
}

DType slow_dtype(const Tensor& weight) { return weight.dtype() == float64 ? float64 : float32; }

}  // namespace

LookAhead::LookAhead(Optimizer& inner, const LookAheadOptions& options)
    : LookAhead(inner, parameters_of(inner), options) {}

LookAhead::LookAhead(Optimizer& inner, const std::vector<NamedTensor>& weights, const LookAheadOptions& options)
    : inner_(inner), options_(options), weights_(weights), steps_done_(zeros({1}, {.dtype = int64})) {
  TERN_CHECK(options.steps >= 1, "look_ahead: steps must be >= 1, got ", options.steps);
  detail::check_share("look_ahead", "alpha", options.alpha);
  const std::vector<NamedTensor> own = parameters_of(inner);
  const auto same = [](const NamedTensor& a, const NamedTensor& b) { return a.tensor.impl() == b.tensor.impl(); };
  const bool whole = std::equal(weights.begin(), weights.end(), own.begin(), own.end(), same);
  NoGrad off;
  for (const NamedTensor& weight : weights_) {
    TERN_CHECK(whole || !is_low_precision(weight.tensor.dtype()), "look_ahead: the optimizer has parts of the weight '",
               weight.name, "', which must then be float32 or float64, got ", weight.tensor.dtype());
    slow_.push_back(weight.tensor.detach().to(slow_dtype(weight.tensor)).clone());
  }
}

StepResult LookAhead::step(const StepOptions& options) {
  const StepResult result = inner_.step(options);
  after_step();
  return result;
}

void LookAhead::after_step() {
  size_t parameters = 0;
  for (const GroupState& group : inner_.param_groups()) parameters += group.parameters.size();
  TERN_CHECK(parameters == weights_.size(), "look_ahead: the optimizer has ", parameters, " parameters, but had ",
             weights_.size(), " at first: add groups before making a LookAhead");
  int64_t& done = steps_done_.data<int64_t>()[0];
  if (++done % options_.steps == 0) synchronise();
}

void LookAhead::synchronise() {
  NoGrad off;
  // 16-bit weights are rounded from the optimizer's fp32 copies, or are compensated: both must follow.
  const bool low_precision = std::any_of(weights_.begin(), weights_.end(), [](const NamedTensor& weight) {
    return is_low_precision(weight.tensor.dtype());
  });
  const StateView state = low_precision ? inner_.state_dict() : StateView();
  std::map<std::string, Tensor> kept;
  for (const NamedTensor& entry : state) kept[entry.name] = entry.tensor;
  const auto find_kept = [&](const char* kind, const std::string& name) {
    const auto found = kept.find(kind + name);
    return found == kept.end() ? Tensor() : found->second;
  };
  for (size_t i = 0; i < weights_.size(); ++i) {
    Tensor weight = weights_[i].tensor.detach(), master = find_kept("master.", weights_[i].name);
    Tensor compensation = find_kept("compensation.", weights_[i].name);
    slow_[i] = slow_[i].to(slow_dtype(weight));  // which Module::to may have converted
    Tensor fast = (master.defined() ? master : weight).to(slow_[i].dtype());
    if (compensation.defined()) fast = fast + compensation.to(fast.dtype());
    slow_[i].copy_(lerp(slow_[i], fast, options_.alpha));
    if (master.defined()) master.copy_(slow_[i]);
    weight.copy_(slow_[i]);
    if (compensation.defined()) compensation.copy_(slow_[i] - weight.to(slow_[i].dtype()));
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
