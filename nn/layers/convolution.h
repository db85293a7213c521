#pragma once
// Convolutions as modules, with PyTorch's names and layout of weights. core/ops/convolution/convolution.h defines the
// functions.

#include <concepts>
#include <memory>
#include <optional>
#include <utility>

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/nn/layers/weight_adapter.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// What all convolutions share: the tensors, and what the weight in use is made by.
class AnyConvolution : public Module {
 public:
  const Parameter& weight() const { return weight_; }
  /// Undefined without.
  Tensor bias() const { return bias_ ? bias_->tensor() : Tensor(); }
  /// weight(), or what the adapter makes of it.
  Tensor weight_in_use() const { return adapter_ ? adapter_->weight(weight_) : weight_.tensor(); }

  /// Makes Adapter(scope, *this, args...) this layer's member `name` and computes with its weight. Throws Error when
  /// the layer has an adapter.
  template <std::derived_from<WeightAdapter> Adapter, class... Args>
  Adapter& adapt(const std::string& name, Args&&... args) {
    TERN_CHECK(!adapter_, "nn::", type_name(), ": '", this->name(), "' has an adapter, '", adapter_->local_name(), "'");
    auto made = std::make_unique<Adapter>(sub(name), *this, std::forward<Args>(args)...);
    Adapter& adapter = *made;
    adapter_ = std::move(made);
    return adapter;
  }
  /// Null when the layer's weight is used as it is.
  WeightAdapter* adapter() const { return adapter_.get(); }
  void remove_adapter() { adapter_.reset(); }

 protected:
  /// weight: its shape. bias: of how many elements, 0 for none. Initial values: torch.nn's unless given.
  AnyConvolution(const Scope& s, const Shape& weight, int64_t bias, const Initializer& weight_init,
                 const Initializer& bias_init);

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
  std::unique_ptr<WeightAdapter> adapter_;
};

struct ConvOptions {
  SpatialSizes stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool same = false;                          // PyTorch's padding="same"; `padding` is then ignored
  PadMode padding_mode = PadMode::kConstant;  // what stands in the padding; kConstant: zeros
  bool bias = true;
  Initializer weight_init = {};  // torch.nn's, uniform within 1 / sqrt(in / groups * kernel size), unless given
  Initializer bias_init = {};    // the same unless given
};

/// What Conv1d, Conv2d and Conv3d share. weight: [out, in / groups, kernel...], bias: [out].
class ConvolutionLayer : public AnyConvolution {
 public:
  /// x: [batch, in, spatial...] or [in, spatial...].
  Tensor forward(const Tensor& x) const;
  const ConvOptions& options() const { return options_; }

 protected:
  ConvolutionLayer(const Scope& s, int dims, int64_t in, int64_t out, const SpatialSizes& kernel,
                   const ConvOptions& options);

 private:
  int dims_;
  ConvOptions options_;
};

/// torch.nn.Conv1d: nn::Conv1d(scope, in, out, 3, {.padding = 1}).
class Conv1d final : public ConvolutionLayer {
 public:
  Conv1d(const Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel, const ConvOptions& options = {})
      : ConvolutionLayer(s, 1, in, out, kernel, options) {}
};
class Conv2d final : public ConvolutionLayer {
 public:
  Conv2d(const Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel, const ConvOptions& options = {})
      : ConvolutionLayer(s, 2, in, out, kernel, options) {}
};
class Conv3d final : public ConvolutionLayer {
 public:
  Conv3d(const Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel, const ConvOptions& options = {})
      : ConvolutionLayer(s, 3, in, out, kernel, options) {}
};

struct ConvTransposeOptions {
  SpatialSizes stride = 1, padding = 0, output_padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  Initializer weight_init = {};  // torch.nn's, uniform within 1 / sqrt(out / groups * kernel size), unless given
  Initializer bias_init = {};    // the same unless given
};

/// What ConvTranspose1d, 2d and 3d share. weight: [in, out / groups, kernel...], bias: [out].
class TransposedConvolutionLayer : public AnyConvolution {
 public:
  /// x: [batch, in, spatial...] or [in, spatial...].
  Tensor forward(const Tensor& x) const;

 protected:
  TransposedConvolutionLayer(const Scope& s, int dims, int64_t in, int64_t out, const SpatialSizes& kernel,
                             const ConvTransposeOptions& options);

 private:
  int dims_;
  ConvTransposeOptions options_;
};

class ConvTranspose1d final : public TransposedConvolutionLayer {
 public:
  ConvTranspose1d(const Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel,
                  const ConvTransposeOptions& options = {})
      : TransposedConvolutionLayer(s, 1, in, out, kernel, options) {}
};
class ConvTranspose2d final : public TransposedConvolutionLayer {
 public:
  ConvTranspose2d(const Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel,
                  const ConvTransposeOptions& options = {})
      : TransposedConvolutionLayer(s, 2, in, out, kernel, options) {}
};
class ConvTranspose3d final : public TransposedConvolutionLayer {
 public:
  ConvTranspose3d(const Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel,
                  const ConvTransposeOptions& options = {})
      : TransposedConvolutionLayer(s, 3, in, out, kernel, options) {}
};

}  // namespace tern::nn
