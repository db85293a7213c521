#include "tern/nn/layers/dropout.h"

namespace tern::nn {

Dropout::Dropout(const Scope& s, double p) : Module(s), p_(p) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::Dropout: p must be in [0, 1], got ", p);
}

Tensor Dropout::forward(const Tensor& x, const Tensor& row_keys) const {
  const DropoutOptions active = options(row_keys);
  return active.p > 0 ? dropout(x, active) : x;
}

DropoutOptions Dropout::options(const Tensor& row_keys) const {
  return {is_training() ? p_ : 0, &generator(), row_keys};
}

}  // namespace tern::nn
