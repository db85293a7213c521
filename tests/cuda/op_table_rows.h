#pragma once
// A call of every op for the table of docs/ops.md (op_table_test.cpp), with a tensor x [4, 4] of any dtype.

#include "tern/tests/cuda/device_test.h"
#include "tern/tests/cuda/op_table.h"

namespace tern::test {

/// Integers 0 ... on x's device.
inline Tensor places(const Tensor& x, const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())}).to(x.device());
}
inline Tensor mask_like(const Tensor& x) { return ones(x.shape(), {boolean, x.device()}); }
inline SequenceLayout one_sequence(const Tensor& x) { return packed_layout({4}, x.device()); }

inline void pointwise_rows(OpRows& t) {
  for (const auto& [name, fn] : std::vector<std::pair<const char*, OpRows::One>>{{"neg", neg},
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
                                                                                 {"erf", erf},
                                                                                 {"erfinv", erfinv},
                                                                                 {"sign", sign},
                                                                                 {"floor", floor},
                                                                                 {"ceil", ceil},
                                                                                 {"trunc", trunc},
                                                                                 {"round", round},
                                                                                 {"isnan", isnan},
                                                                                 {"isinf", isinf},
                                                                                 {"isfinite", isfinite},
                                                                                 {"logical_not", logical_not},
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
                                                                                 {"reciprocal", reciprocal}})
    t.one(name, fn);
  for (const auto& [name, fn] : std::vector<std::pair<const char*, OpRows::Two>>{{"add", add},
                                                                                 {"sub", sub},
                                                                                 {"mul", mul},
                                                                                 {"div", div},
                                                                                 {"pow", pow},
                                                                                 {"maximum", maximum},
                                                                                 {"minimum", minimum},
                                                                                 {"remainder", remainder},
                                                                                 {"fmod", fmod},
                                                                                 {"floor_divide", floor_divide},
                                                                                 {"atan2", atan2},
                                                                                 {"logaddexp", logaddexp},
                                                                                 {"hypot", hypot},
                                                                                 {"copysign", copysign},
                                                                                 {"eq", eq},
                                                                                 {"ne", ne},
                                                                                 {"lt", lt},
                                                                                 {"le", le},
                                                                                 {"gt", gt},
                                                                                 {"ge", ge},
                                                                                 {"logical_and", logical_and},
                                                                                 {"logical_or", logical_or},
                                                                                 {"logical_xor", logical_xor}})
    t.two(name, fn);
  t.op("clamp", [](const Tensor& x) { return clamp(x, 0, 2); });
  t.op("nan_to_num", [](const Tensor& x) { return nan_to_num(x); });
  t.op("where", [](const Tensor& x) { return where(mask_like(x), x, x); });
  t.op(
      "masked_fill", [](const Tensor& x) { return masked_fill(x, mask_like(x), 1); }, "Tensor.masked_fill");
  t.op("addcmul", [](const Tensor& x) { return addcmul(x, x, x); });
  t.op("addcdiv", [](const Tensor& x) { return addcdiv(x, x, x); });
  t.op("isclose", [](const Tensor& x) { return isclose(x, x); });
  t.op("lerp", [](const Tensor& x) { return lerp(x, x, 0.5); });
  t.prefix("F.");
  for (const auto& [name, fn] : std::vector<std::pair<const char*, OpRows::One>>{{"relu", relu},
                                                                                 {"relu6", relu6},
                                                                                 {"selu", selu},
                                                                                 {"gelu", gelu},
                                                                                 {"silu", silu},
                                                                                 {"mish", mish},
                                                                                 {"softplus", softplus},
                                                                                 {"logsigmoid", logsigmoid},
                                                                                 {"softsign", softsign},
                                                                                 {"hardsigmoid", hardsigmoid},
                                                                                 {"hardswish", hardswish}})
    t.one(name, fn);
  t.one("gelu_tanh", gelu_tanh, "F.gelu(approximate=\"tanh\")");
  t.op("leaky_relu", [](const Tensor& x) { return leaky_relu(x); });
  t.op("glu", [](const Tensor& x) { return glu(x); });
  t.op(
      "swiglu", [](const Tensor& x) { return swiglu(x, x); }, "F.silu(gate) * up");
  t.op("prelu", [](const Tensor& x) { return prelu(x, x.detach()[0]); });
  t.op("elu", [](const Tensor& x) { return elu(x); });
  t.op("softshrink", [](const Tensor& x) { return softshrink(x); });
  t.op("hardshrink", [](const Tensor& x) { return hardshrink(x); });
  t.op("hardtanh", [](const Tensor& x) { return hardtanh(x); });
  t.op("celu", [](const Tensor& x) { return celu(x); });
  t.op("threshold", [](const Tensor& x) { return threshold(x, 0.5, 0); });
  t.prefix("torch.");
  for (const auto& [name, fn] :
       std::vector<std::pair<const char*, OpRows::Two>>{{"bitwise_and", bitwise_and},
                                                        {"bitwise_or", bitwise_or},
                                                        {"bitwise_xor", bitwise_xor},
                                                        {"bitwise_left_shift", bitwise_left_shift},
                                                        {"bitwise_right_shift", bitwise_right_shift},
                                                        {"xlogy", xlogy},
                                                        {"heaviside", heaviside},
                                                        {"gcd", gcd},
                                                        {"lcm", lcm},
                                                        {"nextafter", nextafter}})
    t.two(name, fn);
  for (const auto& [name, fn] :
       std::vector<std::pair<const char*, OpRows::Two>>{{"igamma", igamma}, {"igammac", igammac}})
    t.op(name, [fn = fn](const Tensor& x) { return fn(ones_like(x.detach()), x); });
  t.one("bitwise_not", bitwise_not);
  t.one("erfc", erfc);
  t.one("lgamma", lgamma);
  t.one("digamma", digamma);
  t.op("polygamma", [](const Tensor& x) { return polygamma(1, x); });
  t.one("sinc", sinc);
  t.op("logit", [](const Tensor& x) { return logit(x); });
  t.prefix("torch.special.");
  t.two("xlog1py", xlog1py);
  t.one("entr", entr);
  t.one("ndtr", ndtr);
  for (const auto& [name, fn] : std::vector<std::pair<const char*, OpRows::One>>{
           {"log_ndtr", log_ndtr}, {"erfcx", erfcx}, {"i0", i0}, {"i0e", i0e}, {"i1", i1}, {"i1e", i1e}})
    t.one(name, fn);
}

