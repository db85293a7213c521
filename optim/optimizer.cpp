#include "tern/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/profiler/profiler.h"
#include "tern/optim/gradient_norm.h"

namespace tern::optim {
namespace detail {

void check_not_negative(const char* optimizer, const char* option, double value) {
  TERN_CHECK(value >= 0 && std::isfinite(value), optimizer, ": ", option, " must be a finite number >= 0, got ", value);
}

void check_fraction(const char* optimizer, const char* option, double value) {
  TERN_CHECK(value >= 0 && value < 1, optimizer, ": ", option, " must be in [0, 1), got ", value);
}

void check_share(const char* optimizer, const char* option, double value) {
  TERN_CHECK(value >= 0 && value <= 1, optimizer, ": ", option, " must be in [0, 1], got ", value);
}

}  // namespace detail

namespace {

std::optional<Shape> shape_of(const Algorithm::State& state, const Tensor& parameter) {
  return state.shape ? state.shape(parameter.shape()) : parameter.shape();
}

}  // namespace

std::vector<ParameterGroup> no_decay_groups(const std::vector<NamedTensor>& parameters, double weight_decay) {
  std::vector<ParameterGroup> groups(2);
  groups[0].weight_decay = weight_decay;
  groups[1].weight_decay = 0;
  for (const NamedTensor& parameter : parameters)
    groups[parameter.tensor.dim() > 1 ? 0 : 1].parameters.push_back(parameter);
  return groups;
}

double StepResult::grad_norm() const {
  TERN_CHECK(norm_.defined(), "StepResult: the step measured no norm; give it max_norm or skip_non_finite");
  wait();
  const double inverse = inverse_scale_.defined() ? inverse_scale_.item<double>() : 1;
  return std::sqrt(read_norm(norm_).sum_of_squares) * inverse;
}

double StepResult::loss_scale() const {
  wait();
  return inverse_scale_.defined() ? 1 / inverse_scale_.item<double>() : 1;
}

StepResult StepResult::fetch() const {
  StepResult fetched = *this;
  for (Tensor* value : {&fetched.inverse_scale_, &fetched.norm_, &fetched.earlier_}) {
    if (!value->defined()) continue;
    fetched.arrival_ = std::make_shared<HostCopy>(*value);  // the last one arrives after the others
    *value = fetched.arrival_->tensor();
  }
  return fetched;
}

void StepResult::wait() const {
  if (arrival_) arrival_->wait();
}

bool StepResult::skipped() const {
  wait();
  const auto non_finite = [](const Tensor& norm) { return norm.defined() && read_norm(norm).non_finite != 0; };
  return skips_ && (non_finite(norm_) || non_finite(earlier_));
}

std::string StepResult::first_non_finite() const {
  TERN_CHECK(norm_.defined(), "StepResult: the step checked no gradients; give it max_norm or skip_non_finite");
  wait();
  const int32_t index = read_norm(norm_).first_bad;
  return index < 0 ? "" : names_->at(static_cast<size_t>(parameters_.at(static_cast<size_t>(index))));
}

std::vector<NamedTensor> join_parameters(const std::vector<std::pair<std::string, std::vector<NamedTensor>>>& roots) {
  std::vector<NamedTensor> joined;
  for (const auto& [root, parameters] : roots)
    for (const NamedTensor& parameter : parameters) joined.push_back({root + "." + parameter.name, parameter.tensor});
  return joined;
}

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups, const Algorithm& algorithm) : algorithm_(algorithm) {
  const char* const name = algorithm.name;
  detail::check_not_negative(name, "lr", algorithm.lr);
  detail::check_not_negative(name, "weight_decay", algorithm.weight_decay);
  TERN_CHECK(!algorithm.kahan || !algorithm.master_weights, name,
             ": kahan replaces fp32 master copies; set master_weights = false");
  for (const ParameterGroup& group : groups) append_group(group);
  TERN_CHECK(!slots_.empty(), name, ": there are no parameters");
  follow_device();
  on_groups_changed();
}

