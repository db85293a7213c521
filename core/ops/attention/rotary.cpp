#include "tern/core/ops/attention/rotary.h"

#include <cmath>
#include <numbers>

#include "tern/core/autograd/function.h"
#include "tern/core/memory/index_check.h"
#include "tern/kernels/rotary.h"

namespace tern {

namespace detail {
/// For record_call().
void visit_arguments(kernels::RotaryParams& params, ArgumentVisitor& visitor) {
  visitor.choice(params.pairs);
  visitor.choice(params.interleaved);
  visitor.choice(params.inverse);
  for (int64_t i = 0; i < params.pairs; ++i) visitor.number(params.turns[i]);
}
}  // namespace detail

namespace {

using kernels::RotaryParams;

Tensor rotated(const Tensor& x, const Tensor& positions, const RotaryParams& params);

struct Rotary final : TwiceDifferentiable<Rotary> {
  static constexpr const char* kName = "rotary";
  RotaryParams params_;
  Saved positions_;

  Tensor forward(const Tensor& x, const Constant& positions, const RotaryParams& params) {
    params_ = params;
    positions_ = positions.tensor;
    const Tensor y = empty(x.shape(), x.options());
    IndexCheck check(kName, x.device());
    kernels::rotary(current_stream(x.device()), params, x.view(), positions.tensor.view(), y.view(), check.data());
    TERN_CHECK(check.passed(), "rotary: ", check.found().count, " of the positions are negative, first that of token ",
               check.found().first, "; expected positions of tokens in their sequences, counted from 0");
    return y;
  }
  /// A rotation's transpose is the rotation by the negative angle.
  Grads backward(const Tensor& dy) override {
    RotaryParams back = params_;
    back.inverse = !back.inverse;
    return {rotated(dy, positions_.get(), back)};
  }
};

Tensor rotated(const Tensor& x, const Tensor& positions, const RotaryParams& params) {
  return Rotary::apply(x.strides()[2] == 1 ? x : x.contiguous(), Constant{positions}, params);
}

RotaryParams checked_params(int64_t head_dim, const RotaryOptions& options) {
  const int64_t size = options.rotary_dim == 0 ? head_dim : options.rotary_dim;
  TERN_CHECK(size >= 0 && size % 2 == 0 && size <= head_dim && size <= 2 * RotaryParams::kMaxPairs,
             "rotary: rotary_dim must be even, at most head_dim (", head_dim, ") and at most ",
             2 * RotaryParams::kMaxPairs, ", got ", size);
  TERN_CHECK(std::isfinite(options.base) && options.base > 0, "rotary: base must be positive and finite, got ",
             options.base);
  RotaryParams params{.pairs = size / 2, .interleaved = options.interleaved};
  for (int64_t i = 0; i < params.pairs; ++i)
    params.turns[i] =
        std::pow(options.base, -2.0 * static_cast<double>(i) / static_cast<double>(size)) / (2 * std::numbers::pi);
  return params;
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options) {
  TERN_CHECK(x.dim() == 3 && is_floating(x.dtype()), "rotary: x must be floating [tokens, heads, head_dim], got ",
             x.describe());
  const bool integers =
      positions.defined() && (positions.dtype() == DType::kInt64 || positions.dtype() == DType::kInt32);
  TERN_CHECK(integers && positions.dim() == 1 && positions.size(0) == x.size(0) && positions.device() == x.device(),
             "rotary: positions must be int64 or int32 [", x.size(0), "], one for each token, on ", x.device(),
             ", got ", positions.describe());
  return rotated(x, positions.contiguous(), checked_params(x.size(2), options));
}

}  // namespace tern