inline void reduction_rows(OpRows& t) {
  t.prefix("torch.");
  using Reduce = Tensor (*)(const Tensor&, const std::vector<int>&, bool);
  for (const auto& [name, fn] : std::vector<std::pair<const char*, Reduce>>{{"sum", sum},
                                                                            {"mean", mean},
                                                                            {"nansum", nansum},
                                                                            {"nanmean", nanmean},
                                                                            {"prod", prod},
                                                                            {"all", all},
                                                                            {"any", any},
                                                                            {"logsumexp", logsumexp}})
    t.op(name, [fn = fn](const Tensor& x) { return fn(x, {1}, false); });
  t.op(
      "max", [](const Tensor& x) { return max(x, {1}); }, "torch.amax");
  t.op(
      "min", [](const Tensor& x) { return min(x, {1}); }, "torch.amin");
  t.op("argmax", [](const Tensor& x) { return argmax(x); });
  t.op("aminmax", [](const Tensor& x) { return aminmax(x, {1}).max; });
  t.op("count_nonzero", [](const Tensor& x) { return count_nonzero(x); });
  t.op("var_mean", [](const Tensor& x) { return var_mean(x).var; });
  t.op("std_mean", [](const Tensor& x) { return std_mean(x).std; });
  t.op("cumulative_trapezoid", [](const Tensor& x) { return cumulative_trapezoid(x); });
  t.op(
      "matrix_norm", [](const Tensor& x) { return matrix_norm(x); }, "torch.linalg.matrix_norm");
  t.op("argmin", [](const Tensor& x) { return argmin(x); });
  t.op(
      "sum_to", [](const Tensor& x) { return sum_to(x, {4}); }, "Tensor.sum_to_size");
  t.op("var", [](const Tensor& x) { return var(x); });
  t.op("std", [](const Tensor& x) { return tern::std(x); });
  t.op("cov", [](const Tensor& x) { return cov(x); });
  t.op("corrcoef", [](const Tensor& x) { return corrcoef(x); });
  t.op("trapezoid", [](const Tensor& x) { return trapezoid(x); });
  t.op(
      "norm", [](const Tensor& x) { return norm(x); }, "torch.linalg.vector_norm");
  t.op(
      "vector_norm", [](const Tensor& x) { return vector_norm(x, 3); }, "torch.linalg.vector_norm");
  t.op("renorm", [](const Tensor& x) { return renorm(x, 2, 0, 1); });
  t.prefix("F.");
  t.op("normalize", [](const Tensor& x) { return normalize(x); });
  t.op("cosine_similarity", [](const Tensor& x) { return cosine_similarity(x, x); });
  t.op("pairwise_distance", [](const Tensor& x) { return pairwise_distance(x, x.detach()); });
  t.op("softmax", [](const Tensor& x) { return softmax(x); });
  t.op("log_softmax", [](const Tensor& x) { return log_softmax(x); });
}