void Optimizer::check_kind(const Algorithm& algorithm) const {
  TERN_CHECK(algorithm.rule.type() == algorithm_.rule.type() && std::string(algorithm.name) == algorithm_.name,
             algorithm_.name, ": a group's algorithm must be of the same kind, got ", algorithm.name);
  const auto check = [&](const char* option, bool value, bool expected) {
    TERN_CHECK(value == expected, algorithm_.name, ": a group's ", option, " must be the optimizer's, ",
               expected ? "true" : "false");
  };
  check("master_weights", algorithm.master_weights, algorithm_.master_weights);
  check("kahan", algorithm.kahan, algorithm_.kahan);
  check("capturable", algorithm.capturable, algorithm_.capturable);
}

std::vector<Optimizer::Slot> Optimizer::slots_of(const ParameterGroup& group) const {
  const char* const optimizer = algorithm_.name;
  std::unordered_set<const tern::detail::TensorImpl*> tensors;
  std::unordered_set<std::string> names;
  for (const Slot& slot : slots_) {
    tensors.insert(slot.weight.impl());
    names.insert(slot.name);
  }
  std::vector<Slot> added;
  for (const auto& [name, tensor] : group.parameters) {
    TERN_CHECK(tensor.defined(), optimizer, ": parameter '", name, "' is an undefined tensor");
    TERN_CHECK(is_floating(tensor.dtype()) && tensor.is_leaf() && tensor.is_contiguous(), optimizer, ": parameter '",
               name, "' must be a contiguous floating leaf tensor, got ", tensor.describe());
    TERN_CHECK(!algorithm_.kahan || tensor.dtype() == bfloat16, optimizer,
               ": kahan is for bfloat16 weights, but parameter '", name, "' is ", tensor.dtype(),
               "; use master_weights for 16-bit weights of other types");
    TERN_CHECK(tensors.insert(tensor.impl()).second, optimizer, ": parameter '", name, "' is given twice");
    TERN_CHECK(names.insert(name).second, optimizer, ": the name '", name,
               "' is given twice, for two different parameters, and state is kept by name. Parameters of several "
               "models need distinct names: optim::join_parameters({{\"generator\", generator.parameters()}, ...})");
    const Device device = slots_.empty() ? group.parameters.front().tensor.device() : slots_.front().weight.device();
    TERN_CHECK(tensor.device() == device, optimizer, ": all parameters must be on one device, but '", name, "' is on ",
               tensor.device(), " and the first on ", device);
    Slot slot;
    slot.name = name;
    slot.weight = tensor;
    slot.group = static_cast<int32_t>(groups_.size());
    added.push_back(slot);
  }
  return added;
}

void Optimizer::append_group(const ParameterGroup& group) {
  if (group.algorithm) check_kind(*group.algorithm);
  const Algorithm& algorithm = group.algorithm ? *group.algorithm : algorithm_;
  const double lr = group.lr.value_or(algorithm.lr), decay = group.weight_decay.value_or(algorithm.weight_decay);
  detail::check_not_negative(algorithm_.name, "a group's lr", lr);
  detail::check_not_negative(algorithm_.name, "a group's weight_decay", decay);
  const std::vector<Slot> added = slots_of(group);
  slots_.insert(slots_.end(), added.begin(), added.end());
  groups_.push_back({.parameters = group.parameters,
                     .base_lr = lr,
                     .lr = lr,
                     .weight_decay = decay,
                     .momentum = algorithm.momentum,
                     .rule = algorithm.rule,
                     .states = algorithm.states});
}

void Optimizer::on_groups_changed() {
  auto names = std::make_shared<std::vector<std::string>>();
  for (const Slot& slot : slots_) names->push_back(slot.name);
  names_ = names;
  if (!algorithm_.capturable) return;
  rates_ = empty({static_cast<int64_t>(groups_.size())}, {.dtype = float64, .device = slots_.front().weight.device()});
  send_rates();
}

