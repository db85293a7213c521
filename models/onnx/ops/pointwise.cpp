// Element-wise ops, and those that draw random numbers.

#include <cmath>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

template <Tensor (*kOp)(const Tensor&)>
void unary(Call& c) {
  c.set(kOp(c.in(0)));
}

template <Tensor (*kOp)(const Tensor&, const Tensor&)>
void binary(Call& c) {
  c.check_types();
  c.set(kOp(c.in(0), c.in(1)));
}

/// Of all inputs, one after another.
template <Tensor (*kOp)(const Tensor&, const Tensor&)>
void many(Call& c) {
  c.check_types();
  Tensor result = c.in(0);
  for (size_t i = 1; i < c.inputs(); ++i) result = kOp(result, c.in(i));
  c.set(result);
}

void mean_of_all(Call& c) {
  c.check_types();
  Tensor result = c.in(0);
  for (size_t i = 1; i < c.inputs(); ++i) result = result + c.in(i);
  c.set(result / static_cast<double>(c.inputs()));
}

void identity_of(Call& c) { c.set_value(0, c.has(0) ? c.value(0) : Value()); }

void rectify(Call& c) {
  const Tensor x = c.in(0);
  c.set(is_floating(x.dtype()) ? relu(x) : maximum(x, zeros_like(x)));
}

void is_infinite(Call& c) {
  Tensor result = isinf(c.in(0));
  if (!c.flag("detect_positive", true)) result = logical_and(result, c.in(0) < 0.0);
  if (!c.flag("detect_negative", true)) result = logical_and(result, c.in(0) > 0.0);
  c.set(result);
}

void divide_of(Call& c) {
  c.check_types();
  const Tensor a = c.in(0), b = c.in(1);
  if (is_floating(a.dtype())) return c.set(div(a, b));
  c.set(floor_divide(a - fmod(a, b), b).to(a.dtype()));  // rounded towards 0
}

void power(Call& c) { c.set(0, pow(c.in(0), c.in(1)).to(c.in(0).dtype()), c.element(0)); }

void modulo(Call& c) {
  c.check_types();
  c.set(c.flag("fmod") ? fmod(c.in(0), c.in(1)) : remainder(c.in(0), c.in(1)));
}

void shift(Call& c) {
  const bool left = c.text("direction", "") == "LEFT";
  c.set(left ? bitwise_left_shift(c.in(0), c.in(1)) : bitwise_right_shift(c.in(0), c.in(1)));
}

void complement(Call& c) { c.set(bitwise_not(c.in(0))); }

/// Bounds are attributes up to opset 10 and inputs from 11 on.
void clip(Call& c) {
  if (c.opset() < 11) return c.set(clamp(c.in(0), c.number("min", -INFINITY), c.number("max", INFINITY)));
  if (!c.has(1) && !c.has(2)) return c.set(c.in(0));
  const Tensor x = c.in(0);
  const bool fixed = !(c.has(1) && c.in(1).requires_grad()) && !(c.has(2) && c.in(2).requires_grad());
  if (fixed && is_floating(x.dtype()) && !c.context().device.is_cuda()) {
    const auto bound = [&](size_t i, double otherwise) { return c.has(i) ? c.scalar(i) : otherwise; };
    return c.set(clamp(x, std::min(bound(1, -INFINITY), bound(2, INFINITY)), bound(2, INFINITY)));
  }
  c.set(clamp(x, c.in_or_none(1), c.in_or_none(2)));
}

void choose(Call& c) {
  c.check_types(1);
  const Tensor a = c.in(1), b = c.in(2);
  c.set(0, where(c.in(0), a, b).to(a.dtype()), c.element(1));
}

void gelu_of(Call& c) { c.set(c.text("approximate", "none") == "tanh" ? gelu_tanh(c.in(0)) : gelu(c.in(0))); }
void leaky(Call& c) { c.set(leaky_relu(c.in(0), c.number("alpha", 0.01))); }
void elu_of(Call& c) { c.set(elu(c.in(0), c.number("alpha", 1))); }
void celu_of(Call& c) { c.set(celu(c.in(0), c.number("alpha", 1))); }

