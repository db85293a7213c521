#pragma once
// What every op of BuiltinOps computes, written here, and inputs on which to try it.

#include <map>

#include "tern/kernels/pointwise_tiles.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

using Reference = std::function<double(double, double, double)>;
struct Case {
  Reference forward;
  double low = -2.5, high = 2.5;  // where it is tried
};

inline double truth(bool b) { return b ? 1 : 0; }

/// What each op computes, with the default parameters of its struct unless make_op says otherwise.
inline const std::map<std::string, Case>& cases() {
  using D = double;
  static const std::map<std::string, Case> table = {
      {"neg", {[](D x, D, D) { return -x; }}},
      {"abs", {[](D x, D, D) { return std::fabs(x); }}},
      {"exp", {[](D x, D, D) { return std::exp(x); }}},
      {"expm1", {[](D x, D, D) { return std::expm1(x); }}},
      {"log", {[](D x, D, D) { return std::log(x); }, 0.2, 4}},
      {"log1p", {[](D x, D, D) { return std::log1p(x); }, -0.8, 4}},
      {"sqrt", {[](D x, D, D) { return std::sqrt(x); }, 0.2, 4}},
      {"rsqrt", {[](D x, D, D) { return 1 / std::sqrt(x); }, 0.2, 4}},
      {"square", {[](D x, D, D) { return x * x; }}},
      {"reciprocal", {[](D x, D, D) { return 1 / x; }, 0.3, 3}},
      {"sigmoid", {[](D x, D, D) { return 1 / (1 + std::exp(-x)); }}},
      {"tanh", {[](D x, D, D) { return std::tanh(x); }}},
      {"relu", {[](D x, D, D) { return x > 0 ? x : 0; }}},
      {"leaky_relu", {[](D x, D, D) { return x > 0 ? x : 0.01 * x; }}},
      {"gelu", {[](D x, D, D) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }}},
      {"gelu_tanh",
       {[](D x, D, D) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3)))); }}},
      {"silu", {[](D x, D, D) { return x / (1 + std::exp(-x)); }}},
      {"softplus", {[](D x, D, D) { return std::log(1 + std::exp(x)); }}},
      {"erf", {[](D x, D, D) { return std::erf(x); }}},
      {"sin", {[](D x, D, D) { return std::sin(x); }}},
      {"cos", {[](D x, D, D) { return std::cos(x); }}},
      {"floor", {[](D x, D, D) { return std::floor(x); }}},
      {"pow_scalar", {[](D x, D, D) { return std::pow(x, 2.7); }, 0.3, 3}},
      {"add_scalar", {[](D x, D, D) { return x + 3; }}},
      {"mul_scalar", {[](D x, D, D) { return x * -2; }}},
      {"clamp", {[](D x, D, D) { return x < -1  ? -1
                                        : x > 2 ? 2
                                                : x; }}},
      {"logical_not", {[](D x, D, D) { return truth(x == 0); }}},
      {"isnan", {[](D x, D, D) { return truth(std::isnan(x)); }}},
      {"isfinite", {[](D x, D, D) { return truth(std::isfinite(x)); }}},
      {"add", {[](D a, D b, D) { return a + b; }}},
      {"sub", {[](D a, D b, D) { return a - b; }}},
      {"mul", {[](D a, D b, D) { return a * b; }}},
      {"div", {[](D a, D b, D) { return a / b; }, 0.3, 3}},
      {"maximum", {[](D a, D b, D) { return a > b ? a : b; }}},
      {"minimum", {[](D a, D b, D) { return a < b ? a : b; }}},
      {"pow", {[](D a, D b, D) { return std::pow(a, b); }, 0.3, 3}},
      {"eq", {[](D a, D b, D) { return truth(a == b); }}},
      {"ne", {[](D a, D b, D) { return truth(a != b); }}},
      {"lt", {[](D a, D b, D) { return truth(a < b); }}},
      {"le", {[](D a, D b, D) { return truth(a <= b); }}},
      {"gt", {[](D a, D b, D) { return truth(a > b); }}},
      {"ge", {[](D a, D b, D) { return truth(a >= b); }}},
      {"logical_and", {[](D a, D b, D) { return truth(a != 0 && b != 0); }}},
      {"logical_or", {[](D a, D b, D) { return truth(a != 0 || b != 0); }}},
      {"where", {[](D c, D a, D b) { return c != 0 ? a : b; }}},
      {"lerp", {[](D a, D b, D w) { return a * (1 - w) + b * w; }}},
      {"addcmul", {[](D a, D b, D c) { return a + 0.5 * b * c; }}},
  };
  return table;
}

template <class Op>
Op make_op() {
  if constexpr (std::is_same_v<Op, PowScalar>)
    return {2.7};
  else if constexpr (std::is_same_v<Op, AddScalar>)
    return {3};
  else if constexpr (std::is_same_v<Op, MulScalar>)
    return {-2};
  else if constexpr (std::is_same_v<Op, Clamp>)
    return {-1, 2};
  else if constexpr (std::is_same_v<Op, Addcmul>)
    return {0.5};
  else
    return {};
}

inline std::vector<const Array*> pointers(const std::vector<Array>& arrays) {
  std::vector<const Array*> result;
  for (const Array& a : arrays) result.push_back(&a);
  return result;
}

template <class Op>
std::vector<Array> random_inputs(std::mt19937_64& random, DType dtype, const Shape& shape, Order order) {
  const Case& c = cases().at(Op::name);
  std::vector<Array> inputs;
  for (int k = 0; k < arity_of<Op>(); ++k) {
    inputs.emplace_back(dtype, shape, order);
    fill_with_random(inputs.back(), random, c.low, c.high);
  }
  // A third of the elements equal their neighbour input (ties), and some are 0.
  for (int64_t i = 0; i < inputs[0].numel(); i += 3)
    if (arity_of<Op>() > 1) inputs[1].set(i, inputs[0].at(i));
  if (c.low < 0)
    for (int64_t i = 1; i < inputs[0].numel(); i += 7) inputs[0].set(i, 0);
  return inputs;
}

inline double reference_at(const Case& c, const std::vector<Array>& in, int64_t i) {
  const auto value = [&](size_t k) { return k < in.size() ? in[k].at(i) : 0.0; };
  return c.forward(value(0), value(1), value(2));
}

}  // namespace tern::kernels