void Optimizer::add_param_group(const ParameterGroup& group) {
  const bool started = std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.started(); });
  TERN_CHECK(!algorithm_.capturable || !started, algorithm_.name,
             ": with the option capturable, groups are added before the first step: a captured step would not update "
             "them");
  append_group(group);
  on_groups_changed();
}

void Optimizer::set_lr(double lr) {
  detail::check_not_negative(algorithm_.name, "lr", lr);
  for (GroupState& group : groups_) group.base_lr = group.lr = lr;
  send_rates();
}

void Optimizer::set_lr_factor(double factor) {
  detail::check_not_negative(algorithm_.name, "the learning rate's factor", factor);
  for (GroupState& group : groups_) group.lr = group.base_lr * factor;
  send_rates();
}

void Optimizer::set_group_lr(const std::vector<double>& lr) {
  TERN_CHECK(lr.size() == groups_.size(), algorithm_.name, ": there are ", groups_.size(), " groups, got ", lr.size(),
             " learning rates");
  for (const double rate : lr) detail::check_not_negative(algorithm_.name, "a group's lr", rate);
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].lr = lr[g];
  send_rates();
}

void Optimizer::set_group_momentum(const std::vector<double>& momentum) {
  const char* const name = algorithm_.name;
  TERN_CHECK(momentum.size() == groups_.size(), name, ": there are ", groups_.size(), " groups, got ", momentum.size(),
             " momentums");
  TERN_CHECK(!algorithm_.capturable, name, ": the momentum is part of a captured step; set capturable = false");
  for (size_t g = 0; g < groups_.size(); ++g) {
    TERN_CHECK(groups_[g].momentum, name,
               " has neither momentum nor beta1; give the schedule {.cycle_momentum = false}");
    TERN_CHECK(*groups_[g].momentum > 0, name, ": a momentum of 0 has no state; make group ", g,
               " with one > 0, or give the schedule {.cycle_momentum = false}");
    TERN_CHECK(momentum[g] > 0 && momentum[g] < 1, name, ": a group's momentum must be in (0, 1), got ", momentum[g]);
  }
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].momentum = momentum[g];
}

void Optimizer::send_rates() {
  if (!algorithm_.capturable) return;
  NoGrad off;
  std::vector<double> rates;
  for (const GroupState& group : groups_) rates.push_back(group.lr);
  rates_.copy_(from_vector(rates, rates_.shape()));
}

void Optimizer::zero_grad() {
  for (Slot& slot : slots_) slot.weight.set_grad({});
}

bool Optimizer::wants_master(const Tensor& weight) const {
  return algorithm_.master_weights && is_low_precision(weight.dtype());
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) {
    for (const Tensor& state : slot.states)
      if (state.defined()) bytes += state.nbytes();
    if (slot.master.defined()) bytes += slot.master.nbytes();
    if (slot.compensation.defined()) bytes += slot.compensation.nbytes();
  }
  return bytes;
}

int64_t Optimizer::state_bytes_of(const Tensor& parameter) const {
  const int64_t of_state = is_low_precision(parameter.dtype()) ? size_of(float32) : size_of(parameter.dtype());
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.weight.impl() == parameter.impl(); });
  int64_t bytes = 0;
  for (const Algorithm::State& state : slot != slots_.end() ? states_of(*slot) : algorithm_.states)
    if (const std::optional<Shape> shape = shape_of(state, parameter)) bytes += shape->numel() * of_state;
  if (wants_master(parameter)) bytes += parameter.numel() * size_of(float32);
  if (algorithm_.kahan) bytes += parameter.nbytes();
  return bytes;
}

Optimizer::Gradients Optimizer::gradients() const {
  Gradients found;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Tensor gradient = slots_[i].weight.grad();
    if (!gradient.defined()) continue;
    found.tensors.push_back(gradient.detach().contiguous());
    found.parameters.push_back(static_cast<int32_t>(i));
  }
  return found;
}

Tensor Optimizer::norm_of(const std::vector<Tensor>& gradients, const std::vector<int32_t>&) {
  return optim::gradient_norm(gradients, slots_.front().weight.device(), norm_ticket_);
}