void selu_of(Call& c) {
  if (!c.has_attribute("alpha") && !c.has_attribute("gamma")) return c.set(selu(c.in(0)));
  c.set(elu(c.in(0), c.number("alpha", 1.67326319217681884765625)) * c.number("gamma", 1.05070102214813232421875));
}

/// Tern's hardsigmoid has the slope 1 / 6.
void hard_sigmoid(Call& c) { c.set(clamp(c.in(0) * c.number("alpha", 0.2f) + c.number("beta", 0.5), 0, 1)); }

void thresholded(Call& c) { c.set(threshold(c.in(0), c.number("alpha", 1), 0)); }

void shrink(Call& c) {
  const double lambda = c.number("lambd", 0.5), bias = c.number("bias", 0);
  const Tensor x = c.in(0);
  if (!is_floating(x.dtype())) {
    const Tensor y = x.to(float32), zero = zeros_like(y);
    return c.set(where(y < -lambda, y + bias, where(y > lambda, y - bias, zero)).to(x.dtype()));
  }
  c.set(where(x < -lambda, x + bias, where(x > lambda, x - bias, 0.0)).to(x.dtype()));
}

void swish(Call& c) {
  const double alpha = c.number("alpha", 1);
  const Tensor x = c.in(0);
  c.set(alpha == 1 ? silu(x) : x * sigmoid(x * alpha));
}

void gated(Call& c) {
  const double alpha = c.number("alpha", 1);
  const Tensor gate = c.in(0);
  c.set(alpha == 1 ? swiglu(gate, c.in(1)) : gate * sigmoid(gate * alpha) * c.in(1));
}

/// The slope broadcasts to x.
void prelu_of(Call& c) {
  const Tensor x = c.in(0), slope = c.in(1);
  if (!is_floating(x.dtype())) return c.set(where(x < 0.0, x * slope, x));
  const bool by_channel = slope.numel() > 1 && x.dim() > 1 && slope.dim() == x.dim() - 1 &&
                          slope.size(0) == x.size(1) && slope.numel() == x.size(1);
  if (by_channel || slope.numel() == 1) return c.set(prelu(x, slope.flatten()));
  c.set(where(x < 0.0, x * slope, x));
}

/// Whether a node drops: by the module's mode, and by what the file says of the node.
bool drops(const Call& c) {
  if (!c.context().training) return false;
  if (c.context().train_inference || c.opset() < 12) return true;
  return c.has(2) && c.whole(2) != 0;
}

void drop(Call& c) {
  const double p = c.opset() < 12 ? c.number("ratio", 0.5) : c.has(1) ? c.scalar(1) : 0.5;
  const Tensor x = c.in(0);
  const bool active = drops(c) && p > 0;
  if (!active) {
    c.set(0, x);
    if (c.wants(1)) c.set(1, ones(x.shape(), {.dtype = boolean, .device = x.device()}));
    return;
  }
  const DropoutOptions options{.p = p, .generator = c.context().generator};
  if (!c.wants(1)) return c.set(0, dropout(x, options));
  const Tensor factor = dropout(ones_like(x), options);
  c.set(0, x * factor);
  c.set(1, factor != 0.0);
}

Generator generator_of(Call& c) {
  if (c.has_attribute("seed")) return Generator(static_cast<uint64_t>(std::llround(c.number("seed", 0) * 1e6)));
  return c.context().generator == nullptr ? default_generator() : *c.context().generator;
}

DType wanted_dtype(Call& c, DType otherwise) {
  return c.has_attribute("dtype") ? storage_of(static_cast<int32_t>(c.integer("dtype", 1))) : otherwise;
}

template <bool kNormal>
void random_like(Call& c) {
  const bool like = c.inputs() > 0;
  const Shape shape = like ? c.in(0).shape() : Shape(c.numbers("shape"));
  const DType dtype = wanted_dtype(c, like ? c.in(0).dtype() : float32);
  TERN_CHECK(is_floating(dtype), "random numbers are floating, not ", name_of(dtype));
  Generator generator = generator_of(c);
  const TensorOptions options{.dtype = dtype, .device = c.context().device};
  if (kNormal) return c.set(randn(shape, generator, options) * c.number("scale", 1) + c.number("mean", 0));
  const double low = c.number("low", 0), high = c.number("high", 1);
  c.set(rand(shape, generator, options) * (high - low) + low);
}

