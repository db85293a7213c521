// The functions of more_functions.json (tests/golden/make_functions.py) against numbers that PyTorch computed in
// float64, also at 0, -0, infinities and NaN: losses, and ops of every family.

#include "tern/tests/core/golden.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;
using golden::Tensors;
using Run = std::function<Tensor(const Json& params, const Tensors& in)>;
using Table = std::map<std::string, Run>;

LossReduction reduction_of(const Json& params) {
  const std::string name = params["reduction"];
  return name == "mean" ? LossReduction::kMean : name == "sum" ? LossReduction::kSum : LossReduction::kNone;
}
int dim_of(const Json& params) { return params["dim"]; }
double order_of(const Json& params) { return std::stod(params["order"].get<std::string>()); }

void add_losses(Table& table) {
  table["multi_margin_loss"] = [](const Json& params, const Tensors& in) {
    return multi_margin_loss(in.at("x"), in.at("target"),
                             {.p = params["p"],
                              .margin = params["margin"],
                              .weight = optional(in, "weight"),
                              .reduction = reduction_of(params)});
  };
  table["multilabel_margin_loss"] = [](const Json& params, const Tensors& in) {
    return multilabel_margin_loss(in.at("x"), in.at("target"), reduction_of(params));
  };
  table["multilabel_soft_margin_loss"] = [](const Json& params, const Tensors& in) {
    return multilabel_soft_margin_loss(in.at("x"), in.at("target"),
                                       {.weight = optional(in, "weight"), .reduction = reduction_of(params)});
  };
  table["ctc_loss"] = [](const Json& params, const Tensors& in) {
    return ctc_loss(
        log_softmax(in.at("x")), in.at("target"), in.at("input_lengths"), in.at("target_lengths"),
        {.blank = params["blank"], .reduction = reduction_of(params), .zero_infinity = params["zero_infinity"]});
  };
}

void add_pointwise(Table& table) {
  const auto of_two = [](Tensor (*op)(const Tensor&, const Tensor&)) {
    return [op](const Json&, const Tensors& in) { return op(in.at("a"), in.at("b")); };
  };
  table["logaddexp"] = of_two(logaddexp);
  table["hypot"] = of_two(hypot);
  table["copysign"] = of_two(copysign);
  table["swiglu"] = of_two(swiglu);
  table["glu"] = [](const Json& params, const Tensors& in) { return glu(in.at("x"), dim_of(params)); };
  table["floor_divide"] = of_two(floor_divide);
  table["isclose"] = [](const Json&, const Tensors& in) { return isclose(in.at("a"), in.at("b")); };
  table["nan_to_num"] = [](const Json& params, const Tensors& in) {
    const std::vector<double> v = params["values"];
    return v.size() == 1 ? nan_to_num(in.at("x"), v[0]) : nan_to_num(in.at("x"), v[0], v[1], v[2]);
  };
  table["clamp"] = [](const Json&, const Tensors& in) { return clamp(in.at("x"), in.at("low"), in.at("high")); };
  table["addcmul"] = [](const Json&, const Tensors& in) { return addcmul(in.at("x"), in.at("a"), in.at("b"), -1.5); };
  table["addcdiv"] = [](const Json&, const Tensors& in) { return addcdiv(in.at("x"), in.at("a"), in.at("b"), -1.5); };
}

void add_reductions(Table& table) {
  const auto along = [](Tensor (*op)(const Tensor&, int)) {
    return [op](const Json& params, const Tensors& in) { return op(in.at("x"), dim_of(params)); };
  };
  table["cumprod"] = along(cumprod);
  table["logcumsumexp"] = along(logcumsumexp);
  table["cummax"] = along([](const Tensor& x, int dim) { return cummax(x, dim).values; });
  table["cummin"] = along([](const Tensor& x, int dim) { return cummin(x, dim).values; });
  table["cummax_indices"] = along([](const Tensor& x, int dim) { return cummax(x, dim).indices; });
  table["cummin_indices"] = along([](const Tensor& x, int dim) { return cummin(x, dim).indices; });
  table["mode"] = along([](const Tensor& x, int dim) { return mode(x, dim).values; });
  table["mode_indices"] = along([](const Tensor& x, int dim) { return mode(x, dim).indices; });
  table["nansum"] = [](const Json& params, const Tensors& in) { return nansum(in.at("x"), params["dims"]); };
  table["nanmean"] = [](const Json& params, const Tensors& in) { return nanmean(in.at("x"), params["dims"]); };
  table["nanquantile"] = [](const Json& params, const Tensors& in) {
    const std::vector<std::string> names = {"linear", "lower", "higher", "midpoint", "nearest"};
    const auto way = std::find(names.begin(), names.end(), params["interpolation"]) - names.begin();
    return nanquantile(in.at("x"), in.at("q"), dim_of(params), false, static_cast<Interpolation>(way));
  };
  table["diff"] = [](const Json& params, const Tensors& in) {
    return diff(in.at("x"), params["n"], dim_of(params), optional(in, "prepend"), optional(in, "append"));
  };
  table["cov"] = [](const Json& params, const Tensors& in) {
    return cov(in.at("x"), params["correction"], optional(in, "fweights"), optional(in, "aweights"));
  };
  table["corrcoef"] = [](const Json&, const Tensors& in) { return corrcoef(in.at("x")); };
  table["trapezoid"] = [](const Json& params, const Tensors& in) {
    if (params.contains("dx")) return trapezoid(in.at("x"), params["dx"].get<double>(), dim_of(params));
    return trapezoid(in.at("x"), in.at("at"), dim_of(params));
  };
  table["cdist"] = [](const Json& params, const Tensors& in) {
    return cdist(in.at("a"), in.at("b"), order_of(params));
  };
  table["pdist"] = [](const Json& params, const Tensors& in) { return pdist(in.at("x"), order_of(params)); };
  table["renorm"] = [](const Json& params, const Tensors& in) {
    return renorm(in.at("x"), params["order"], dim_of(params), 1.5);
  };
}