Tensor Optimizer::gradient_norm() {
  NoGrad off;
  follow_device();
  const Gradients found = gradients();
  return norm_of(found.tensors, found.parameters);
}

Optimizer::Slot Optimizer::fresh(const Slot& slot, Device device) const {
  const AllocationTag tag("optimizer state", true);
  check_kahan(slot);
  Slot full = slot;
  full.states.clear();
  full.dtype = slot.weight.dtype();
  TensorOptions options = slot.weight.options();
  options.device = device;
  full.step = zeros({1}, {.dtype = int64, .device = options.device});
  if (is_low_precision(options.dtype)) options.dtype = float32;
  for (const Algorithm::State& state : states_of(slot)) {
    const std::optional<Shape> shape = shape_of(state, slot.weight);
    full.states.push_back(shape ? tern::full(*shape, state.initial, options) : Tensor());
  }
  if (wants_master(slot.weight)) full.master = slot.weight.detach().to(device).to(float32);
  if (algorithm_.kahan)
    full.compensation = zeros(slot.weight.shape(), {.dtype = slot.weight.dtype(), .device = device});
  return full;
}

void Optimizer::check_kahan(const Slot& slot) const {
  TERN_CHECK(!algorithm_.kahan || slot.weight.dtype() == bfloat16, algorithm_.name,
             ": kahan is for bfloat16 weights, but parameter '", slot.name, "' is now ", slot.weight.dtype(),
             "; use master_weights for weights of other types");
}

Optimizer::Slot Optimizer::converted(const Slot& slot) const {
  check_kahan(slot);
  const AllocationTag tag("optimizer state", true);
  const NoGrad off;
  Slot result = slot;
  result.dtype = slot.weight.dtype();
  const DType compute = result.dtype == float64 ? float64 : float32;
  for (Tensor& state : result.states)
    if (state.defined()) state = state.to(compute);
  if (!wants_master(slot.weight))
    result.master = {};
  else if (!slot.master.defined())
    result.master = slot.weight.detach().to(slot.step.device()).to(float32);
  return result;
}

Optimizer::Slot Optimizer::completed(int32_t parameter) const {
  Slot slot = slots_[static_cast<size_t>(parameter)];
  const Device device = slot.weight.device();
  if (slot.started()) return slot.dtype == slot.weight.dtype() || !is_own(parameter) ? slot : converted(slot);
  if (is_own(parameter)) return fresh(slot, device);
  slot.step = zeros({1}, {.dtype = int64, .device = device});
  slot.dtype = slot.weight.dtype();
  return slot;
}

/// Throws Error unless all weights are on one device, with the state that there is; what does not depend on the state
/// goes to their device.
void Optimizer::follow_device() {
  const Device device = slots_.front().weight.device();
  for (const Slot& slot : slots_) {
    TERN_CHECK(slot.weight.device() == device, algorithm_.name, ": all parameters must be on one device, but '",
               slot.name, "' is on ", slot.weight.device(), " and the first on ", device);
    TERN_CHECK(!slot.started() || slot.step.device() == device, algorithm_.name, ": parameter '", slot.name,
               "' is now on ", device, ", but its state is on ", slot.step.device(),
               "; after Module::to(device) make a new optimizer, and load this one's state_dict() into it");
  }
  if (norm_ticket_.defined() ? norm_ticket_.device() != device : device.is_cuda())
    norm_ticket_ = device.is_cuda() ? zeros({}, {.dtype = int32, .device = device}) : Tensor();
  if (rates_.defined() && rates_.device() != device) on_groups_changed();
}

