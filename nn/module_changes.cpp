// What changes all modules of a tree: conversion, copies, freezing; hooks.

#include <algorithm>
#include <atomic>
#include <typeinfo>
#include <utility>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/node.h"
#include "tern/core/device/capture_state.h"
#include "tern/nn/module.h"

namespace tern::nn {
namespace {

/// Gives `tensor`, and so every handle to it, the values, dtype and device of `values`, a new tensor.
void reseat(const Tensor& tensor, const Tensor& values) {
  // By the version backward finds that what it has saved is out of date.
  while (values.version() <= tensor.version()) values.bump_version();
  tern::detail::TensorImpl& impl = *tensor.impl();
  impl.storage = values.storage();
  impl.offset = values.storage_offset();
  impl.strides = values.strides();
  impl.contiguous = true;
  impl.dtype = values.dtype();
  if (impl.autograd) impl.autograd->accumulator.reset();  // it expects gradients of the earlier dtype and device
}

std::vector<NamedTensor> all_tensors(const Module& module) {
  std::vector<NamedTensor> tensors = module.parameters();
  const std::vector<NamedTensor> buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

/// The first entries that differ in name, shape, dtype or device; empty when none do.
std::string first_difference(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  const auto text = [](const std::vector<NamedTensor>& list, size_t i) {
    return i < list.size() ? "'" + list[i].name + "' (" + list[i].tensor.describe() + ")" : std::string("nothing");
  };
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    if (text(a, i) != text(b, i)) return text(b, i) + " where this module has " + text(a, i);
  return "";
}

int64_t next_handle() {
  static std::atomic<int64_t> next = 1;
  return next++;
}

}  // namespace

int64_t Module::require_grad(const std::string& pattern, bool value) {
  std::vector<NamedTensor> found = parameters(pattern);
  TERN_CHECK(!found.empty(), "nn: no parameter of ", name_.empty() ? "the root module" : name_, " matches '", pattern,
             "'; parameters() lists their names");
  for (NamedTensor& parameter : found) {
    parameter.tensor.set_requires_grad(value);
    if (!value) parameter.tensor.set_grad({});
  }
  return static_cast<int64_t>(found.size());
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (Module* child : children_) child->apply(function);
  function(*this);
}

template <class Convert>
void Module::convert(const Convert& convert) {
  NoGrad off;
  std::vector<std::pair<Tensor, Tensor>> values, gradients;  // all are made before the first is put into place
  for (const NamedTensor& entry : all_tensors(*this)) {
    const Tensor converted = convert(entry.tensor.detach());
    if (converted.storage() == entry.tensor.storage()) continue;
    values.emplace_back(entry.tensor, converted);
    if (entry.tensor.grad().defined()) gradients.emplace_back(entry.tensor, convert(entry.tensor.grad()));
  }
  for (const auto& [tensor, converted] : values) {
    if (tensor.device().is_cuda()) tern::detail::note_moved_weights();
    reseat(tensor, converted);
  }
  for (auto& [tensor, gradient] : gradients) tensor.set_grad(gradient);
  tern::detail::expire_weight_copies();
}

void Module::to(Device device) {
  require_available(device);
  convert([&](const Tensor& tensor) { return tensor.to(device); });
  apply([&](Module& module) { module.options_.device = device; });
}

void Module::to(DType dtype) {
  TERN_CHECK(is_floating(dtype), "nn: parameters need a floating dtype, got ", name_of(dtype));
  convert([&](const Tensor& tensor) { return is_floating(tensor.dtype()) ? tensor.to(dtype) : tensor; });
  apply([&](Module& module) { module.options_.dtype = dtype; });
}

void Module::copy_from(const Module& source) {
  std::vector<NamedTensor> own = all_tensors(*this);
  const std::vector<NamedTensor> given = all_tensors(source);
  const std::string difference = first_difference(own, given);
  TERN_CHECK(difference.empty(), "nn: copy_from and clone need a module of the same structure, but the source has ",
             difference);
  NoGrad off;
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].tensor.copy_(given[i].tensor);
    if (!is_floating(given[i].tensor.dtype())) continue;
    const Tensor gradient = given[i].tensor.grad();
    own[i].tensor.set_requires_grad(given[i].tensor.requires_grad());
    own[i].tensor.set_grad(gradient.defined() ? gradient.clone() : gradient);
  }
  copy_modes_from(source);
}

void Module::copy_modes_from(const Module& source) {
  training_ = source.training_;
  if (typeid(*this) == typeid(source)) copy_own_from(source);
  hooks_ = source.hooks_ ? std::make_unique<Hooks>(*source.hooks_) : nullptr;
  for (Module* child : children_)
    for (const Module* other : source.children_)
      if (other->local_name() == child->local_name()) child->copy_modes_from(*other);
}

int64_t Module::register_forward_pre_hook(ForwardPreHook hook) {
  TERN_CHECK(hook != nullptr, "nn: register_forward_pre_hook: the hook is an empty function");
  if (!hooks_) hooks_ = std::make_unique<Hooks>();
  return hooks_->before.emplace_back(next_handle(), std::move(hook)).first;
}

int64_t Module::register_forward_hook(ForwardHook hook) {
  TERN_CHECK(hook != nullptr, "nn: register_forward_hook: the hook is an empty function");
  if (!hooks_) hooks_ = std::make_unique<Hooks>();
  return hooks_->after.emplace_back(next_handle(), std::move(hook)).first;
}

void Module::remove_hook(int64_t handle) {
  if (!hooks_) return;
  const auto is_it = [&](const auto& entry) { return entry.first == handle; };
  std::erase_if(hooks_->before, is_it);
  std::erase_if(hooks_->after, is_it);
  if (hooks_->before.empty() && hooks_->after.empty()) hooks_.reset();
}

Tensor Module::after_pre_hooks(const Tensor& x) const {
  Tensor given = x;
  const auto hooks = hooks_->before;  // a copy: a hook may remove itself
  for (const auto& [handle, hook] : hooks)
    if (const Tensor replacement = hook(*this, given); replacement.defined()) given = replacement;
  return given;
}

Tensor Module::after_hooks(const Tensor& x, const Tensor& y) const {
  if (!hooks_) return y;  // the hooks before may have removed themselves
  Tensor result = y;
  const auto hooks = hooks_->after;
  for (const auto& [handle, hook] : hooks)
    if (const Tensor replacement = hook(*this, x, result); replacement.defined()) result = replacement;
  return result;
}

StateView without_prefix(const StateView& state, const std::string& prefix) {
  StateView part;
  for (const NamedTensor& entry : state)
    if (entry.name.starts_with(prefix)) part.push_back({entry.name.substr(prefix.size()), entry.tensor});
  return part;
}

}  // namespace tern::nn
