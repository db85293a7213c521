#pragma once

#include <optional>

#include "tern/nn/module.h"

namespace tern::nn {

struct RMSNormOptions {
  std::optional<double> eps = {};  // that of tern::rms_norm unless given; the LLaMA family uses 1e-5 or 1e-6
  bool affine = true;              // a weight, of ones at first
};

/// RMS normalisation over the last dimension, of size `width` (Zhang & Sennrich, arXiv:1910.07467).
class RMSNorm final : public Module {
 public:
  RMSNorm(const Scope& s, int64_t width, const RMSNormOptions& options = {});

  Tensor forward(const Tensor& x) const;

  /// Undefined without `affine`.
  Tensor weight() const { return weight_ ? weight_->tensor() : Tensor(); }

 private:
  int64_t width_;
  std::optional<double> eps_;
  std::optional<Parameter> weight_;
};

}  // namespace tern::nn