/// Brings the step counters in order. Corrections for Adam's bias count the updates of each parameter, as PyTorch does:
/// parameters without a gradient now part from the counter they shared, and those that start now share a new one.
void Optimizer::prepare(const std::vector<int32_t>& active) {
  std::vector<bool> is_active(slots_.size(), false);
  std::map<int64_t, Tensor> fresh_of;  // by bucket
  for (const int32_t i : active) {
    Slot& slot = slots_[static_cast<size_t>(i)];
    is_active[static_cast<size_t>(i)] = true;
    const bool starts = !slot.started();
    slot = completed(i);
    if (!starts) continue;
    Tensor& shared = fresh_of[bucket_of(i)];
    if (shared.defined()) slot.step = shared;
    shared = slot.step;
  }
  std::unordered_set<const tern::detail::TensorImpl*> moving;
  for (const int32_t i : active) moving.insert(slots_[static_cast<size_t>(i)].step.impl());
  std::map<const tern::detail::TensorImpl*, Tensor> left_behind;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (is_active[i] || !slot.started() || !moving.contains(slot.step.impl())) continue;
    Tensor& copy = left_behind[slot.step.impl()];
    if (!copy.defined()) copy = slot.step.clone();
    slot.step = copy;
  }
}

StepResult Optimizer::step(const StepOptions& options) {
  TERN_CHECK(options.max_norm >= 0, algorithm_.name, ": max_norm must be >= 0 (0: no clipping), got ",
             options.max_norm);
  NoGrad off;
  follow_device();
  StepResult result;
  result.names_ = names_;
  const Gradients gradients = this->gradients();
  result.parameters_ = gradients.parameters;
  prepare(result.parameters_);

  kernels::OptimizerStep step;
  if (options.inverse_scale.defined()) {
    const Device device = slots_.front().weight.device();
    TERN_CHECK(options.inverse_scale.dtype() == float32 && options.inverse_scale.numel() == 1 &&
                   options.inverse_scale.device() == device,
               algorithm_.name, ": inverse_scale must be one float32 on ", device, ", where the parameters are, got ",
               options.inverse_scale.describe());
    result.inverse_scale_ = options.inverse_scale.clone();
    step.inverse_scale = static_cast<const float*>(result.inverse_scale_.raw_data());
  }
  if (rates_.defined()) step.lr = static_cast<const double*>(rates_.raw_data());
  result.earlier_ = options.earlier_norm;
  step.earlier = norm_data(options.earlier_norm);
  step.max_norm = std::isfinite(options.max_norm) ? options.max_norm : 0;
  step.skip_non_finite = options.skip_non_finite;
  if (options.max_norm > 0 || options.skip_non_finite) {
    result.norm_ = norm_of(gradients.tensors, gradients.parameters);
    result.skips_ = options.skip_non_finite;
    step.norm = norm_data(result.norm_);
  }

  if (algorithm_.whole)
    run_whole_updates(gradients, options, result);
  else
    run_updates(gradients, step);
  return result;
}

kernels::OptimizerTensor Optimizer::describe(const Slot& slot, const Tensor& gradient) const {
  kernels::OptimizerTensor tensor;
  tensor.weight = slot.weight.raw_data();
  tensor.gradient = gradient.raw_data();
  for (size_t i = 0; i < slot.states.size(); ++i)
    if (slot.states[i].defined()) tensor.states[states_of(slot)[i].index] = slot.states[i].raw_data();
  if (slot.master.defined()) tensor.master = slot.master.raw_data();
  if (slot.compensation.defined()) tensor.compensation = slot.compensation.raw_data();
  tensor.size = slot.weight.numel();
  if (slot.weight.dim() > 1) {
    tensor.rows = slot.weight.size(-2);
    tensor.columns = slot.weight.size(-1);
  }
  tensor.weight_dtype = slot.weight.dtype();
  tensor.gradient_dtype = gradient.dtype();
  tensor.group = slot.group;
  return tensor;
}