inline void order_rows(OpRows& t) {
  t.prefix("torch.");
  t.op("sort", [](const Tensor& x) { return sort(x).values; });
  t.op("argsort", [](const Tensor& x) { return argsort(x); });
  t.op("topk", [](const Tensor& x) { return topk(x, 2).values; });
  t.op("kthvalue", [](const Tensor& x) { return kthvalue(x, 2).values; });
  t.op("median", [](const Tensor& x) { return median(x, 1).values; });
  t.op("nanmedian", [](const Tensor& x) { return nanmedian(x, 1).values; });
  t.op("mode", [](const Tensor& x) { return mode(x).values; });
  t.op("quantile", [](const Tensor& x) { return quantile(x, 0.3, 1); });
  t.op("nanquantile", [](const Tensor& x) { return nanquantile(x, 0.3, 1); });
  t.op("searchsorted", [](const Tensor& x) { return searchsorted(x, x); });
  t.op("bucketize", [](const Tensor& x) { return bucketize(x, x[0]); });
  t.op("isin", [](const Tensor& x) { return isin(x, x); });
  t.op("cumsum", [](const Tensor& x) { return cumsum(x, 1); });
  t.op("cumprod", [](const Tensor& x) { return cumprod(x, 1); });
  t.op("logcumsumexp", [](const Tensor& x) { return logcumsumexp(x, 1); });
  t.op("cummax", [](const Tensor& x) { return cummax(x, 1).values; });
  t.op("cummin", [](const Tensor& x) { return cummin(x, 1).values; });
  t.op("diff", [](const Tensor& x) { return diff(x); });
  t.op(
      "nonzero", [](const Tensor& x) { return nonzero(x); }, "torch.nonzero, torch.argwhere");
  t.op("unique", [](const Tensor& x) { return unique(x).values; });
  t.op("unique_consecutive", [](const Tensor& x) { return unique_consecutive(x).values; });
  t.op("bincount", [](const Tensor& x) { return bincount(x[0]); });
  t.op("histc", [](const Tensor& x) { return histc(x); });
  t.op("histogram", [](const Tensor& x) { return histogram(x).counts; });
  t.op("masked_select", [](const Tensor& x) { return masked_select(x, mask_like(x)); });
}

