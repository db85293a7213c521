#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "tern/nn/layers/batch_norm.h"
#include "tern/nn/layers/convolution.h"

namespace tern::detail {
class PackedWeight;
}

namespace tern::nn {

/// A convolution and the batch norm behind it, which are members of the same module and live as long as this:
///   ConvNorm first_{conv1_, bn1_};  ...  Tensor y = first_.forward(x, ImageActivation::kRelu);
/// Where nothing is recorded and the norm is in evaluation mode, the norm is a part of the convolution's weight and
/// bias, which are computed again when one of the tensors has changed, and residual and activation are a part of the
/// convolution's pass.
class ConvNorm {
 public:
  ConvNorm(const Conv2d& conv, const BatchNorm2d& norm);
  ConvNorm(const ConvNorm&) = delete;
  ConvNorm& operator=(const ConvNorm&) = delete;

  /// activation(norm(conv(x)) + residual); the residual may be undefined.
  Tensor forward(const Tensor& x, ImageActivation activation = ImageActivation::kNone,
                 const Tensor& residual = {}) const;
  const Conv2d& conv() const { return conv_; }

 private:
  struct Folded {
    Tensor weight, bias;
  };
  /// What the folded tensors were computed from.
  struct Source {
    const void* data = nullptr;
    uint32_t version = 0;
    bool operator==(const Source&) const = default;
  };
  bool can_fold() const;
  Folded folded() const;

  const Conv2d& conv_;
  const BatchNorm2d& norm_;
  mutable std::mutex mutex_;
  mutable std::array<Source, 6> sources_;
  mutable Folded folded_;
  std::shared_ptr<detail::PackedWeight> packed_;
};

}  // namespace tern::nn