/// One kernel call for all parameters that share a counter: a single one, or one a bucket, unless some had no gradient
/// at times.
void Optimizer::run_updates(const Gradients& gradients, kernels::OptimizerStep step) {
  const ProfileRange range(algorithm_.name, RangeKind::kOp);
  struct Batch {
    Tensor counter;
    int64_t bucket;
    std::vector<kernels::OptimizerTensor> tensors;
  };
  std::vector<Batch> batches;
  std::map<const tern::detail::TensorImpl*, size_t> batch_of;
  int64_t bytes = 0;  // gradients are read, weights and state read and written
  for (size_t k = 0; k < gradients.tensors.size(); ++k) {
    const auto index = static_cast<size_t>(gradients.parameters[k]);
    const Slot& slot = slots_[index];
    const auto [entry, is_new] = batch_of.try_emplace(slot.step.impl(), batches.size());
    if (is_new) batches.push_back({slot.step, bucket_of(gradients.parameters[k]), {}});
    slot.weight.bump_version();
    if (!is_own(gradients.parameters[k])) continue;
    batches[entry->second].tensors.push_back(describe(slot, gradients.tensors[k]));
    bytes += gradients.tensors[k].nbytes() + 2 * slot.weight.nbytes();
    for (const Tensor& state : slot.states) bytes += state.defined() ? 2 * state.nbytes() : 0;
    if (slot.master.defined()) bytes += 2 * slot.master.nbytes();
  }
  std::stable_sort(batches.begin(), batches.end(), [](const Batch& a, const Batch& b) { return a.bucket < b.bucket; });
  const kernels::Stream stream = current_stream(slots_.front().weight.device());
  for (size_t i = 0; i < batches.size(); ++i) {
    step.step = static_cast<int64_t*>(batches[i].counter.raw_data());
    algorithm_.update(stream, groups_, batches[i].tensors, step);
    const bool is_last = i + 1 == batches.size() || batches[i + 1].bucket != batches[i].bucket;
    if (is_last) on_updated(batches[i].bucket);
  }
  on_step_end();
  if (range.recording()) profile_bytes(static_cast<double>(bytes));
}

void Optimizer::append_state(const Slot& slot, StateView& state) const {
  state.push_back({"step." + slot.name, slot.step});
  for (size_t i = 0; i < slot.states.size(); ++i)
    if (slot.states[i].defined()) state.push_back({states_of(slot)[i].name + "." + slot.name, slot.states[i]});
  if (slot.master.defined()) state.push_back({"master." + slot.name, slot.master});
  if (slot.compensation.defined()) state.push_back({"compensation." + slot.name, slot.compensation});
}

StateView Optimizer::state_dict() const {
  StateView state;
  for (size_t i = 0; i < slots_.size(); ++i) append_state(completed(static_cast<int32_t>(i)), state);
  return state;
}

StateView Optimizer::state_of(int32_t parameter) const {
  StateView state;
  Slot slot = completed(parameter);
  const Tensor step = slot.step;
  if (!is_own(parameter)) slot = fresh(slot, slot.weight.device());
  slot.step = step;
  append_state(slot, state);
  return state;
}

void Optimizer::check_steps(const StateView& state) const {
  for (const NamedTensor& entry : state) {
    if (entry.name.rfind("step.", 0) != 0 || entry.tensor.numel() != 1) continue;
    const int64_t count = entry.tensor.item<int64_t>();
    TERN_CHECK(count >= 0, algorithm_.name, ": the state's ", entry.name, " must be >= 0, got ", count);
  }
}

void Optimizer::load_state_dict(const StateView& state) {
  check_steps(state);
  std::vector<Slot> loaded;
  StateView target;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const auto parameter = static_cast<int32_t>(i);
    loaded.push_back(is_own(parameter) ? completed(parameter) : fresh(slot, cpu));
    loaded.back().step = zeros({1}, {.dtype = int64, .device = slot.weight.device()});
    append_state(loaded.back(), target);
  }
  load_state(target, state);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (is_own(static_cast<int32_t>(i))) continue;
    slots_[i].step = loaded[i].step;  // the rest was read to be checked
    loaded[i] = slots_[i];
  }
  slots_ = loaded;
  share_steps();
}

/// Parameters of a bucket with equal counts share one counter; those that were never updated start afresh.
void Optimizer::share_steps() {
  std::map<std::pair<int64_t, int64_t>, Tensor> counters;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Tensor& step = slots_[i].step;
    step = counters.try_emplace({bucket_of(static_cast<int32_t>(i)), step.item<int64_t>()}, step).first->second;
  }
}

}  // namespace tern::optim