inline void index_rows(OpRows& t) {
  t.op(
      "embedding",
      [](const Tensor& x) {
        return embedding(x, places(x, {1, 0}));
      },
      "F.embedding");
  t.op("index_select", [](const Tensor& x) { return index_select(x, 0, places(x, {1, 0})); });
  t.op("gather", [](const Tensor& x) { return gather(x, 0, places(x, {1, 0}).unsqueeze(0)); });
  t.op("take_along_dim", [](const Tensor& x) { return take_along_dim(x, places(x, {1, 0})); });
  t.op("take", [](const Tensor& x) { return take(x, places(x, {1, 0})); });
  t.op(
      "put",
      [](const Tensor& x) {
        return put(x, places(x, {1, 0}), x[0].slice(0, 0, 2));
      },
      "Tensor.put");
  t.op("cat", [](const Tensor& x) { return cat({x, x}); });
  t.op("stack", [](const Tensor& x) { return stack({x, x}); });
  const auto index = [](const Tensor& x) { return places(x, {1, 0, 1, 1}).unsqueeze(0); };
  t.op("scatter", [=](const Tensor& x) { return scatter(x, 0, index(x), x); });
  t.op("scatter_add", [=](const Tensor& x) { return scatter_add(x, 0, index(x), x); });
  t.op("scatter_reduce", [=](const Tensor& x) { return scatter_reduce(x, 0, index(x), x, ScatterReduction::kProd); });
  t.op("index_reduce",
       [](const Tensor& x) { return index_reduce(x, 0, places(x, {1}), x.slice(0, 0, 1), ScatterReduction::kMax); });
  t.op("index_add", [](const Tensor& x) { return index_add(x, 0, places(x, {1}), x.slice(0, 0, 1)); });
  t.op("index_copy", [](const Tensor& x) { return index_copy(x, 0, places(x, {1}), x.slice(0, 0, 1)); });
  t.op("index_fill", [](const Tensor& x) { return index_fill(x, 0, places(x, {1}), 1); });
  t.op("index_put", [](const Tensor& x) { return index_put(x, {places(x, {1})}, x[0]); });
  t.op("masked_scatter", [](const Tensor& x) { return masked_scatter(x, mask_like(x), x); });
  t.op(
      "one_hot", [](const Tensor& x) { return one_hot(x, 9); }, "F.one_hot");
  t.op("flip", [](const Tensor& x) { return flip(x, {0}); });
  t.op("rot90", [](const Tensor& x) { return rot90(x); });
  t.op("roll", [](const Tensor& x) { return roll(x, {1}, {0}); });
  t.op(
      "repeat",
      [](const Tensor& x) {
        return repeat(x, {2, 1});
      },
      "Tensor.repeat");
  t.op("tile", [](const Tensor& x) { return tile(x, {2}); });
  t.op("repeat_interleave", [](const Tensor& x) { return repeat_interleave(x, 2); });
  t.op(
      "pad",
      [](const Tensor& x) {
        return pad(x, {1, 1});
      },
      "F.pad");
  t.op("tril", [](const Tensor& x) { return tril(x); });
  t.op("triu", [](const Tensor& x) { return triu(x); });
  t.op("diag_embed", [](const Tensor& x) { return diag_embed(x); });
  t.op("diag", [](const Tensor& x) { return diag(x); });
  const auto on = [](const Tensor& x) { return TensorOptions{x.dtype(), x.device()}; };
  t.op("tril_indices", [=](const Tensor& x) { return tril_indices(2, 2, 0, on(x)); });
  t.op("triu_indices", [=](const Tensor& x) { return triu_indices(2, 2, 0, on(x)); });
  t.op("block_diag", [](const Tensor& x) { return block_diag({x, x}); });
  t.op("trace", [](const Tensor& x) { return trace(x); });
  t.op("meshgrid", [](const Tensor& x) { return meshgrid({x[0], x[1]})[0]; });
  t.op("cartesian_prod", [](const Tensor& x) { return cartesian_prod({x[0], x[1]}); });
  t.op("hstack", [](const Tensor& x) { return hstack({x, x}); });
  t.op("vstack", [](const Tensor& x) { return vstack({x, x}); });
  t.op("dstack", [](const Tensor& x) { return dstack({x, x}); });
  t.op("column_stack", [](const Tensor& x) { return column_stack({x, x}); });
  t.op("broadcast_tensors", [](const Tensor& x) { return broadcast_tensors({x, x[0]})[1]; });
  t.op("combinations", [](const Tensor& x) { return combinations(x[0]); });
  t.op("vander", [](const Tensor& x) { return vander(x[0]); });
  t.op("unravel_index", [](const Tensor& x) { return unravel_index(x, {4, 4})[0]; });
}

