#include "tern/nn/layers/bilinear.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Shape bilinear_shape(int64_t in1, int64_t in2, int64_t out) {
  TERN_CHECK(in1 > 0 && in2 > 0 && out > 0, "nn::Bilinear: sizes must be > 0, got in1 ", in1, ", in2 ", in2, ", out ",
             out);
  return {out, in1, in2};
}

Initializer bilinear_init(int64_t in1) {
  const double bound = 1 / std::sqrt(static_cast<double>(in1));
  return init::uniform(-bound, bound);
}

}  // namespace

Bilinear::Bilinear(const Scope& s, int64_t in1, int64_t in2, int64_t out, bool bias)
    : Module(s),
      in1_(in1),
      in2_(in2),
      out_(out),
      weight_(this, "weight", bilinear_shape(in1, in2, out), bilinear_init(in1)) {
  if (bias) bias_.emplace(this, "bias", Shape{out}, bilinear_init(in1));
}

Tensor Bilinear::forward(const Tensor& first, const Tensor& x2) const {
  const ProfileRange range(name());
  return hooked(first, [&](const Tensor& x1) {
    const bool fits = x1.dim() > 0 && x2.dim() == x1.dim() && x1.size(-1) == in1_ && x2.size(-1) == in2_ &&
                      x1.shape().without(x1.dim() - 1) == x2.shape().without(x2.dim() - 1);
    TERN_CHECK(fits, "nn::Bilinear: expected [..., ", in1_, "] and [..., ", in2_,
               "] with the same leading dimensions, got ", x1.shape(), " and ", x2.shape());
    const Tensor columns = weight_.tensor().permute({1, 0, 2}).reshape({in1_, out_ * in2_});
    const Tensor products = matmul(x1.reshape({-1, in1_}), columns).reshape({-1, out_, in2_});
    const Tensor y = matmul(products, x2.reshape({-1, in2_, 1})).reshape(x1.shape().with(x1.dim() - 1, out_));
    return bias_ ? y + *bias_ : y;
  });
}

}  // namespace tern::nn
