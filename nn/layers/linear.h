#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <utility>

#include "tern/core/ops/row_chain.h"
#include "tern/nn/module.h"

namespace tern::nn {

struct LinearOptions {
  bool bias = true;
  Initializer weight_init = {};       // torch.nn.Linear's, uniform within 1 / sqrt(in), unless given
  Initializer bias_init = {};         // the same unless given
  std::optional<Shared> weight = {};  // ties the weight: {.weight = share(embedding.weight())}
};

class Linear;

/// activation(x), for adapters that do not end with tern::linear.
Tensor activated(const Tensor& x, Activation activation);

/// What computes a Linear's result in its place, wherever the layer is used: a low-rank addition (LoRA, Hu et al.,
/// arXiv:2106.09685), a quantised weight. Its parameters are the layer's members.
class LinearAdapter : public Module {
 public:
  using Module::Module;
  /// In place of tern::linear(x, weight, bias, activation) of `linear`. x: [..., in]; result [..., out].
  virtual Tensor forward(const Linear& linear, const Tensor& x, Activation activation) const = 0;
};

/// y = activation(x weight^T + bias). x: [..., in], weight: [out, in], bias: [out].
class Linear final : public Module {
 public:
  Linear(const Scope& s, int64_t in, int64_t out, const LinearOptions& options = {});

  Tensor forward(const Tensor& x, Activation activation = Activation::kNone) const;
  /// forward() as the next step of a chain.
  void append_to(RowChain& chain, Activation activation = Activation::kNone) const;
  /// The columns before `cut` of forward(first), and those from `cut` of forward(second). first, second: [rows, in].
  std::pair<Tensor, Tensor> forward_parts(const Tensor& first, const Tensor& second, int64_t cut) const;

  /// Makes Adapter(scope, *this, args...) this layer's member `name` and lets it compute the layer's results.
  /// Throws Error when the layer has an adapter.
  template <std::derived_from<LinearAdapter> Adapter, class... Args>
  Adapter& adapt(const std::string& name, Args&&... args) {
    TERN_CHECK(!adapter_, "nn::Linear: '", this->name(), "' has an adapter, '", adapter_->local_name(), "'");
    auto made = std::make_unique<Adapter>(sub(name), *this, std::forward<Args>(args)...);
    Adapter& adapter = *made;
    adapter_ = std::move(made);
    return adapter;
  }

  /// Null when the layer computes its results itself.
  LinearAdapter* adapter() const { return adapter_.get(); }
  void remove_adapter() { adapter_.reset(); }

  const Parameter& weight() const { return weight_; }
  /// Undefined without bias.
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
  std::unique_ptr<LinearAdapter> adapter_;
};

}  // namespace tern::nn