inline void product_rows(OpRows& t) {
  t.two("matmul", matmul);
  t.op("bmm", [](const Tensor& x) { return bmm(x.unsqueeze(0), x.unsqueeze(0)); });
  t.op("mv", [](const Tensor& x) { return mv(x, x[0]); });
  t.op("dot", [](const Tensor& x) { return dot(x[0], x[1]); });
  t.op("addmm", [](const Tensor& x) { return addmm(x, x, x); });
  t.op("baddbmm", [](const Tensor& x) { return baddbmm(x, x.unsqueeze(0), x.unsqueeze(0)); });
  t.op("einsum", [](const Tensor& x) { return einsum("ij,jk", {x, x}); });
  t.op("tensordot", [](const Tensor& x) { return tensordot(x, x, 1); });
  t.op("outer", [](const Tensor& x) { return outer(x[0], x[1]); });
  t.two("kron", kron);
  t.op(
      "vecdot", [](const Tensor& x) { return vecdot(x, x); }, "torch.linalg.vecdot");
  t.op(
      "matrix_power", [](const Tensor& x) { return matrix_power(x, 3); }, "torch.linalg.matrix_power");
  t.op("cdist", [](const Tensor& x) { return cdist(x, x.detach()); });
  t.op(
      "pdist", [](const Tensor& x) { return pdist(x); }, "F.pdist");
  t.op(
      "cross", [](const Tensor& x) { return cross(x.slice(1, 1), x.slice(1, 1)); }, "torch.linalg.cross");
  t.op(
      "linear", [](const Tensor& x) { return linear(x, x, {}); }, "F.linear");
  t.op(
      "recurrent",
      [](const Tensor& x) {
        const Tensor weight = cat({x, x, x, x});
        return recurrent(RecurrentKind::kLstm, x, RecurrentLayout::packed({4}, x.device()), {weight, weight}).output;
      },
      "torch.lstm");
  t.op(
      "layer_norm", [](const Tensor& x) { return layer_norm(x, {}, {}); }, "F.layer_norm");
  t.op(
      "rms_norm", [](const Tensor& x) { return rms_norm(x); }, "F.rms_norm");
  t.op(
      "dropout_residual_layer_norm", [](const Tensor& x) { return dropout_residual_layer_norm(x, x, {}, {}, 1e-5); },
      "none");
  t.op(
      "dropout_residual_sum_layer_norm",
      [](const Tensor& x) { return dropout_residual_sum_layer_norm(x, x, {}, {}, 1e-5).norm; }, "none");
  t.op(
      "rotary",
      [](const Tensor& x) {
        return rotary(x.unsqueeze(1), places(x, {0, 1, 2, 3}));
      },
      "none");
  const auto heads = [](const Tensor& x) { return x.reshape({4, 1, 4}); };
  const std::string attended = "F.scaled_dot_product_attention";
  t.op(
      "attention",
      [=](const Tensor& x) { return attention(heads(x), heads(x), heads(x), one_sequence(x), one_sequence(x)); },
      attended);
  t.op(
      "cross_attention",
      [=](const Tensor& x) {
        return cross_attention(heads(x), stack({heads(x), heads(x)}, 1), one_sequence(x), one_sequence(x));
      },
      attended);
  t.op(
      "self_attention",
      [=](const Tensor& x) {
        return self_attention(stack({heads(x), heads(x), heads(x)}, 1), one_sequence(x));
      },
      attended);
  const auto draws = [] { return Generator(1); };
  t.op(
      "dropout",
      [=](const Tensor& x) {
        Generator generator = draws();
        return dropout(x, {.p = 0.5, .generator = &generator});
      },
      "F.dropout");
  const auto drawn = [=](const std::function<Tensor(const Tensor& x, Generator& generator)>& call) {
    return [=](const Tensor& x) {
      Generator generator = draws();
      return call(x, generator);
    };
  };
  t.op("feature_dropout", drawn([](auto& x, auto& g) { return feature_dropout(x, {.p = 0.5, .generator = &g}); }),
       "F.dropout1d, F.dropout2d, F.dropout3d");
  t.op("alpha_dropout", drawn([](auto& x, auto& g) { return alpha_dropout(x, {.p = 0.5, .generator = &g}); }),
       "F.alpha_dropout");
  t.op("exponential", drawn([](auto& x, auto& g) {
         return exponential({3}, g, 2, {x.dtype(), x.device()});
       }),
       "Tensor.exponential_");
  t.op("gumbel_softmax", drawn([](auto& x, auto& g) { return gumbel_softmax(x, g); }), "F.gumbel_softmax");
  t.op("randint", [=](const Tensor& x) {
    Generator generator = draws();
    return randint(0, 2, {3}, generator, {x.dtype(), x.device()});
  });
  t.op("randperm", [=](const Tensor& x) {
    Generator generator = draws();
    return randperm(4, generator, {x.dtype(), x.device()});
  });
  t.op("bernoulli", [=](const Tensor& x) {
    Generator generator = draws();
    return bernoulli(x, generator);
  });
  t.op("poisson", [=](const Tensor& x) {
    Generator generator = draws();
    return poisson(x, generator);
  });
  t.op("binomial", [=](const Tensor& x) {
    Generator generator = draws();
    return binomial(ones_like(x), zeros_like(x), generator);
  });
  t.op("multinomial", [=](const Tensor& x) {
    Generator generator = draws();
    return multinomial(x + ones_like(x), 2, generator);
  });
  t.op("normal", [=](const Tensor& x) {
    Generator generator = draws();
    return normal(x, x, generator);
  });
  t.op(
      "truncated_normal",
      [=](const Tensor& x) {
        Generator generator = draws();
        return truncated_normal({3}, generator, 0, 1, -2, 2, {x.dtype(), x.device()});
      },
      "nn.init.trunc_normal_");
}

