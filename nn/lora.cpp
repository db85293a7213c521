#include "tern/nn/lora.h"

#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

int64_t checked_rank(const LoRAOptions& options) {
  TERN_CHECK(options.rank >= 1, "nn::LoRA: rank must be >= 1, got ", options.rank);
  TERN_CHECK(std::isfinite(options.alpha), "nn::LoRA: alpha must be finite, got ", options.alpha);
  TERN_CHECK(options.dropout >= 0 && options.dropout <= 1, "nn::LoRA: dropout must be in [0, 1], got ",
             options.dropout);
  return options.rank;
}

/// Calls function(layer, adapter) for each linear layer below `module` that has one, and returns their number.
template <class Function>
int64_t for_each_lora(Module& module, const Function& function) {
  int64_t count = 0;
  module.apply([&](Module& each) {
    auto* const linear = dynamic_cast<Linear*>(&each);
    auto* const lora = linear ? dynamic_cast<LoRA*>(linear->adapter()) : nullptr;
    if (!lora) return;
    function(*linear, *lora);
    ++count;
  });
  return count;
}

}  // namespace

LoRA::LoRA(const Scope& s, const Linear& linear, const LoRAOptions& options)
    : LinearAdapter(s),
      scale_(options.alpha / static_cast<double>(checked_rank(options))),
      dropout_(options.dropout),
      a_(this, "A", {options.rank, linear.weight().shape()[1]}, init::kaiming_uniform({.slope = std::sqrt(5.0)})),
      b_(this, "B", {linear.weight().shape()[0], options.rank}) {}

Tensor LoRA::forward(const Linear& linear, const Tensor& x, Activation activation) const {
  if (is_merged()) return tern::linear(x, linear.weight(), linear.bias(), activation);
  const Tensor base = tern::linear(x, linear.weight(), linear.bias());
  const bool drops = is_training() && dropout_ > 0;
  const Tensor given = drops ? dropout(x, {.p = dropout_, .generator = &generator()}) : x;
  return activated(base + tern::linear(tern::linear(given, a_), b_) * scale_, activation);
}

void LoRA::merge(const Linear& linear) {
  TERN_CHECK(!is_merged(), "nn::LoRA: '", linear.name(), "' is merged already");
  NoGrad off;
  Tensor weight = linear.weight();
  before_ = weight.detach().clone();
  weight.add_(matmul(b_.tensor(), a_.tensor()) * scale_);
}

void LoRA::unmerge(const Linear& linear) {
  TERN_CHECK(is_merged(), "nn::LoRA: '", linear.name(), "' is not merged");
  NoGrad off;
  Tensor weight = linear.weight();
  weight.copy_(before_);
  before_ = {};
}

void LoRA::copy_own_from(const Module& source) {
  const Tensor& before = dynamic_cast<const LoRA&>(source).before_;
  before_ = before.defined() ? before.clone() : before;
}

int64_t add_lora(Module& module, const AddLoRAOptions& options) {
  std::vector<Linear*> layers;
  const size_t prefix = module.name().empty() ? 0 : module.name().size() + 1;
  module.apply([&](Module& each) {
    auto* const linear = dynamic_cast<Linear*>(&each);
    const std::string name = &each == &module ? "" : each.name().substr(prefix);
    if (linear && matches_pattern(name, options.target)) layers.push_back(linear);
  });
  TERN_CHECK(!layers.empty(), "nn::add_lora: no linear layer matches '", options.target, "'");
  for (const Linear* layer : layers)
    TERN_CHECK(!layer->adapter(), "nn::add_lora: '", layer->name(), "' has an adapter, '",
               layer->adapter()->local_name(), "'");
  checked_rank(options.lora);  // nothing has changed when something is wrong
  for (const std::string& pattern : options.trainable)
    TERN_CHECK(!module.parameters(pattern).empty(), "nn::add_lora: no parameter matches '", pattern,
               "' of trainable; parameters() lists their names");
  module.freeze();
  for (Linear* layer : layers) layer->adapt<LoRA>("lora", options.lora);
  for_each_lora(module, [](Linear&, LoRA& lora) { lora.unfreeze(); });
  for (const std::string& pattern : options.trainable) module.unfreeze(pattern);
  return static_cast<int64_t>(layers.size());
}

void merge_lora(Module& module) {
  const int64_t count = for_each_lora(module, [](Linear& linear, LoRA& lora) { lora.merge(linear); });
  TERN_CHECK(count > 0, "nn::merge_lora: no linear layer has a LoRA adapter; add_lora() gives them");
}

void unmerge_lora(Module& module) {
  const int64_t count = for_each_lora(module, [](Linear& linear, LoRA& lora) { lora.unmerge(linear); });
  TERN_CHECK(count > 0, "nn::unmerge_lora: no linear layer has a LoRA adapter; add_lora() gives them");
}

StateView lora_state(const Module& module) {
  StateView state = module.state_dict({.pattern = "lora.[AB]"});  // of a linear layer
  for (const NamedTensor& entry : module.state_dict({.pattern = "*.lora.[AB]"})) state.push_back(entry);
  return state;
}

}  // namespace tern::nn
