#pragma once
// ONNX's element-wise ops by Tern's.

#include "tern/tests/core/onnx.h"

namespace tern::test::onnx {

inline void add_unary(Table& table) {
  using Op = Tensor (*)(const Tensor&);
  for (const auto& [name, op] : std::map<std::string, Op>{{"Abs", abs},           {"Acos", acos},
                                                          {"Acosh", acosh},       {"Asin", asin},
                                                          {"Asinh", asinh},       {"Atan", atan},
                                                          {"Atanh", atanh},       {"Ceil", ceil},
                                                          {"Cos", cos},           {"Cosh", cosh},
                                                          {"Erf", erf},           {"Exp", exp},
                                                          {"Floor", floor},       {"HardSwish", hardswish},
                                                          {"IsNaN", isnan},       {"Log", log},
                                                          {"Mish", mish},         {"Neg", neg},
                                                          {"Not", logical_not},   {"Reciprocal", reciprocal},
                                                          {"Relu", relu},         {"Round", round},
                                                          {"Sigmoid", sigmoid},   {"Sign", sign},
                                                          {"Sin", sin},           {"Sinh", sinh},
                                                          {"Softplus", softplus}, {"Softsign", softsign},
                                                          {"Sqrt", sqrt},         {"Tan", tan},
                                                          {"Tanh", tanh},         {"BitwiseNot", bitwise_not}})
    table[name] = [op = op](const Case& c) { return Tensors{op(c.in(0))}; };
  table["Identity"] = [](const Case& c) { return Tensors{c.in(0).clone()}; };
  table["Dropout"] = [](const Case& c) { return Tensors{dropout(c.in(0), {.p = 0})}; };  // left out if it draws
  table["IsInf"] = [](const Case& c) {
    Tensor result = isinf(c.in(0));
    if (!c.integer("detect_positive", 1)) result = logical_and(result, c.in(0) < 0.0);
    if (!c.integer("detect_negative", 1)) result = logical_and(result, c.in(0) > 0.0);
    return Tensors{result};
  };
  table["Cast"] = [](const Case& c) {
    // TensorProto.DataType
    static const std::map<int64_t, DType> types = {{1, float32}, {10, float16}, {11, float64}, {16, bfloat16}};
    return Tensors{c.in(0).to(types.at(c.integer("to", 0)))};
  };
  table["BitCast"] = [](const Case& c) {
    static const std::map<int64_t, DType> types = {{1, float32}, {2, uint8}, {6, int32}, {7, int64}, {11, float64}};
    return Tensors{c.in(0).view(types.at(c.integer("to", 0)))};
  };
  table["CastLike"] = [](const Case& c) { return Tensors{c.in(0).to(c.in(1).dtype())}; };
}

/// The slope has x's shape, or is one number for each element of the last dimension.
inline Tensor prelu_of(const Tensor& x, const Tensor& slope) {
  if (slope.shape() == x.shape()) return prelu(x.reshape({1, x.numel()}), slope.flatten()).reshape(x.shape());
  return prelu(x.transpose(1, -1), slope).transpose(1, -1);
}

inline void add_activations(Table& table) {
  table["Gelu"] = [](const Case& c) {
    return Tensors{c.get<std::string>("approximate", "none") == "tanh" ? gelu_tanh(c.in(0)) : gelu(c.in(0))};
  };
  table["LeakyRelu"] = [](const Case& c) { return Tensors{leaky_relu(c.in(0), c.get("alpha", 0.01))}; };
  table["PRelu"] = [](const Case& c) { return Tensors{prelu_of(c.in(0), c.in(1))}; };
  table["Elu"] = [](const Case& c) { return Tensors{elu(c.in(0), c.get("alpha", 1.0))}; };
  table["Celu"] = [](const Case& c) { return Tensors{celu(c.in(0), c.get("alpha", 1.0))}; };
  table["Selu"] = [](const Case& c) {
    if (c.attributes.empty()) return Tensors{selu(c.in(0))};
    return Tensors{elu(c.in(0), c.attributes["alpha"]) * c.attributes["gamma"].get<double>()};
  };
  table["HardSigmoid"] = [](const Case& c) {  // Tern's and PyTorch's hardsigmoid has the slope 1/6
    return Tensors{clamp(c.in(0) * c.get("alpha", 0.2) + c.get("beta", 0.5), 0, 1)};
  };
  table["ThresholdedRelu"] = [](const Case& c) { return Tensors{threshold(c.in(0), c.get("alpha", 1.0), 0)}; };
  table["Shrink"] = [](const Case& c) {
    const double lambda = c.get("lambd", 0.5), bias = c.get("bias", 0.0);
    TERN_CHECK(bias == 0 || bias == lambda, "the test knows no Shrink with bias ", bias);
    return Tensors{bias == 0 ? hardshrink(c.in(0), lambda) : softshrink(c.in(0), lambda)};
  };
  table["Swish"] = [](const Case& c) { return Tensors{silu(c.in(0))}; };
  table["SwiGLU"] = [](const Case& c) {
    const double alpha = c.get("alpha", 1.0);
    return Tensors{silu(c.in(0) * alpha) / alpha * c.in(1)};
  };
}

inline void add_binary(Table& table) {
  using Op = Tensor (*)(const Tensor&, const Tensor&);
  for (const auto& [name, op] : std::map<std::string, Op>{{"Add", add},
                                                          {"Sub", sub},
                                                          {"Mul", mul},
                                                          {"Equal", eq},
                                                          {"Greater", gt},
                                                          {"GreaterOrEqual", ge},
                                                          {"Less", lt},
                                                          {"LessOrEqual", le},
                                                          {"And", logical_and},
                                                          {"Or", logical_or},
                                                          {"Xor", logical_xor},
                                                          {"BitwiseAnd", bitwise_and},
                                                          {"BitwiseOr", bitwise_or},
                                                          {"BitwiseXor", bitwise_xor}})
    table[name] = [op = op](const Case& c) { return Tensors{op(c.in(0), c.in(1))}; };
  table["BitShift"] = [](const Case& c) {
    return Tensors{c.get<std::string>("direction", "") == "LEFT" ? c.in(0) << c.in(1) : c.in(0) >> c.in(1)};
  };
  table["Div"] = [](const Case& c) {  // of integers rounded towards 0, PyTorch's not at all
    if (is_floating(c.in(0).dtype())) return Tensors{div(c.in(0), c.in(1))};
    return Tensors{floor_divide(c.in(0) - fmod(c.in(0), c.in(1)), c.in(1))};
  };
  table["Pow"] = [](const Case& c) { return Tensors{pow(c.in(0), c.in(1)).to(c.in(0).dtype())}; };
  table["Mod"] = [](const Case& c) {
    return Tensors{c.integer("fmod", 0) ? fmod(c.in(0), c.in(1)) : remainder(c.in(0), c.in(1))};
  };
  table["Where"] = [](const Case& c) { return Tensors{where(c.in(0), c.in(1), c.in(2))}; };
  table["Clip"] = [](const Case& c) {
    if (!c.has(1) && !c.has(2)) return Tensors{clamp(c.in(0), -INFINITY, INFINITY)};
    return Tensors{clamp(c.in(0), c.in(1), c.in(2))};
  };
  for (const auto& [name, op] : std::map<std::string, Op>{{"Max", maximum}, {"Min", minimum}, {"Sum", add}})
    table[name] = [op = op](const Case& c) {
      Tensor result = c.in(0);
      for (size_t i = 1; i < c.inputs.size(); ++i) result = op(result, c.in(i));
      return Tensors{result};
    };
  table["Mean"] = [](const Case& c) { return Tensors{mean(stack(c.inputs), {0})}; };
}

inline void add_pointwise(Table& table) {
  add_unary(table);
  add_activations(table);
  add_binary(table);
}

}  // namespace tern::test::onnx