void add_rearrangements(Table& table) {
  table["rot90"] = [](const Json& params, const Tensors& in) {
    return rot90(in.at("x"), params["k"], params["dims"][0], params["dims"][1]);
  };
  table["block_diag"] = [](const Json&, const Tensors& in) { return block_diag({in.at("a"), in.at("b"), in.at("c")}); };
  table["cartesian_prod"] = [](const Json&, const Tensors& in) {
    return cartesian_prod({in.at("a"), in.at("b"), in.at("c")});
  };
  table["tril_indices"] = [](const Json& params, const Tensors&) {
    return tril_indices(params["rows"], params["cols"], params["offset"]);
  };
  table["triu_indices"] = [](const Json& params, const Tensors&) {
    return triu_indices(params["rows"], params["cols"], params["offset"]);
  };
  table["put"] = [](const Json& params, const Tensors& in) {
    return put(in.at("x"), in.at("index"), in.at("source"), params["accumulate"]);
  };
  using Unique = UniqueResult (*)(const Tensor&, int);
  for (const auto& [name, op] :
       std::map<std::string, Unique>{{"unique", unique}, {"unique_consecutive", unique_consecutive}}) {
    const auto part = [op = op](Tensor UniqueResult::*member) {
      return [=](const Json& params, const Tensors& in) { return op(in.at("x"), dim_of(params)).*member; };
    };
    table[name + "_slices"] = part(&UniqueResult::values);
    table[name + "_slices_inverse"] = part(&UniqueResult::inverse);
    table[name + "_slices_counts"] = part(&UniqueResult::counts);
  }
}

void add_special_and_bits(Table& table) {
  using Two = Tensor (*)(const Tensor&, const Tensor&);
  for (const auto& [name, op] : std::map<std::string, Two>{{"xlogy", xlogy},
                                                           {"xlog1py", xlog1py},
                                                           {"heaviside", heaviside},
                                                           {"gcd", gcd},
                                                           {"lcm", lcm},
                                                           {"bitwise_and", bitwise_and},
                                                           {"bitwise_or", bitwise_or},
                                                           {"bitwise_xor", bitwise_xor},
                                                           {"bitwise_left_shift", bitwise_left_shift},
                                                           {"bitwise_right_shift", bitwise_right_shift}})
    table[name] = [op = op](const Json&, const Tensors& in) { return op(in.at("a"), in.at("b")); };
  table["igamma"] = [](const Json&, const Tensors& in) { return igamma(in.at("a").detach(), in.at("x")); };
  table["igammac"] = [](const Json&, const Tensors& in) { return igammac(in.at("a").detach(), in.at("x")); };
  table["bitwise_not"] = [](const Json&, const Tensors& in) { return bitwise_not(in.at("a")); };
  using One = Tensor (*)(const Tensor&);
  for (const auto& [name, op] : std::map<std::string, One>{{"entr", entr},
                                                           {"sinc", sinc},
                                                           {"ndtr", ndtr},
                                                           {"log_ndtr", log_ndtr},
                                                           {"erfc", erfc},
                                                           {"erfcx", erfcx},
                                                           {"i0", i0},
                                                           {"i0e", i0e},
                                                           {"i1", i1},
                                                           {"i1e", i1e},
                                                           {"lgamma", lgamma},
                                                           {"digamma", digamma}})
    table[name] = [op = op](const Json&, const Tensors& in) { return op(in.at("x")); };
  table["polygamma"] = [](const Json& params, const Tensors& in) { return polygamma(params["order"], in.at("x")); };
  table["logit"] = [](const Json& params, const Tensors& in) {
    return params.contains("eps") ? logit(in.at("x"), params["eps"].get<double>()) : logit(in.at("x"));
  };
  table["celu"] = [](const Json& params, const Tensors& in) { return celu(in.at("x"), params["alpha"]); };
  table["threshold"] = [](const Json&, const Tensors& in) { return threshold(in.at("x"), 0.5, -2); };
}

Histogram histogram_of(const Json& params, const Tensors& in) {
  HistogramOptions options{.weights = optional(in, "weight"), .density = params["density"]};
  if (!params.contains("bins")) return histogram(in.at("x"), in.at("edges"), options);
  options.low = params["range"][0];
  options.high = params["range"][1];
  return histogram(in.at("x"), params["bins"].get<int64_t>(), options);
}