inline void loss_rows(OpRows& t) {
  t.prefix("F.");
  const auto classes = [](const Tensor& x) { return places(x, {0, 1, 2, 1}); };
  const auto signs = [](const Tensor& x) { return ones_like(x).detach(); };
  t.op("cross_entropy", [=](const Tensor& x) { return cross_entropy(x, classes(x)); });
  t.op("nll_loss", [=](const Tensor& x) { return nll_loss(x, classes(x)); });
  t.op("multi_margin_loss", [=](const Tensor& x) { return multi_margin_loss(x, classes(x)); });
  t.op("multilabel_margin_loss", [=](const Tensor& x) { return multilabel_margin_loss(x, classes(x).expand({4, 4})); });
  t.op("ctc_loss", [=](const Tensor& x) {
    return ctc_loss(x, places(x, {1, 2}), full({}, 4, {.dtype = int64}), full({}, 2, {.dtype = int64}));
  });
  t.op("binary_cross_entropy", [=](const Tensor& x) { return binary_cross_entropy(x, signs(x)); });
  t.op("binary_cross_entropy_with_logits",
       [=](const Tensor& x) { return binary_cross_entropy_with_logits(x, signs(x)); });
  t.op(
      "sigmoid_focal_loss", [=](const Tensor& x) { return sigmoid_focal_loss(x, signs(x)); },
      "torchvision.ops.sigmoid_focal_loss");
  t.op("multilabel_soft_margin_loss", [=](const Tensor& x) { return multilabel_soft_margin_loss(x, signs(x)); });
  t.op("mse_loss", [=](const Tensor& x) { return mse_loss(x, signs(x)); });
  t.op("l1_loss", [=](const Tensor& x) { return l1_loss(x, signs(x)); });
  t.op("smooth_l1_loss", [=](const Tensor& x) { return smooth_l1_loss(x, signs(x)); });
  t.op("huber_loss", [=](const Tensor& x) { return huber_loss(x, signs(x)); });
  t.op("poisson_nll_loss", [=](const Tensor& x) { return poisson_nll_loss(x, signs(x)); });
  t.op("gaussian_nll_loss", [=](const Tensor& x) { return gaussian_nll_loss(x, signs(x), signs(x)); });
  t.op("kl_div", [=](const Tensor& x) { return kl_div(x, signs(x)); });
  t.op("cosine_embedding_loss", [=](const Tensor& x) { return cosine_embedding_loss(x, x, signs(x)[0]); });
  t.op("margin_ranking_loss", [=](const Tensor& x) { return margin_ranking_loss(x, signs(x), signs(x)); });
  t.op("hinge_embedding_loss", [=](const Tensor& x) { return hinge_embedding_loss(x, signs(x)); });
  t.op("soft_margin_loss", [=](const Tensor& x) { return soft_margin_loss(x, signs(x)); });
  t.op("triplet_margin_loss", [=](const Tensor& x) { return triplet_margin_loss(x, signs(x), signs(x)); });
  t.op("triplet_margin_with_distance_loss",
       [=](const Tensor& x) { return triplet_margin_with_distance_loss(x, signs(x), signs(x)); });
}

