#pragma once
// Calls of the ops that rearrange, index and order elements, for op_inputs.h.

#include "tern/tests/core/inputs.h"

namespace tern::test {

inline void rearranging_calls(const AddCall& op) {
  op("flip", [](Inputs& in) { return flip(in.any(), dims(in)); });
  op("roll", [](Inputs& in) { return roll(in.any(), {in.below(9) - 4}, {in.dim()}); });
  op("pad", [](Inputs& in) {
    return pad(in.any(), {in.below(4) - 1, in.below(4) - 1}, static_cast<PadMode>(in.below(4)), 1.5);
  });
  op("repeat", [](Inputs& in) { return repeat(in.any(), {in.below(3), in.below(4), in.below(3)}); });
  op("repeat_interleave", [](Inputs& in) { return repeat_interleave(in.any(), in.like({4}, int64), in.dim()); });
  op("tril", [](Inputs& in) { return tril(in.any(), in.below(7) - 3); });
  op("diagonal", [](Inputs& in) { return in.any().diagonal(in.below(5) - 2, in.dim(), in.dim()); });
  op("diag_embed", [](Inputs& in) { return diag_embed(in.any(), in.below(5) - 2, in.dim(), in.dim()); });
  op("tensor_split", [](Inputs& in) { return in.any().tensor_split({in.below(9) - 4}, in.dim())[1]; });
  op("rot90", [](Inputs& in) { return rot90(in.any(), in.below(9) - 4, in.dim(), in.dim()); });
  op("block_diag", [](Inputs& in) { return block_diag({in.like({4, 6}), in.like({3})}); });
  op("cartesian_prod", [](Inputs& in) { return cartesian_prod({in.like({4}), in.like({3})}); });
  op("dstack", [](Inputs& in) { return dstack({in.like({4, 6}), in.like({4, 6, 1})}); });
  op("column_stack", [](Inputs& in) { return column_stack({in.like({4}), in.like({4, 2})}); });
  op("broadcast_tensors", [](Inputs& in) { return broadcast_tensors({in.any(), in.any()})[0]; });
  op("combinations", [](Inputs& in) { return combinations(in.like({4}), in.below(5) - 1, in.one_in(2)); });
  op("vander", [](Inputs& in) { return vander(in.like({4}), in.below(5) - 1, in.one_in(2)); });
  op("unravel_index", [](Inputs& in) { return unravel_index(in.like({4, 2}, int64), {2, 3})[in.below(2)]; });
  op("movedim", [](Inputs& in) { return in.any().movedim(in.dim(), in.dim()); });
}
inline std::vector<TensorIndex> entries(Inputs& in) {
  std::vector<TensorIndex> result;
  for (int64_t n = in.below(4); n > 0; --n) {
    const int64_t kind = in.below(8);
    if (kind == 0) result.emplace_back(in.below(5) - 2);
    if (kind == 1) result.emplace_back(Slice{in.below(4) - 2, in.one_in(2) ? INT64_MAX : in.below(4), 1 + in.below(2)});
    if (kind == 2) result.emplace_back(NewAxis{});
    if (kind == 3) result.emplace_back(Ellipsis{});
    if (kind == 4) result.emplace_back(in.like(in.one_in(2) ? Shape{4} : Shape{4, 6}, boolean));
    if (kind >= 5) result.emplace_back(in.like(in.one_in(2) ? Shape{3} : Shape{2, 1}, in.one_in(3) ? int32 : int64));
  }
  return result;
}
inline void scatter_calls(const AddCall& op) {
  op("scatter", [](Inputs& in) { return scatter(in.like({4, 6}), in.dim(), in.like({3, 5}, int64), in.like({3, 6})); });
  op("scatter_reduce", [](Inputs& in) {
    return scatter_reduce(in.like({4, 6}), in.dim(), in.like({3, 5}, int64), in.like({3, 5}),
                          static_cast<ScatterReduction>(in.below(5)), in.one_in(2));
  });
  op("index_reduce", [](Inputs& in) {
    return index_reduce(in.like({4, 6}), 0, in.like({3}, in.one_in(2) ? int32 : int64), in.like({3, 6}),
                        ScatterReduction::kMean, in.one_in(2));
  });
  op("index_add", [](Inputs& in) {
    return index_add(in.like({4, 6}), 0, in.like({3}, in.one_in(2) ? int32 : int64), in.like({3, 6}), 0.5);
  });
  op("index_copy", [](Inputs& in) { return index_copy(in.like({6, 4}), 1, in.like({3}, int64), in.like({6, 3})); });
  op("index", [](Inputs& in) { return in.like({4, 6}).index(entries(in)); });
  op("index_put", [](Inputs& in) {
    return index_put(in.like({4, 6}), entries(in), in.one_in(2) ? in.like({1}) : in.any(), in.one_in(2));
  });
  op("index_put_", [](Inputs& in) { return in.like({4, 6}).detach().clone().index_put_(entries(in), in.like({1})); });
  op("scatter_add_", [](Inputs& in) {
    return in.like({4, 6}).detach().clone().scatter_add_(1, in.like({3, 5}, int64), in.like({3, 5}));
  });
  op("masked_fill_", [](Inputs& in) { return in.any().detach().clone().masked_fill_(in.like({4, 6}, boolean), 2); });
  op("take", [](Inputs& in) { return take(in.any(), in.like({3, 2}, int64)); });
  op("put", [](Inputs& in) { return put(in.any(), in.like({3, 2}, int64), in.like({3, 2}), in.one_in(2)); });
  op("take_along_dim", [](Inputs& in) { return take_along_dim(in.like({4, 6}), in.like({1, 5}, int64), in.dim()); });
  op("masked_scatter", [](Inputs& in) {
    return masked_scatter(in.like({4, 6}), in.like({6}, boolean), in.like({4, 6}));
  });
  op("one_hot", [](Inputs& in) { return one_hot(in.like({3, 2}, int64), in.below(5) - 1); });
}
inline void order_calls(const AddCall& op) {
  op("kthvalue", [](Inputs& in) { return kthvalue(in.any(), in.below(5), in.dim(), in.one_in(2)).values; });
  op("median", [](Inputs& in) { return median(in.any(), in.dim(), in.one_in(2)).values; });
  op("nanmedian of all", [](Inputs& in) { return nanmedian(in.any()); });
  op("quantile", [](Inputs& in) {
    return quantile(in.any(), in.like({2}, float64).detach(), in.dim(), in.one_in(2),
                    static_cast<Interpolation>(in.below(5)));
  });
  op("unique",
     [](Inputs& in) { return in.one_in(2) ? unique(in.any()).counts : unique_consecutive(in.any()).inverse; });
  op("bincount", [](Inputs& in) {
    const Tensor x = in.any();  // its largest element decides the result's size
    const bool counts = !is_floating(x.dtype()) && x.dtype() != boolean;
    return bincount(counts ? clamp(x, -3, 5000) : x, in.one_in(2) ? in.any() : Tensor(), in.below(4));
  });
  op("nanquantile", [](Inputs& in) {
    return nanquantile(in.any(), in.like({2}, float64).detach(), in.dim(), in.one_in(2),
                       static_cast<Interpolation>(in.below(5)));
  });
  op("mode", [](Inputs& in) { return mode(in.any(), in.dim(), in.one_in(2)).values; });
  op("cummax", [](Inputs& in) { return cummax(in.any(), in.dim()).values; });
  op("cummin", [](Inputs& in) { return cummin(in.any(), in.dim()).indices; });
  op("cumprod", [](Inputs& in) { return cumprod(in.any(), in.dim()); });
  op("logcumsumexp", [](Inputs& in) { return logcumsumexp(in.any(), in.dim()); });
  op("diff with ends", [](Inputs& in) { return diff(in.like({4, 6}), 2, 1, in.like({4, 1}), in.like({4, 2})); });
  op("histogram", [](Inputs& in) {
    return histogram(in.like({4, 6}), sort(in.like({4})).values.detach(), {.weights = in.like_or_none({4, 6})}).counts;
  });
  op("diff", [](Inputs& in) { return diff(in.any(), in.below(4) - 1, in.dim()); });
  op("unique of slices", [](Inputs& in) {
    return in.one_in(2) ? unique(in.any(), in.dim()).values : unique_consecutive(in.any(), in.dim()).inverse;
  });
  op("searchsorted", [](Inputs& in) {
    return searchsorted(sort(in.like({4, 6})).values, in.like({4, 3}), in.one_in(2));
  });
  op("isin", [](Inputs& in) { return isin(in.any(), in.any(), in.one_in(2)); });
}
inline void product_calls(const AddCall& op) {
  op("einsum", [](Inputs& in) {
    constexpr const char* kEquations[] = {"ij,jk->ik", "...j,jk", "ij,jk->", "ij,jk->jki", "jj,jk->k"};
    return einsum(kEquations[in.below(5)], {in.like({3, 3}), in.like({3, 3})});
  });
  op("tensordot", [](Inputs& in) { return tensordot(in.like({2, 3, 4}), in.like({4, 5, 2}), {0, in.dim()}, {2, 0}); });
  op("addmm", [](Inputs& in) { return addmm(in.like({3}), in.like({4, 6}), in.like({6, 3}), 0.5, 2); });
  op("matmul of integers", [](Inputs& in) { return matmul(in.like({2, 4, 6}, int32), in.like({6, 3}, int32)); });
  op("cdist", [](Inputs& in) { return cdist(in.like({2, 4, 6}), in.like({3, 6}), in.below(4) - 1); });
  op("pdist", [](Inputs& in) { return pdist(in.like({4, 6}), in.below(3)); });
  op("renorm", [](Inputs& in) { return renorm(in.any(), in.below(3), in.dim(), 0.7); });
  op("trapezoid", [](Inputs& in) { return trapezoid(in.any(), in.like({6}), in.dim()); });
  op("cov", [](Inputs& in) { return cov(in.any()); });
  op("cov with weights", [](Inputs& in) { return cov(in.like({4, 6}), 0.5, in.like({6}, int32), in.like({6})); });
  op("cumulative_trapezoid", [](Inputs& in) { return cumulative_trapezoid(in.any(), in.like({6}), in.dim()); });
  op("vecdot", [](Inputs& in) { return vecdot(in.like({4, 6}), in.like({6}), in.dim()); });
  op("matrix_power", [](Inputs& in) { return matrix_power(in.like({2, 4, 4}), in.below(4)); });
  op("cross", [](Inputs& in) { return cross(in.like({3, 4}), in.like({3, 1}), in.dim()); });
  op("kron", [](Inputs& in) { return kron(in.any(), in.like({2, 3})); });
}

}  // namespace tern::test
