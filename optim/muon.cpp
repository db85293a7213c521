#include "tern/optim/muon.h"

#include <cmath>

#include "tern/core/ops/matmul.h"
#include "tern/core/ops/vector_norm.h"

namespace tern::optim {
namespace {

/// A matrix with x's singular vectors, whose singular values are about 1.
Tensor near_orthogonal(const Tensor& x, const MuonOptions& o) {
  const bool is_tall = x.size(0) > x.size(1);
  Tensor wide = is_tall ? x.t() : x;
  wide = wide / clamp(norm(wide), o.eps, INFINITY);
  if (x.dtype() == float32) wide = wide.to(o.product_dtype);
  for (int i = 0; i < o.iterations; ++i) {
    const Tensor gram = matmul(wide, wide.t());
    wide = addmm(wide, addmm(gram, gram, gram, o.b, o.c), wide, o.a);
  }
  wide = wide.to(x.dtype());
  return is_tall ? wide.t() : wide;
}

}  // namespace

void MuonOptions::check() const {
  detail::check_not_negative(kName, "lr", lr);
  detail::check_not_negative(kName, "weight_decay", weight_decay);
  detail::check_fraction(kName, "momentum", momentum);
  detail::check_not_negative(kName, "eps", eps);
  TERN_CHECK(iterations >= 1 && iterations <= 100, kName, ": iterations must be in 1 to 100, got ", iterations);
  TERN_CHECK(product_dtype == float32 || product_dtype == bfloat16, kName,
             ": product_dtype must be float32 or bfloat16, got ", product_dtype);
}

std::vector<Algorithm::State> MuonOptions::states() { return {{.name = "momentum_buffer"}}; }

void MuonOptions::update(WholeParameter& p) const {
  TERN_CHECK(p.weight.dim() == 2, kName, ": '", p.name, "' has shape ", p.weight.shape(),
             ", but Muon is for matrices: train the other parameters with a second optimizer, AdamW");
  Tensor& buffer = p.states[0];
  buffer = lerp(buffer, p.gradient, 1 - momentum);
  const Tensor direction = nesterov ? lerp(p.gradient, buffer, momentum) : buffer;
  const auto m = static_cast<double>(p.weight.size(0)), n = static_cast<double>(p.weight.size(1));
  const double factor =
      scale == MuonScale::kOriginal ? std::sqrt(std::max(1.0, m / n)) : 0.2 * std::sqrt(std::max(m, n));
  p.weight = p.weight * (1 - lr * weight_decay) - near_orthogonal(direction, *this) * (lr * factor);
}

}  // namespace tern::optim
