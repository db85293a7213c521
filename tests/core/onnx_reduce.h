#pragma once
// ONNX's reductions, norms, losses, products and sorting by Tern's ops.

#include "tern/tests/core/onnx.h"

namespace tern::test::onnx {

inline void add_reductions(Table& table) {
  using Op = std::function<Tensor(const Tensor&, const std::vector<int>&, bool)>;
  const auto reduce = [&table](const char* name, const Op& op) {
    table[name] = [op](const Case& c) {
      const std::vector<int> axes = c.has(1) ? c.list<int>(1) : std::vector<int>();
      if (axes.empty() && c.integer("noop_with_empty_axes", 0)) return Tensors{c.in(0)};
      return Tensors{op(c.in(0), axes, c.integer("keepdims", 1) != 0)};
    };
  };
  reduce("ReduceSum", sum);
  reduce("ReduceMean", mean);
  reduce("ReduceProd", prod);
  reduce("ReduceMax", max);
  reduce("ReduceMin", min);
  reduce("ReduceLogSumExp", logsumexp);
  reduce("ReduceL1", [](const Tensor& x, const auto& dims, bool keep) { return vector_norm(x, 1, dims, keep); });
  reduce("ReduceL2", [](const Tensor& x, const auto& dims, bool keep) { return vector_norm(x, 2, dims, keep); });
  reduce("ReduceLogSum", [](const Tensor& x, const auto& dims, bool keep) { return log(sum(x, dims, keep)); });
  reduce("ReduceSumSquare", [](const Tensor& x, const auto& dims, bool keep) { return sum(square(x), dims, keep); });
  for (const bool largest : {true, false})
    table[largest ? "ArgMax" : "ArgMin"] = [largest](const Case& c) {
      const bool last = c.integer("select_last_index", 0) != 0, keep = c.integer("keepdims", 1) != 0;
      const Tensor x = last ? flip(c.in(0), {c.axis(0)}) : c.in(0);
      const Tensor first = largest ? argmax(x, c.axis(0), keep) : argmin(x, c.axis(0), keep);
      return Tensors{last ? static_cast<double>(x.size(c.axis(0)) - 1) - first : first};
    };
}

inline void add_scans(Table& table) {
  for (const bool sums : {true, false})
    table[sums ? "CumSum" : "CumProd"] = [sums](const Case& c) {
      const int dim = c.list<int>(1).at(0);
      const auto reversed = [&](const Tensor& x) { return c.integer("reverse", 0) ? flip(x, {dim}) : x; };
      Tensor x = reversed(c.in(0));
      if (c.integer("exclusive", 0)) x = cat({full_like(x.narrow(dim, 0, 1), sums ? 0 : 1), x.slice(dim, 0, -1)}, dim);
      return Tensors{reversed(sums ? cumsum(x, dim) : cumprod(x, dim)).to(x.dtype())};  // integers give int64
    };
  table["TopK"] = [](const Case& c) {
    const SortResult top =
        topk(c.in(0), c.list(1).at(0), c.axis(-1), c.integer("largest", 1) != 0, c.integer("sorted", 1) != 0);
    return Tensors{top.values, top.indices};
  };
  table["Unique"] = [](const Case& c) {
    const bool whole = !c.attributes.contains("axis");
    UniqueResult found = whole ? unique(c.in(0)) : unique(c.in(0), c.axis(0));
    const Tensor inverse = found.inverse.flatten(), places = arange(0, inverse.numel(), 1, inverse.options());
    Tensor first = scatter_reduce(zeros_like(found.counts), 0, inverse, places, ScatterReduction::kMin, false);
    if (c.integer("sorted", 1)) return Tensors{found.values, first, inverse, found.counts};
    const Tensor order = argsort(first);
    const auto ordered = [&](const Tensor& x) { return index_select(x, 0, order); };
    return Tensors{ordered(found.values), ordered(first), index_select(argsort(order), 0, inverse),
                   ordered(found.counts)};
  };
  table["NonZero"] = [](const Case& c) { return Tensors{nonzero(c.in(0)).t()}; };
}

/// x as rows of the elements from the axis on, which a norm takes.
inline Tensor rows_of(const Case& c) {
  const int axis = wrapped(c.axis(-1), c.in(0).dim());
  return axis == 0 ? c.in(0).reshape({1, -1}) : c.in(0).flatten(axis).flatten(0, axis - 1);
}

inline void add_norms(Table& table) {
  table["Softmax"] = [](const Case& c) { return Tensors{softmax(c.in(0), c.axis(-1))}; };
  table["LogSoftmax"] = [](const Case& c) { return Tensors{log_softmax(c.in(0), c.axis(-1))}; };
  table["Hardmax"] = [](const Case& c) {
    const Tensor ones = one_hot(argmax(c.in(0), c.axis(-1)), c.in(0).size(c.axis(-1)));
    return Tensors{ones.movedim(-1, c.axis(-1)).to(c.in(0).dtype())};
  };
  table["LpNormalization"] = [](const Case& c) {
    return Tensors{normalize(c.in(0), static_cast<double>(c.integer("p", 2)), c.axis(-1))};
  };
  table["MeanVarianceNormalization"] = [](const Case& c) {
    const std::vector<int> axes = c.get<std::vector<int>>("axes", {0, 2, 3});
    return Tensors{(c.in(0) - mean(c.in(0), axes, true)) / (std(c.in(0), axes, 0, true) + 1e-9)};
  };
  table["LayerNormalization"] = [](const Case& c) {
    const double eps = c.get("epsilon", 1e-5);
    const Tensor& x = c.in(0);
    std::vector<int> dims;
    for (int dim = wrapped(c.axis(-1), x.dim()); dim < x.dim(); ++dim) dims.push_back(dim);
    return Tensors{layer_norm(rows_of(c), c.in(1).flatten(), c.in(2).flatten(), eps).reshape(x.shape()),
                   mean(x, dims, true), rsqrt(var(x, dims, 0, true) + eps)};
  };
  table["RMSNormalization"] = [](const Case& c) {
    return Tensors{rms_norm(rows_of(c), c.in(1).flatten(), c.get("epsilon", 1e-5)).reshape(c.in(0).shape())};
  };
}

inline LossReduction reduction_of(const Case& c) {
  const std::string name = c.get<std::string>("reduction", "mean");
  return name == "mean" ? LossReduction::kMean : name == "sum" ? LossReduction::kSum : LossReduction::kNone;
}

inline void add_losses(Table& table) {
  table["NegativeLogLikelihoodLoss"] = [](const Case& c) {
    return Tensors{
        nll_loss(c.in(0), c.in(1),
                 {.weight = c.in(2), .ignore_index = c.integer("ignore_index", -100), .reduction = reduction_of(c)})};
  };
  table["SoftmaxCrossEntropyLoss"] = [](const Case& c) {
    Tensors results = {cross_entropy(
        c.in(0), c.in(1),
        {.weight = c.in(2), .ignore_index = c.integer("ignore_index", -100), .reduction = reduction_of(c)})};
    if (c.outputs.size() == 2) results.push_back(log_softmax(c.in(0), 1));
    return results;
  };
}

inline void add_products(Table& table) {
  table["MatMul"] = [](const Case& c) { return Tensors{matmul(c.in(0), c.in(1))}; };
  table["MatMulInteger"] = [](const Case& c) {
    return Tensors{matmul(c.in(0).to(int32) - c.in(2).to(int32), c.in(1).to(int32) - c.in(3).to(int32))};
  };
  table["Einsum"] = [](const Case& c) { return Tensors{einsum(c.attributes["equation"], c.inputs)}; };
  table["Gemm"] = [](const Case& c) {
    const Tensor a = c.integer("transA", 0) ? c.in(0).t() : c.in(0), b = c.integer("transB", 0) ? c.in(1).t() : c.in(1);
    const double alpha = c.get("alpha", 1.0);
    return Tensors{c.has(2) ? addmm(c.in(2), a, b, c.get("beta", 1.0), alpha) : matmul(a, b) * alpha};
  };
}

inline void add_reducing(Table& table) {
  add_reductions(table);
  add_scans(table);
  add_norms(table);
  add_losses(table);
  add_products(table);
}

}  // namespace tern::test::onnx
