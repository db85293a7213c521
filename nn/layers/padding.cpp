#include "tern/nn/layers/padding.h"

namespace tern::nn {

std::vector<int64_t> PaddingSizes::of(int dims) const {
  const auto ends = static_cast<size_t>(2 * dims);
  TERN_CHECK(values_.size() == 1 || values_.size() == ends, "nn padding: got ", values_.size(),
             " numbers, expected one, or a pair for each of the ", dims, " dimensions");
  return values_.size() == 1 ? std::vector<int64_t>(ends, values_[0]) : values_;
}

Tensor PaddingLayer::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    TERN_CHECK(x.dim() == dims_ + 1 || x.dim() == dims_ + 2, type_name(), ": x must be [batch, channels, ", dims_,
               " spatial dimensions] or without batch, got ", x.shape());
    return pad(x, padding_, mode_, value_);
  });
}

}  // namespace tern::nn