void add_statistics(Table& table) {
  table["aminmax_min"] = [](const Json& params, const Tensors& in) {
    return aminmax(in.at("x"), {dim_of(params)}).min;
  };
  table["aminmax_max"] = [](const Json& params, const Tensors& in) {
    return aminmax(in.at("x"), {dim_of(params)}).max;
  };
  table["var_mean_0"] = [](const Json& params, const Tensors& in) {
    return var_mean(in.at("x"), {dim_of(params)}, 0.5).var;
  };
  table["var_mean_1"] = [](const Json& params, const Tensors& in) {
    return var_mean(in.at("x"), {dim_of(params)}, 0.5).mean;
  };
  table["std_mean_0"] = [](const Json& params, const Tensors& in) {
    return std_mean(in.at("x"), {dim_of(params)}, 0.5).std;
  };
  table["std_mean_1"] = [](const Json& params, const Tensors& in) {
    return std_mean(in.at("x"), {dim_of(params)}, 0.5).mean;
  };
  table["count_nonzero"] = [](const Json& params, const Tensors& in) {
    return count_nonzero(in.at("x"), {dim_of(params)});
  };
  table["cumulative_trapezoid"] = [](const Json& params, const Tensors& in) {
    if (params.contains("dx")) return cumulative_trapezoid(in.at("x"), params["dx"].get<double>(), dim_of(params));
    return cumulative_trapezoid(in.at("x"), in.at("at"), dim_of(params));
  };
  table["vecdot"] = [](const Json& params, const Tensors& in) {
    return vecdot(in.at("a"), in.at("b"), dim_of(params));
  };
  table["histogram_counts"] = [](const Json& params, const Tensors& in) { return histogram_of(params, in).counts; };
  table["histogram_edges"] = [](const Json& params, const Tensors& in) { return histogram_of(params, in).edges; };
  table["matrix_norm"] = [](const Json& params, const Tensors& in) {
    const auto order = params["order"] == "fro" ? std::optional<double>() : order_of(params);
    return matrix_norm(in.at("x"), order, params["dims"][0], params["dims"][1]);
  };
  table["matrix_power"] = [](const Json& params, const Tensors& in) {
    return matrix_power(in.at("x"), params["exponent"]);
  };
}

void add_stacks(Table& table) {
  table["dstack"] = [](const Json&, const Tensors& in) { return dstack({in.at("a"), in.at("b")}); };
  table["column_stack"] = [](const Json&, const Tensors& in) { return column_stack({in.at("a"), in.at("b")}); };
  table["combinations"] = [](const Json& params, const Tensors& in) {
    return combinations(in.at("x"), params["r"], params["replacement"]);
  };
  table["vander"] = [](const Json& params, const Tensors& in) {
    return vander(in.at("x"), params["columns"].get<int64_t>(), params["increasing"]);
  };
  table["broadcast_tensors"] = [](const Json&, const Tensors& in) {
    return stack(broadcast_tensors({in.at("a"), in.at("b"), in.at("c")}));
  };
  table["unravel_index"] = [](const Json&, const Tensors& in) {
    return stack(unravel_index(in.at("index"), {3, 4, 5}));
  };
}

void add_index_reduce_and_triplets(Table& table) {
  table["index_reduce"] = [](const Json& params, const Tensors& in) {
    const std::map<std::string, ScatterReduction> names = {{"prod", ScatterReduction::kProd},
                                                           {"mean", ScatterReduction::kMean},
                                                           {"amax", ScatterReduction::kMax},
                                                           {"amin", ScatterReduction::kMin}};
    return index_reduce(in.at("x"), 1, in.at("index"), in.at("source"), names.at(params["reduce"]),
                        params["include_self"]);
  };
  table["triplet_margin_with_distance_loss"] = [](const Json& params, const Tensors& in) {
    const auto distance = [](const Tensor& x, const Tensor& y) { return 1.0 - cosine_similarity(x, y); };
    return triplet_margin_with_distance_loss(
        in.at("a"), in.at("b"), in.at("c"), distance,
        {.margin = 0.8, .swap = params["swap"], .reduction = reduction_of(params)});
  };
}

Tensor run_function(const std::string& op, const Json& params, Tensors& in) {
  static const Table table = [] {
    Table all;
    for (const auto add : {add_losses, add_pointwise, add_reductions, add_rearrangements, add_special_and_bits,
                           add_statistics, add_stacks, add_index_reduce_and_triplets})
      add(all);
    return all;
  }();
  const auto found = table.find(op);
  TERN_CHECK(found != table.end(), "the test does not know the op ", op);
  return found->second(params, in);
}

TEST(Golden, MoreFunctionsFloat32) { golden::check("more_functions.json", "functions", float32, run_function, 350); }
TEST(Golden, MoreFunctionsFloat64) { golden::check("more_functions.json", "functions", float64, run_function, 350); }

}  // namespace
}  // namespace tern::test
