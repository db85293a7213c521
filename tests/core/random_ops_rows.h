#pragma once
// How Tern computes the ops of tests/golden/random_op_cases.py: pointwise ops, reductions, sorting.

#include "tern/tests/core/random_ops.h"

namespace tern::test::random_ops {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using WithNumber = Tensor (*)(const Tensor&, double);
using Reduce = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

inline Tensors pair_of(const SortResult& result) { return {result.values, result.indices}; }

inline void unary_rows(Table& t) {
  const std::pair<const char*, Unary> functions[] = {{"neg", neg},
                                                     {"abs", abs},
                                                     {"exp", exp},
                                                     {"expm1", expm1},
                                                     {"exp2", exp2},
                                                     {"erf", erf},
                                                     {"sign", sign},
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
                                                     {"atanh", atanh},
                                                     {"sigmoid", sigmoid},
                                                     {"sinc", sinc},
                                                     {"square", square},
                                                     {"log", log},
                                                     {"log1p", log1p},
                                                     {"log2", log2},
                                                     {"log10", log10},
                                                     {"sqrt", sqrt},
                                                     {"rsqrt", rsqrt},
                                                     {"acosh", acosh},
                                                     {"reciprocal", reciprocal},
                                                     {"erfinv", erfinv},
                                                     {"floor", floor},
                                                     {"ceil", ceil},
                                                     {"trunc", trunc},
                                                     {"round", round},
                                                     {"isnan", isnan},
                                                     {"isinf", isinf},
                                                     {"isfinite", isfinite},
                                                     {"logical_not", logical_not},
                                                     {"relu", relu},
                                                     {"selu", selu},
                                                     {"silu", silu},
                                                     {"mish", mish},
                                                     {"softplus", softplus},
                                                     {"logsigmoid", logsigmoid},
                                                     {"softsign", softsign},
                                                     {"hardsigmoid", hardsigmoid},
                                                     {"hardswish", hardswish},
                                                     {"relu6", relu6},
                                                     {"gelu", gelu},
                                                     {"gelu_tanh", gelu_tanh},
                                                     {"entr", entr},
                                                     {"ndtr", ndtr},
                                                     {"erfcx", erfcx},
                                                     {"log_ndtr", log_ndtr},
                                                     {"i0", i0},
                                                     {"i0e", i0e},
                                                     {"i1", i1},
                                                     {"i1e", i1e},
                                                     {"erfc", erfc},
                                                     {"lgamma", lgamma},
                                                     {"digamma", digamma},
                                                     {"bitwise_not", bitwise_not},
                                                     {"median_all", median},
                                                     {"nanmedian_all", nanmedian},
                                                     {"trace", trace},
                                                     {"nonzero", nonzero},
                                                     {"corrcoef", corrcoef}};
  for (const auto& [name, f] : functions) t[name] = [f](const Case& c) { return Tensors{f(c.in(0))}; };
  t["leaky_relu"] = [](const Case& c) { return Tensors{leaky_relu(c.in(0))}; };
  t["elu"] = [](const Case& c) { return Tensors{elu(c.in(0))}; };
  t["celu"] = [](const Case& c) { return Tensors{celu(c.in(0))}; };
  t["softshrink"] = [](const Case& c) { return Tensors{softshrink(c.in(0))}; };
  t["hardshrink"] = [](const Case& c) { return Tensors{hardshrink(c.in(0))}; };
  t["hardtanh"] = [](const Case& c) { return Tensors{hardtanh(c.in(0))}; };
  t["clamp"] = [](const Case& c) { return Tensors{clamp(c.in(0), c.number_of("low"), c.number_of("high"))}; };
  t["pow_number"] = [](const Case& c) { return Tensors{pow(c.in(0), c.number_of("exponent"))}; };
  t["leaky_relu_slope"] = [](const Case& c) { return Tensors{leaky_relu(c.in(0), c.number_of("slope"))}; };
  t["elu_alpha"] = [](const Case& c) { return Tensors{elu(c.in(0), c.number_of("alpha"))}; };
  t["celu_alpha"] = [](const Case& c) { return Tensors{celu(c.in(0), c.number_of("alpha"))}; };
  t["threshold"] = [](const Case& c) {
    return Tensors{threshold(c.in(0), c.number_of("threshold"), c.number_of("value"))};
  };
  t["softshrink_lambda"] = [](const Case& c) { return Tensors{softshrink(c.in(0), c.number_of("value"))}; };
  t["hardshrink_lambda"] = [](const Case& c) { return Tensors{hardshrink(c.in(0), c.number_of("value"))}; };
  t["hardtanh_bounds"] = [](const Case& c) {
    return Tensors{hardtanh(c.in(0), c.number_of("low"), c.number_of("high"))};
  };
  t["glu"] = [](const Case& c) { return Tensors{glu(c.in(0), c.dim())}; };
  t["nan_to_num"] = [](const Case& c) {
    const auto value = [&](const char* name) {
      return c.has(name) ? std::optional<double>(c.number_of(name)) : std::nullopt;
    };
    return Tensors{nan_to_num(c.in(0), c.number_of("nan"), value("posinf"), value("neginf"))};
  };
  t["logit"] = [](const Case& c) {
    return Tensors{c.has("eps") ? logit(c.in(0), c.number_of("eps")) : logit(c.in(0))};
  };
  t["polygamma"] = [](const Case& c) { return Tensors{polygamma(c.get<int>("n"), c.in(0))}; };
}

inline void binary_rows(Table& t) {
  const std::pair<const char*, Binary> functions[] = {{"add", add},
                                                      {"sub", sub},
                                                      {"mul", mul},
                                                      {"div", div},
                                                      {"maximum", maximum},
                                                      {"minimum", minimum},
                                                      {"atan2", atan2},
                                                      {"eq", eq},
                                                      {"ne", ne},
                                                      {"lt", lt},
                                                      {"le", le},
                                                      {"gt", gt},
                                                      {"ge", ge},
                                                      {"logical_and", logical_and},
                                                      {"logical_or", logical_or},
                                                      {"logical_xor", logical_xor},
                                                      {"xlogy", xlogy},
                                                      {"heaviside", heaviside},
                                                      {"remainder", remainder},
                                                      {"fmod", fmod},
                                                      {"floor_divide", floor_divide},
                                                      {"pow", pow},
                                                      {"logaddexp", logaddexp},
                                                      {"hypot", hypot},
                                                      {"copysign", copysign},
                                                      {"xlog1py", xlog1py},
                                                      {"nextafter", nextafter},
                                                      {"gcd", gcd},
                                                      {"lcm", lcm},
                                                      {"bitwise_left_shift", bitwise_left_shift},
                                                      {"bitwise_right_shift", bitwise_right_shift},
                                                      {"bitwise_and", bitwise_and},
                                                      {"bitwise_or", bitwise_or},
                                                      {"bitwise_xor", bitwise_xor},
                                                      {"swiglu", swiglu},
                                                      {"prelu", prelu},
                                                      {"masked_select", masked_select},
                                                      {"take", take},
                                                      {"igamma", igamma},
                                                      {"igammac", igammac}};
  for (const auto& [name, f] : functions) t[name] = [f](const Case& c) { return Tensors{f(c.in(0), c.in(1))}; };
  const std::pair<const char*, WithNumber> with_number[] = {{"add", add},
                                                            {"sub", sub},
                                                            {"mul", mul},
                                                            {"div", div},
                                                            {"remainder", remainder},
                                                            {"fmod", fmod},
                                                            {"floor_divide", floor_divide},
                                                            {"eq", eq},
                                                            {"ne", ne},
                                                            {"lt", lt},
                                                            {"le", le},
                                                            {"gt", gt},
                                                            {"ge", ge}};
  for (const auto& [name, f] : with_number)
    t[std::string(name) + "_number"] = [f](const Case& c) { return Tensors{f(c.in(0), c.number_of("number"))}; };
  t["where"] = [](const Case& c) { return Tensors{where(c.in(0), c.in(1), c.in(2))}; };
  t["masked_fill"] = [](const Case& c) { return Tensors{masked_fill(c.in(0), c.in(1), c.number_of("value"))}; };
  t["addcmul"] = [](const Case& c) { return Tensors{addcmul(c.in(0), c.in(1), c.in(2), c.number_of("value"))}; };
  t["addcdiv"] = [](const Case& c) { return Tensors{addcdiv(c.in(0), c.in(1), c.in(2), c.number_of("value"))}; };
  t["lerp"] = [](const Case& c) { return Tensors{lerp(c.in(0), c.in(1), c.in(2))}; };
  t["clamp_tensors"] = [](const Case& c) {
    const Tensor& high = c.in(2);
    return Tensors{clamp(c.in(0), c.in(1), is_floating(high.dtype()) ? high + 0.07 : high)};
  };
  t["isclose"] = [](const Case& c) {
    return Tensors{isclose(c.in(0), c.in(1), c.number_of("rtol"), c.number_of("atol"), c.flag("equal_nan"))};
  };
}

inline void reduction_rows(Table& t) {
  const std::pair<const char*, Reduce> functions[] = {
      {"sum", sum},   {"mean", mean}, {"nansum", nansum}, {"nanmean", nanmean},     {"max", max},  {"min", min},
      {"prod", prod}, {"all", all},   {"any", any},       {"logsumexp", logsumexp}, {"norm", norm}};
  for (const auto& [name, f] : functions)
    t[name] = [f](const Case& c) { return Tensors{f(c.in(0), c.dims(), c.flag("keepdim"))}; };
  t["count_nonzero"] = [](const Case& c) { return Tensors{count_nonzero(c.in(0), c.dims())}; };
  t["var"] = [](const Case& c) {
    return Tensors{var(c.in(0), c.dims(), c.number_of("correction"), c.flag("keepdim"))};
  };
  t["std"] = [](const Case& c) {
    return Tensors{tern::std(c.in(0), c.dims(), c.number_of("correction"), c.flag("keepdim"))};
  };
  t["var_mean"] = [](const Case& c) {
    const VarMean both = var_mean(c.in(0), c.dims(), c.number_of("correction"), c.flag("keepdim"));
    return Tensors{both.var, both.mean};
  };
  t["std_mean"] = [](const Case& c) {
    const StdMean both = std_mean(c.in(0), c.dims(), c.number_of("correction"), c.flag("keepdim"));
    return Tensors{both.std, both.mean};
  };
  t["vector_norm"] = [](const Case& c) {
    return Tensors{vector_norm(c.in(0), c.number_of("order"), c.dims(), c.flag("keepdim"))};
  };
  t["aminmax"] = [](const Case& c) {
    const Extremes both = aminmax(c.in(0), {c.dim()}, c.flag("keepdim"));
    return Tensors{both.min, both.max};
  };
  t["argmax"] = [](const Case& c) { return Tensors{argmax(c.in(0), c.dim(), c.flag("keepdim"))}; };
  t["argmin"] = [](const Case& c) { return Tensors{argmin(c.in(0), c.dim(), c.flag("keepdim"))}; };
  t["softmax"] = [](const Case& c) { return Tensors{softmax(c.in(0), c.dim())}; };
  t["log_softmax"] = [](const Case& c) { return Tensors{log_softmax(c.in(0), c.dim())}; };
  t["matrix_norm"] = [](const Case& c) {
    const auto order = c.has("order") ? std::optional<double>(c.number_of("order")) : std::nullopt;
    return Tensors{matrix_norm(c.in(0), order, c.dim("rows"), c.dim("cols"), c.flag("keepdim"))};
  };
  t["normalize"] = [](const Case& c) { return Tensors{normalize(c.in(0), c.number_of("order"), c.dim())}; };
  t["renorm"] = [](const Case& c) {
    return Tensors{renorm(c.in(0), c.number_of("order"), c.dim(), c.number_of("most"))};
  };
  t["sum_to"] = [](const Case& c) { return Tensors{sum_to(c.in(0), Shape(c.list("shape")))}; };
  t["cosine_similarity"] = [](const Case& c) { return Tensors{cosine_similarity(c.in(0), c.in(1), c.dim())}; };
  t["pairwise_distance"] = [](const Case& c) {
    return Tensors{pairwise_distance(c.in(0), c.in(1), c.number_of("order"), 1e-6, c.flag("keepdim"))};
  };
  t["cov"] = [](const Case& c) { return Tensors{cov(c.in(0), c.number_of("correction"), c.in(1), c.in(2))}; };
  t["trapezoid"] = [](const Case& c) { return Tensors{trapezoid(c.in(0), c.number_of("dx"), c.dim())}; };
  t["cumulative_trapezoid"] = [](const Case& c) {
    return Tensors{cumulative_trapezoid(c.in(0), c.number_of("dx"), c.dim())};
  };
}

inline Interpolation interpolation_of(const std::string& name) {
  if (name == "lower") return Interpolation::kLower;
  if (name == "higher") return Interpolation::kHigher;
  if (name == "midpoint") return Interpolation::kMidpoint;
  return name == "nearest" ? Interpolation::kNearest : Interpolation::kLinear;
}

inline void sort_rows(Table& t) {
  // Of equal elements PyTorch does not define the index: the values alone are compared.
  const auto positions = [](const Case& c, const SortResult& result) {
    return c.flag("values") ? Tensors{result.values} : pair_of(result);
  };
  t["cumsum"] = [](const Case& c) { return Tensors{cumsum(c.in(0), c.dim())}; };
  t["cumprod"] = [](const Case& c) { return Tensors{cumprod(c.in(0), c.dim())}; };
  t["logcumsumexp"] = [](const Case& c) { return Tensors{logcumsumexp(c.in(0), c.dim())}; };
  t["cummax"] = [](const Case& c) { return pair_of(cummax(c.in(0), c.dim())); };
  t["cummin"] = [](const Case& c) { return pair_of(cummin(c.in(0), c.dim())); };
  t["diff"] = [](const Case& c) { return Tensors{diff(c.in(0), c.get("n"), c.dim())}; };
  t["sort"] = [](const Case& c) { return pair_of(sort(c.in(0), c.dim(), c.flag("descending"))); };
  t["argsort"] = [](const Case& c) { return Tensors{argsort(c.in(0), c.dim(), c.flag("descending"))}; };
  t["topk"] = [=](const Case& c) { return positions(c, topk(c.in(0), c.get("k"), c.dim(), c.flag("largest"))); };
  t["kthvalue"] = [=](const Case& c) {
    return positions(c, kthvalue(c.in(0), c.get("k"), c.dim(), c.flag("keepdim")));
  };
  t["median"] = [=](const Case& c) { return positions(c, median(c.in(0), c.dim(), c.flag("keepdim"))); };
  t["nanmedian"] = [=](const Case& c) { return positions(c, nanmedian(c.in(0), c.dim(), c.flag("keepdim"))); };
  t["mode"] = [=](const Case& c) { return positions(c, mode(c.in(0), c.dim(), c.flag("keepdim"))); };
  const auto q = [](const Case& c) { return tensor(c.get<std::vector<double>>("q"), {.dtype = c.in(0).dtype()}); };
  t["quantile"] = [=](const Case& c) {
    return Tensors{quantile(c.in(0), q(c), c.dim(), c.flag("keepdim"), interpolation_of(c.get<std::string>("mode")))};
  };
  t["nanquantile"] = [=](const Case& c) {
    return Tensors{
        nanquantile(c.in(0), q(c), c.dim(), c.flag("keepdim"), interpolation_of(c.get<std::string>("mode")))};
  };
  t["bincount"] = [](const Case& c) { return Tensors{bincount(c.in(0), c.in(1), c.get("minlength"))}; };
  t["histc"] = [](const Case& c) {
    return Tensors{histc(c.in(0), c.get("bins"), c.number_of("low"), c.number_of("high"))};
  };
  t["histogram"] = [](const Case& c) {
    const HistogramOptions options{c.number_of("low"), c.number_of("high"), c.in(1), c.flag("density")};
    const Histogram result = histogram(c.in(0), c.get("bins"), options);
    return Tensors{result.counts, result.edges};
  };
  t["searchsorted"] = [](const Case& c) { return Tensors{searchsorted(c.in(0), c.in(1), c.flag("right"))}; };
  t["bucketize"] = [](const Case& c) { return Tensors{bucketize(c.in(0), c.in(1), c.flag("right"))}; };
  t["isin"] = [](const Case& c) { return Tensors{isin(c.in(0), c.in(1), c.flag("invert"))}; };
  t["unique"] = [](const Case& c) {
    const UniqueResult result = c.has("dim") ? unique(c.in(0), c.dim()) : unique(c.in(0));
    return Tensors{result.values, result.inverse, result.counts};
  };
  t["unique_consecutive"] = [](const Case& c) {
    const UniqueResult result = c.has("dim") ? unique_consecutive(c.in(0), c.dim()) : unique_consecutive(c.in(0));
    return Tensors{result.values, result.inverse, result.counts};
  };
}

inline Table rows() {
  Table t;
  unary_rows(t);
  binary_rows(t);
  reduction_rows(t);
  sort_rows(t);
  return t;
}

}  // namespace tern::test::random_ops