void bernoulli(Call& c) {
  Generator generator = generator_of(c);
  const Tensor p = c.in(0);
  const DType dtype = wanted_dtype(c, p.dtype());
  c.set(0, (rand(p.shape(), generator, {.dtype = float32, .device = p.device()}) < p).to(dtype),
        c.has_attribute("dtype") ? static_cast<int32_t>(c.integer("dtype", 1)) : c.element(0));
}

}  // namespace

void add_pointwise_ops(Rows& rows) {
  const Rows own = {
      {"Abs", 1, unary<abs>},
      {"Acos", 7, unary<acos>},
      {"Acosh", 9, unary<acosh>},
      {"Asin", 7, unary<asin>},
      {"Asinh", 9, unary<asinh>},
      {"Atan", 7, unary<atan>},
      {"Atanh", 9, unary<atanh>},
      {"Ceil", 1, unary<ceil>},
      {"Cos", 7, unary<cos>},
      {"Cosh", 9, unary<cosh>},
      {"Erf", 9, unary<erf>},
      {"Exp", 1, unary<exp>},
      {"Floor", 1, unary<floor>},
      {"HardSwish", 14, unary<hardswish>},
      {"IsNaN", 9, unary<isnan>},
      {"IsInf", 10, is_infinite},
      {"Log", 1, unary<log>},
      {"Mish", 18, unary<mish>},
      {"Neg", 1, unary<neg>},
      {"Not", 1, unary<logical_not>},
      {"Reciprocal", 1, unary<reciprocal>},
      {"Relu", 1, rectify},
      {"Round", 11, unary<round>},
      {"Sigmoid", 1, unary<sigmoid>},
      {"Sign", 9, unary<sign>},
      {"Sin", 7, unary<sin>},
      {"Sinh", 9, unary<sinh>},
      {"Softplus", 1, unary<softplus>},
      {"Softsign", 1, unary<softsign>},
      {"Sqrt", 1, unary<sqrt>},
      {"Tan", 7, unary<tan>},
      {"Tanh", 1, unary<tanh>},
      {"BitwiseNot", 18, complement},
      {"Identity", 1, identity_of},
      {"Add", 7, binary<add>},
      {"Sub", 7, binary<sub>},
      {"Mul", 7, binary<mul>},
      {"Div", 7, divide_of},
      {"Pow", 7, power},
      {"Mod", 10, modulo},
      {"Equal", 7, binary<eq>},
      {"Greater", 7, binary<gt>},
      {"GreaterOrEqual", 12, binary<ge>},
      {"Less", 7, binary<lt>},
      {"LessOrEqual", 12, binary<le>},
      {"And", 7, binary<logical_and>},
      {"Or", 7, binary<logical_or>},
      {"Xor", 7, binary<logical_xor>},
      {"BitwiseAnd", 18, binary<bitwise_and>},
      {"BitwiseOr", 18, binary<bitwise_or>},
      {"BitwiseXor", 18, binary<bitwise_xor>},
      {"BitShift", 11, shift},
      {"Max", 1, many<maximum>},
      {"Min", 1, many<minimum>},
      {"Sum", 1, many<add>},
      {"Mean", 1, mean_of_all},
      {"Clip", 6, clip},
      {"Where", 9, choose},
      {"Gelu", 20, gelu_of},
      {"LeakyRelu", 1, leaky},
      {"PRelu", 7, prelu_of},
      {"Elu", 1, elu_of},
      {"Celu", 12, celu_of},
      {"Selu", 1, selu_of},
      {"HardSigmoid", 1, hard_sigmoid},
      {"ThresholdedRelu", 10, thresholded},
      {"Shrink", 9, shrink},
      {"Swish", 24, swish},
      {"SwiGLU", 1, gated},
      {"Dropout", 7, drop},
      {"RandomNormal", 1, random_like<true>},
      {"RandomNormalLike", 1, random_like<true>},
      {"RandomUniform", 1, random_like<false>},
      {"RandomUniformLike", 1, random_like<false>},
      {"Bernoulli", 15, bernoulli},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
