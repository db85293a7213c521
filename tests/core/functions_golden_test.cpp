// Element-wise functions, reductions, norms and losses against numbers that PyTorch computed in float64, also at 0, -0,
// infinities and NaN (tests/golden/make_functions.py).

#include "tern/tests/core/golden.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;
using golden::Tensors;
using Unary = Tensor (*)(const Tensor&);
const std::map<std::string, Unary> kUnary = {{"neg", neg},
                                             {"abs", abs},
                                             {"exp", exp},
                                             {"expm1", expm1},
                                             {"exp2", exp2},
                                             {"log", log},
                                             {"log1p", log1p},
                                             {"log2", log2},
                                             {"log10", log10},
                                             {"sqrt", sqrt},
                                             {"rsqrt", rsqrt},
                                             {"square", square},
                                             {"reciprocal", reciprocal},
                                             {"erf", erf},
                                             {"erfinv", erfinv},
                                             {"sign", sign},
                                             {"floor", floor},
                                             {"ceil", ceil},
                                             {"trunc", trunc},
                                             {"round", round},
                                             {"sin", sin},
                                             {"cos", cos},
                                             {"tan", tan},
                                             {"asin", asin},
                                             {"acos", acos},
                                             {"atan", atan},
                                             {"sinh", sinh},
                                             {"cosh", cosh},
                                             {"tanh", tanh},
                                             {"asinh", asinh},
                                             {"acosh", acosh},
                                             {"atanh", atanh},
                                             {"sigmoid", sigmoid},
                                             {"relu", relu},
                                             {"relu6", relu6},
                                             {"selu", selu},
                                             {"silu", silu},
                                             {"mish", mish},
                                             {"softplus", softplus},
                                             {"logsigmoid", logsigmoid},
                                             {"softsign", softsign},
                                             {"hardsigmoid", hardsigmoid},
                                             {"hardswish", hardswish}};

LossReduction reduction_of(const Json& params) {
  const std::string name = params.value("reduction", "mean");
  return name == "mean" ? LossReduction::kMean : name == "sum" ? LossReduction::kSum : LossReduction::kNone;
}

Tensor run_pointwise(const std::string& op, const Json& params, const Tensors& in) {
  const auto value = [&](int i) { return params["values"][i].get<double>(); };
  if (op == "leaky_relu") return leaky_relu(in.at("x"), value(0));
  if (op == "elu") return elu(in.at("x"), value(0));
  if (op == "softshrink") return softshrink(in.at("x"), value(0));
  if (op == "hardshrink") return hardshrink(in.at("x"), value(0));
  if (op == "hardtanh") return hardtanh(in.at("x"), value(0), value(1));
  if (op == "prelu") return prelu(in.at("x"), in.at("weight"));
  if (op == "atan2") return atan2(in.at("a"), in.at("b"));
  if (op == "remainder") return remainder(in.at("a"), in.at("b"));
  if (op == "fmod") return fmod(in.at("a"), in.at("b"));
  if (op == "pow") return pow(in.at("a"), in.at("b"));
  if (op == "lerp") return lerp(in.at("a"), in.at("b"), in.at("weight"));
  return {};
}

Tensor run_reduction(const std::string& op, const Json& params, const Tensors& in) {
  const std::vector<int> dims = params.value("dims", std::vector<int>());
  if (op == "var") return var(in.at("x"), dims, params["correction"]);
  if (op == "std") return tern::std(in.at("x"), dims, params["correction"]);
  if (op == "logsumexp") return logsumexp(in.at("x"), dims);
  if (op == "prod") return prod(in.at("x"), dims);
  if (op == "vector_norm") return vector_norm(in.at("x"), std::stod(params["order"].get<std::string>()), dims);
  if (op == "normalize") return normalize(in.at("x"), params["order"]);
  if (op == "cosine_similarity") return cosine_similarity(in.at("a"), in.at("b"));
  if (op == "pairwise_distance") return pairwise_distance(in.at("a"), in.at("b"));
  return {};
}

Tensor run_class_loss(const std::string& op, const Json& params, const Tensors& in) {
  const LossReduction reduction = reduction_of(params);
  const Tensor x = optional(in, "x"), target = optional(in, "target"), weight = optional(in, "weight");
  if (op == "cross_entropy")
    return cross_entropy(x, target,
                         {.weight = weight, .label_smoothing = params["label_smoothing"], .reduction = reduction});
  if (op == "nll_loss") return nll_loss(x, target, {.weight = weight, .reduction = reduction});
  if (op == "binary_cross_entropy") return binary_cross_entropy(x, target, {.weight = weight, .reduction = reduction});
  if (op == "binary_cross_entropy_with_logits")
    return binary_cross_entropy_with_logits(
        x, target, {.weight = weight, .pos_weight = optional(in, "pos_weight"), .reduction = reduction});
  if (op == "sigmoid_focal_loss")
    return sigmoid_focal_loss(x, target, {.alpha = params["alpha"], .gamma = params["gamma"], .reduction = reduction});
  return {};
}

Tensor run_loss(const std::string& op, const Json& params, const Tensors& in) {
  const LossReduction reduction = reduction_of(params);
  const Tensor x = optional(in, "x"), target = optional(in, "target"), a = optional(in, "a"), b = optional(in, "b");
  if (op == "mse_loss") return mse_loss(in.at("input"), target, reduction);
  if (op == "l1_loss") return l1_loss(in.at("input"), target, reduction);
  if (op == "smooth_l1_loss") return smooth_l1_loss(x, target, params["width"], reduction);
  if (op == "huber_loss") return huber_loss(x, target, params["width"], reduction);
  if (op == "poisson_nll_loss")
    return poisson_nll_loss(x, target, {.log_input = params["log_input"], .full = true, .reduction = reduction});
  if (op == "gaussian_nll_loss")
    return gaussian_nll_loss(x, target, in.at("variance"), {.full = true, .reduction = reduction});
  if (op == "kl_div") return kl_div(x, target, {.log_target = params["log_target"], .reduction = reduction});
  if (op == "cosine_embedding_loss")
    return cosine_embedding_loss(a, b, target, {.margin = params["margin"], .reduction = reduction});
  if (op == "margin_ranking_loss")
    return margin_ranking_loss(a, b, target, {.margin = params["margin"], .reduction = reduction});
  if (op == "hinge_embedding_loss")
    return hinge_embedding_loss(x, target, {.margin = params["margin"], .reduction = reduction});
  if (op == "soft_margin_loss") return soft_margin_loss(x, target, reduction);
  if (op == "triplet_margin_loss")
    return triplet_margin_loss(a, b, in.at("c"),
                               {.margin = 2, .p = params["order"], .swap = params["swap"], .reduction = reduction});
  return {};
}

Tensor run_function(const std::string& op, const Json& params, Tensors& in) {
  if (const auto unary = kUnary.find(op); unary != kUnary.end()) return unary->second(in.at("x"));
  for (const auto run : {run_pointwise, run_reduction, run_class_loss, run_loss})
    if (const Tensor result = run(op, params, in); result.defined()) return result;
  fail("the test does not know the op ", op);
}

TEST(Golden, FunctionsFloat32) { golden::check("functions.json", "functions", float32, run_function, 600); }
TEST(Golden, FunctionsFloat64) { golden::check("functions.json", "functions", float64, run_function, 600); }

}  // namespace
}  // namespace tern::test
