// Element-wise ops as ONNX's nodes.

#include <cmath>
#include <numbers>

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/models/onnx/export/exporter.h"

namespace tern::onnx {
namespace {

using Arguments = std::vector<GraphArgument>;

/// The numbers among the arguments: the op's parameters.
std::vector<double> numbers_among(const Arguments& arguments) {
  std::vector<double> numbers;
  for (const GraphArgument& a : arguments)
    if (a.kind == GraphArgument::Kind::kNumber) numbers.push_back(a.number);
  return numbers;
}

DType result_type(const Exporter& e, const Graph::Node& node) { return e.info(node.outputs[0]).dtype; }

/// An input as this dtype.
std::string input_as(Exporter& e, const Graph::Node& node, size_t i, DType dtype) {
  return e.cast(e.name(node.inputs[i]), e.info(node.inputs[i]).dtype, dtype);
}

/// x, and what is made of it in its own type.
struct Writer {
  Exporter& e;
  const Graph::Node& node;
  DType dtype;
  std::vector<double> p;
  std::string x, y, z;

  std::string number(double value) const { return e.scalar(value, dtype); }
  std::string add(const std::string& a, const std::string& b) const { return e.node("Add", {a, b}); }
  std::string sub(const std::string& a, const std::string& b) const { return e.node("Sub", {a, b}); }
  std::string mul(const std::string& a, const std::string& b) const { return e.node("Mul", {a, b}); }
  std::string div(const std::string& a, const std::string& b) const { return e.node("Div", {a, b}); }
  std::string of(const std::string& op, const std::string& a, const Attributes& attributes = {}) const {
    return e.node(op, {a}, attributes);
  }
  std::string clip(const std::string& a, double low, double high) const {
    return e.node("Clip", {a, std::isinf(low) ? "" : number(low), std::isinf(high) ? "" : number(high)});
  }
  std::string select(const std::string& condition, const std::string& a, const std::string& b) const {
    return e.node("Where", {condition, a, b});
  }
};

using Formula = std::string (*)(const Writer& w);

/// Inputs of the result's type.
const std::map<std::string, Formula>& formulas() {
  static const std::map<std::string, Formula> all = {
      {"abs", [](const Writer& w) { return w.of("Abs", w.x); }},
      {"neg", [](const Writer& w) { return w.of("Neg", w.x); }},
      {"exp", [](const Writer& w) { return w.of("Exp", w.x); }},
      {"log", [](const Writer& w) { return w.of("Log", w.x); }},
      {"sqrt", [](const Writer& w) { return w.of("Sqrt", w.x); }},
      {"rsqrt", [](const Writer& w) { return w.of("Reciprocal", w.of("Sqrt", w.x)); }},
      {"reciprocal", [](const Writer& w) { return w.of("Reciprocal", w.x); }},
      {"square", [](const Writer& w) { return w.mul(w.x, w.x); }},
      {"cube", [](const Writer& w) { return w.mul(w.mul(w.x, w.x), w.x); }},
      {"expm1", [](const Writer& w) { return w.sub(w.of("Exp", w.x), w.number(1)); }},
      {"log1p", [](const Writer& w) { return w.of("Log", w.add(w.x, w.number(1))); }},
      {"exp2",
       [](const Writer& w) {
         return w.e.node("Pow", {w.number(2), w.x});
       }},
      {"log2", [](const Writer& w) { return w.mul(w.of("Log", w.x), w.number(std::numbers::log2e)); }},
      {"log10", [](const Writer& w) { return w.mul(w.of("Log", w.x), w.number(std::numbers::log10e)); }},
      {"erf", [](const Writer& w) { return w.of("Erf", w.x); }},
      {"erfc", [](const Writer& w) { return w.sub(w.number(1), w.of("Erf", w.x)); }},
      {"sin", [](const Writer& w) { return w.of("Sin", w.x); }},
      {"cos", [](const Writer& w) { return w.of("Cos", w.x); }},
      {"tan", [](const Writer& w) { return w.of("Tan", w.x); }},
      {"asin", [](const Writer& w) { return w.of("Asin", w.x); }},
      {"acos", [](const Writer& w) { return w.of("Acos", w.x); }},
      {"atan", [](const Writer& w) { return w.of("Atan", w.x); }},
      {"sinh", [](const Writer& w) { return w.of("Sinh", w.x); }},
      {"cosh", [](const Writer& w) { return w.of("Cosh", w.x); }},
      {"tanh", [](const Writer& w) { return w.of("Tanh", w.x); }},
      {"asinh", [](const Writer& w) { return w.of("Asinh", w.x); }},
      {"acosh", [](const Writer& w) { return w.of("Acosh", w.x); }},
      {"atanh", [](const Writer& w) { return w.of("Atanh", w.x); }},
      {"sign", [](const Writer& w) { return w.of("Sign", w.x); }},
      {"ceil", [](const Writer& w) { return w.of("Ceil", w.x); }},
      {"floor", [](const Writer& w) { return w.of("Floor", w.x); }},
      {"round", [](const Writer& w) { return w.of("Round", w.x); }},
      {"trunc", [](const Writer& w) { return w.mul(w.of("Sign", w.x), w.of("Floor", w.of("Abs", w.x))); }},
      {"sigmoid", [](const Writer& w) { return w.of("Sigmoid", w.x); }},
      {"relu", [](const Writer& w) { return w.of("Relu", w.x); }},
      {"leaky_relu",
       [](const Writer& w) {
         return w.of("LeakyRelu", w.x, {{"alpha", attribute(w.p[0])}});
       }},
      {"softplus", [](const Writer& w) { return w.of("Softplus", w.x); }},
      {"logsigmoid", [](const Writer& w) { return w.of("Neg", w.of("Softplus", w.of("Neg", w.x))); }},
      {"softsign", [](const Writer& w) { return w.of("Softsign", w.x); }},
      {"silu", [](const Writer& w) { return w.mul(w.x, w.of("Sigmoid", w.x)); }},
      {"mish", [](const Writer& w) { return w.mul(w.x, w.of("Tanh", w.of("Softplus", w.x))); }},
      {"hardswish", [](const Writer& w) { return w.of("HardSwish", w.x); }},
      {"hardsigmoid",
       [](const Writer& w) {
         return w.of("HardSigmoid", w.x, {{"alpha", attribute(1. / 6)}});
       }},
      {"elu",
       [](const Writer& w) {
         if (w.p[1] == 1) return w.of("Elu", w.x, {{"alpha", attribute(w.p[0])}});
         return w.of("Celu", w.x, {{"alpha", attribute(w.p[0])}});
       }},
      {"selu", [](const Writer& w) { return w.of("Selu", w.x); }},
      {"gelu",
       [](const Writer& w) {
         if (w.e.opset() >= 20) return w.of("Gelu", w.x);
         const std::string erf = w.of("Erf", w.mul(w.x, w.number(std::numbers::sqrt2 / 2)));
         return w.mul(w.mul(w.x, w.number(0.5)), w.add(erf, w.number(1)));
       }},
      {"gelu_tanh",
       [](const Writer& w) {
         if (w.e.opset() >= 20) return w.of("Gelu", w.x, {{"approximate", attribute(std::string("tanh"))}});
         const std::string cube = w.mul(w.mul(w.x, w.x), w.x);
         const std::string inner =
             w.mul(w.add(w.x, w.mul(cube, w.number(0.044715))), w.number(std::sqrt(2 / std::numbers::pi)));
         return w.mul(w.mul(w.x, w.number(0.5)), w.add(w.of("Tanh", inner), w.number(1)));
       }},
      {"clamp", [](const Writer& w) { return w.clip(w.x, w.p[0], w.p[1]); }},
      {"hardtanh", [](const Writer& w) { return w.clip(w.x, w.p[0], w.p[1]); }},
      {"pow_scalar",
       [](const Writer& w) {
         return w.e.node("Pow", {w.x, w.number(w.p[0])});
       }},
      {"add_scalar", [](const Writer& w) { return w.add(w.x, w.number(w.p[0])); }},
      {"mul_scalar", [](const Writer& w) { return w.mul(w.x, w.number(w.p[0])); }},
      {"add", [](const Writer& w) { return w.add(w.x, w.y); }},
      {"sub", [](const Writer& w) { return w.sub(w.x, w.y); }},
      {"mul", [](const Writer& w) { return w.mul(w.x, w.y); }},
      {"div", [](const Writer& w) { return w.div(w.x, w.y); }},
      {"maximum",
       [](const Writer& w) {
         return w.e.node("Max", {w.x, w.y});
       }},
      {"minimum",
       [](const Writer& w) {
         return w.e.node("Min", {w.x, w.y});
       }},
      {"pow",
       [](const Writer& w) {
         return w.e.node("Pow", {w.x, w.y});
       }},
      {"fmod",
       [](const Writer& w) {
         return w.e.node("Mod", {w.x, w.y}, {{"fmod", attribute(int64_t{1})}});
       }},
      {"remainder",
       [](const Writer& w) {
         if (!is_floating(w.dtype)) return w.e.node("Mod", {w.x, w.y});
         return w.sub(w.x, w.mul(w.of("Floor", w.div(w.x, w.y)), w.y));
       }},
      {"floor_divide",
       [](const Writer& w) {
         if (is_floating(w.dtype)) return w.of("Floor", w.div(w.x, w.y));
         return w.div(w.sub(w.x, w.e.node("Mod", {w.x, w.y})), w.y);
       }},
      {"prelu",
       [](const Writer& w) {
         const std::string zero = w.number(0);
         return w.add(w.e.node("Max", {w.x, zero}), w.mul(w.y, w.e.node("Min", {w.x, zero})));
       }},
      {"logaddexp",
       [](const Writer& w) {
         const std::string high = w.e.node("Max", {w.x, w.y}), apart = w.of("Neg", w.of("Abs", w.sub(w.x, w.y)));
         return w.add(high, w.of("Log", w.add(w.of("Exp", apart), w.number(1))));
       }},
      {"squared_difference",
       [](const Writer& w) {
         const std::string apart = w.sub(w.x, w.y);
         return w.mul(apart, apart);
       }},
      {"swiglu", [](const Writer& w) { return w.mul(w.mul(w.x, w.of("Sigmoid", w.x)), w.y); }},
      {"lerp", [](const Writer& w) { return w.add(w.x, w.mul(w.z, w.sub(w.y, w.x))); }},
      {"addcmul", [](const Writer& w) { return w.add(w.x, w.mul(w.mul(w.y, w.z), w.number(w.p[0]))); }},
      {"addcdiv", [](const Writer& w) { return w.add(w.x, w.mul(w.div(w.y, w.z), w.number(w.p[0]))); }},
      {"nan_to_num",
       [](const Writer& w) {
         const std::string no_nan = w.select(w.of("IsNaN", w.x), w.number(w.p[0]), w.x);
         const auto infinite = [&](int64_t positive) {
           return w.of(
               "IsInf", w.x,
               {{"detect_positive", attribute(positive)}, {"detect_negative", attribute(int64_t{1} - positive)}});
         };
         return w.select(infinite(0), w.number(w.p[2]), w.select(infinite(1), w.number(w.p[1]), no_nan));
       }},
  };
  return all;
}

void write_formula(Exporter& e, const Graph::Node& node, const Arguments& arguments) {
  const DType dtype = result_type(e, node);
  Writer w{.e = e, .node = node, .dtype = dtype, .p = numbers_among(arguments), .x = {}, .y = {}, .z = {}};
  for (const GraphArgument& a : arguments)
    if (a.kind == GraphArgument::Kind::kNumber && !a.text.empty()) e.refuse("its number " + a.text + " varies");
  w.x = input_as(e, node, 0, dtype);
  if (node.inputs.size() > 1) w.y = input_as(e, node, 1, dtype);
  if (node.inputs.size() > 2) w.z = input_as(e, node, 2, dtype);
  e.set(node.outputs[0], formulas().at(node.op)(w));
}

/// Comparisons: of the inputs in their common type.
void write_comparison(Exporter& e, const Graph::Node& node, const Arguments&) {
  static const std::map<std::string, std::pair<const char*, bool>> ops = {
      // and whether the result is turned around
      {"eq", {"Equal", false}},   {"ne", {"Equal", true}},        {"lt", {"Less", false}},
      {"gt", {"Greater", false}}, {"le", {"LessOrEqual", false}}, {"ge", {"GreaterOrEqual", false}}};
  const Graph::Value &a = e.info(node.inputs[0]), &b = e.info(node.inputs[1]);
  DType dtype = promote(a.dtype, b.dtype);
  if (a.shape.empty() != b.shape.empty()) {  // a number takes the type of the tensor unless it is of a higher kind
    const DType wide = a.shape.empty() ? b.dtype : a.dtype, number = a.shape.empty() ? a.dtype : b.dtype;
    dtype = promote_dimensioned(wide, number);
  }
  if (dtype == DType::kBool && node.op != "eq" && node.op != "ne") dtype = DType::kInt32;
  const auto& [op, turned] = ops.at(node.op);
  const std::string result = e.node(op, {input_as(e, node, 0, dtype), input_as(e, node, 1, dtype)});
  e.set(node.outputs[0], turned ? e.node("Not", {result}) : result);
}

void write_logical(Exporter& e, const Graph::Node& node, const Arguments&) {
  static const std::map<std::string, const char*> ops = {
      {"logical_and", "And"}, {"logical_or", "Or"}, {"logical_xor", "Xor"}};
  const std::string x = input_as(e, node, 0, DType::kBool);
  if (node.op == "logical_not") return e.set(node.outputs[0], e.node("Not", {x}));
  e.set(node.outputs[0], e.node(ops.at(node.op), {x, input_as(e, node, 1, DType::kBool)}));
}

void write_bitwise(Exporter& e, const Graph::Node& node, const Arguments&) {
  const DType dtype = result_type(e, node);
  const std::string x = input_as(e, node, 0, dtype), y = input_as(e, node, 1, dtype);
  const bool logical = dtype == DType::kBool;
  if (!logical && e.opset() < 18) e.refuse("bitwise nodes begin with opset 18");
  const std::string kind = node.op == "bitwise_and" ? "And" : node.op == "bitwise_or" ? "Or" : "Xor";
  e.set(node.outputs[0], e.node((logical ? "" : "Bitwise") + kind, {x, y}));
}

void write_classification(Exporter& e, const Graph::Node& node, const Arguments&) {
  const std::string x = e.name(node.inputs[0]), nan = e.node("IsNaN", {x});
  if (node.op == "isnan") return e.set(node.outputs[0], nan);
  e.set(node.outputs[0], e.node("Not", {e.node("Or", {nan, e.node("IsInf", {x})})}));
}

void write_where(Exporter& e, const Graph::Node& node, const Arguments&) {
  const DType dtype = result_type(e, node);
  e.set(node.outputs[0], e.node("Where", {input_as(e, node, 0, DType::kBool), input_as(e, node, 1, dtype),
                                          input_as(e, node, 2, dtype)}));
}

}  // namespace

void add_pointwise(ExportTable& table) {
  for (const auto& [op, formula] : formulas()) table[op] = write_formula;
  for (const char* op : {"eq", "ne", "lt", "gt", "le", "ge"}) table[op] = write_comparison;
  for (const char* op : {"logical_and", "logical_or", "logical_xor", "logical_not"}) table[op] = write_logical;
  for (const char* op : {"bitwise_and", "bitwise_or", "bitwise_xor"}) table[op] = write_bitwise;
  for (const char* op : {"isnan", "isfinite"}) table[op] = write_classification;
  table["where"] = write_where;
}

}  // namespace tern::onnx