inline void view_rows(OpRows& t) {
  t.prefix("Tensor.");
  t.op("to", [](const Tensor& x) { return x.to(float32); });
  t.op("contiguous", [](const Tensor& x) { return x.t().contiguous(); });
  t.op("clone", [](const Tensor& x) { return x.clone(); });
  t.op(
      "reshape",
      [](const Tensor& x) {
        return x.reshape({2, 8});
      },
      "Tensor.reshape, Tensor.view");
  t.op("flatten", [](const Tensor& x) { return x.flatten(); });
  t.op(
      "view",
      [](const Tensor& x) {
        const int64_t size = size_of(x.dtype());
        return x.view(size == 8 ? int64 : size == 4 ? int32 : size == 2 ? float16 : uint8);
      },
      "Tensor.view(dtype)");
  t.op(
      "transpose", [](const Tensor& x) { return x.transpose(0, 1); }, "Tensor.transpose, Tensor.swapaxes");
  t.op(
      "t", [](const Tensor& x) { return x.t(); }, "Tensor.mT");
  t.op("permute", [](const Tensor& x) { return x.permute({1, 0}); });
  t.op("movedim", [](const Tensor& x) { return x.movedim(0, 1); });
  t.op("unflatten", [](const Tensor& x) { return x.unflatten(0, {2, 2}); });
  t.op("squeeze", [](const Tensor& x) { return x.squeeze(); });
  t.op("unsqueeze", [](const Tensor& x) { return x.unsqueeze(0); });
  t.op("expand", [](const Tensor& x) { return x.expand({2, 4, 4}); });
  t.op(
      "slice", [](const Tensor& x) { return x.slice(0, 1, 3); }, "x[1:3]");
  t.op("narrow", [](const Tensor& x) { return x.narrow(0, 1, 2); });
  t.op("diagonal", [](const Tensor& x) { return x.diagonal(); });
  t.op("select", [](const Tensor& x) { return x.select(0, 1); });
  t.op("split", [](const Tensor& x) { return x.split(2)[0]; });
  t.op("chunk", [](const Tensor& x) { return x.chunk(2)[0]; });
  t.op(
      "tensor_split", [](const Tensor& x) { return x.tensor_split(2)[0]; },
      "Tensor.tensor_split, Tensor.hsplit, Tensor.vsplit");
  t.op("unbind", [](const Tensor& x) { return x.unbind()[0]; });
  t.op(
      "index",
      [](const Tensor& x) {
        return x.index({places(x, {1, 0})});
      },
      "x[...]");
}

}  // namespace tern::test
