// Views, paddings, indices, orders and products against what PyTorch made of the same tensors
// (tests/golden/golden_indexing.py): results and gradients, on float64.

#include <map>

#include "tern/core/io/safetensors.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using Given = std::map<std::string, Tensor>;
using Case = std::function<Tensors(const Given&)>;
using Table = std::map<std::string, Case>;

/// A case with one result of the inputs of these names.
template <class Fn, class... Names>
Case with(const Fn& fn, const Names&... names) {
  return [=](const Given& in) { return Tensors{fn(in.at(names)...)}; };
}
template <class Fn>
Case of_x(const Fn& fn) {
  return with(fn, "x");
}
Tensors parts(const UniqueResult& r) { return {r.values, r.inverse, r.counts}; }
Tensors parts(const SortResult& r) { return {r.values, r.indices}; }

void add_rearrangements(Table& table) {
  table["pad_constant"] = of_x([](const Tensor& x) { return pad(x, {1, -2, 0, 2, -1, 1}, PadMode::kConstant, 1.5); });
  for (const auto& [name, mode] : std::map<std::string, PadMode>{
           {"reflect", PadMode::kReflect}, {"replicate", PadMode::kReplicate}, {"circular", PadMode::kCircular}})
    table["pad_" + name] = of_x([mode = mode](const Tensor& x) { return pad(x, {2, 4, 3, 0}, mode); });
  table["roll"] = of_x([](const Tensor& x) { return roll(x, {2, -6}, {0, 1}); });
  table["roll_flat"] = of_x([](const Tensor& x) { return roll(x, {7}); });
  table["flip"] = of_x([](const Tensor& x) { return flip(x, {0, -1}); });
  table["repeat"] = of_x([](const Tensor& x) { return repeat(x, {2, 1, 3}); });
  table["tile"] = of_x([](const Tensor& x) { return tile(x, {2}); });
  table["repeat_interleave"] =
      with([](const Tensor& x, const Tensor& repeats) { return repeat_interleave(x, repeats, 0); }, "x", "repeats");
  table["diagonal"] = of_x([](const Tensor& x) { return x.diagonal(1, 2, 0); });
  table["diag_embed"] = of_x([](const Tensor& x) { return diag_embed(x, -2, 1, -1); });
  table["tril"] = of_x([](const Tensor& x) { return tril(x, 1); });
  table["triu"] = of_x([](const Tensor& x) { return triu(x, -1); });
  table["movedim"] = of_x([](const Tensor& x) { return x.movedim({0, -1}, {2, 0}); });
  table["meshgrid"] = [](const Given& in) {
    return Tensors{stack(meshgrid({in.at("x"), in.at("y"), in.at("z")}, Indexing::kXY))};
  };
  table["linspace"] = [](const Given&) { return Tensors{linspace(-1.3, 2.9, 8, {.dtype = float64})}; };
}

void add_scatters(Table& table) {
  for (const auto& [name, reduction] : std::map<std::string, ScatterReduction>{{"sum", ScatterReduction::kSum},
                                                                               {"prod", ScatterReduction::kProd},
                                                                               {"mean", ScatterReduction::kMean},
                                                                               {"amax", ScatterReduction::kMax},
                                                                               {"amin", ScatterReduction::kMin}})
    for (const bool self : {false, true})
      table["scatter_" + name + (self ? "_1" : "_0")] =
          with([self, how = reduction](const Tensor& x, const Tensor& index,
                                       const Tensor& source) { return scatter_reduce(x, 0, index, source, how, self); },
               "x", "index", "source");
  table["scatter_prod_of_0"] = table["scatter_prod_1"];
  table["scatter_mean_of_ints"] = table["scatter_mean_1"];
  const auto with_source = [](const auto& fn) { return with(fn, "x", "index", "source"); };
  const auto with_index = [](const auto& fn) { return with(fn, "x", "index"); };
  table["scatter"] = with_source([](auto& x, auto& index, auto& source) { return scatter(x, 0, index, source); });
  table["index_add"] = with_source([](auto& x, auto& i, auto& source) { return index_add(x, 1, i, source, -2); });
  table["index_copy"] = with_source([](auto& x, auto& i, auto& source) { return index_copy(x, 0, i, source); });
  table["masked_scatter"] = with(masked_scatter, "x", "mask", "source");
  table["gather"] = with_index([](auto& x, auto& index) { return gather(x, 1, index); });
  table["index_fill"] = with_index([](auto& x, auto& index) { return index_fill(x, 1, index, 2.5); });
  table["take"] = with_index(take);
  table["take_along_dim"] = with_index([](auto& x, auto& index) { return take_along_dim(x, index, 1); });
  table["one_hot"] = of_x([](const Tensor& x) { return one_hot(x, 4); });
}

void add_indices(Table& table) {
  const Slice all;
  const auto with_a = [](const auto& fn) { return with(fn, "x", "a"); };
  const auto with_both = [](const auto& fn) { return with(fn, "x", "a", "b"); };
  table["index_adjacent"] = with_both([](auto& x, auto& a, auto& b) { return x.index({a, b}); });
  table["index_second"] = with_both([=](auto& x, auto& a, auto& b) { return x.index({all, a, b}); });
  table["index_apart"] = with_both([=](auto& x, auto& a, auto& b) { return x.index({a, all, b}); });
  table["index_mask_and_ids"] = table["index_apart"];
  table["index_number_between"] = with_both([](auto& x, auto& a, auto& b) { return x.index({remainder(b, 3), 1, a}); });
  table["index_sliced"] = with_a([](auto& x, auto& a) {
    return x.index({Slice{1}, Slice{0, INT64_MAX, 2}, NewAxis{}, a, -1});
  });
  table["index_last"] = with_a([](auto& x, auto& a) { return x.index({Ellipsis{}, a}); });
  table["index_mask"] = with_a([=](auto& x, auto& a) { return x.index({all, a}); });
  const auto with_values = [](const auto& fn) { return with(fn, "x", "a", "values"); };
  table["index_put"] = with_values([](auto& x, auto& a, auto& values) {
    return index_put(x, {arange(0, 3), a}, values);
  });
  table["index_put_sliced"] = with_values([](auto& x, auto& a, auto& values) {
    return index_put(x, {1, a, Slice{1, INT64_MAX, 2}}, values);
  });
  table["index_put_mask"] = with_values([](auto& x, auto& a, auto& values) { return index_put(x, {a}, values); });
  table["index_put_view"] = with(
      [=](const Tensor& x, const Tensor& values) {
        return index_put(x, {Slice{0, 2}, Ellipsis{}, Slice{0, 3}, all}, values);
      },
      "x", "values");
  table["index_put_added"] = with(
      [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& values) {
        return index_put(x, {a, b}, values, true);
      },
      "x", "a", "b", "values");
}

void add_orders(Table& table) {
  const Tensor q = tensor({0, 0.3, 0.5, 0.77, 1}, {.dtype = float64});
  for (const auto& [name, mode] : std::map<std::string, Interpolation>{{"linear", Interpolation::kLinear},
                                                                       {"lower", Interpolation::kLower},
                                                                       {"higher", Interpolation::kHigher},
                                                                       {"midpoint", Interpolation::kMidpoint},
                                                                       {"nearest", Interpolation::kNearest}})
    table["quantile_" + name] = of_x([q, mode = mode](const Tensor& x) { return quantile(x, q, 2, false, mode); });
  table["quantile_all"] = of_x([](const Tensor& x) { return quantile(x, 0.4, {}, true); });
  table["quantile_nan"] = of_x([q](const Tensor& x) { return quantile(x, q, 1, true); });
  table["median"] = [](const Given& in) { return parts(median(in.at("x"), 0)); };
  table["median_nan"] = of_x([](const Tensor& x) { return median(x, 1).values; });
  table["nanmedian"] = of_x([](const Tensor& x) { return nanmedian(x, 1).values; });
  table["median_all"] = of_x([](const Tensor& x) { return median(x); });
  table["nanmedian_all"] = of_x([](const Tensor& x) { return nanmedian(x); });
  table["kthvalue"] = [](const Given& in) { return parts(kthvalue(in.at("x"), 3, 0, true)); };
  table["unique"] = [](const Given& in) { return parts(unique(in.at("x"))); };
  table["unique_nan"] = of_x([](const Tensor& x) { return unique(x).values; });
  table["unique_consecutive"] = [](const Given& in) { return parts(unique_consecutive(in.at("x"))); };
  table["bincount"] = of_x([](const Tensor& x) { return bincount(x, {}, 8); });
  table["bincount_weights"] = with([](auto& x, auto& weights) { return bincount(x, weights); }, "x", "weights");
  for (const bool right : {false, true})
    table[right ? "searchsorted_1" : "searchsorted_0"] =
        with([=](auto& x, auto& values) { return searchsorted(x, values, right); }, "x", "values");
  table["histc"] = of_x([](const Tensor& x) { return histc(x, 7, -1, 0.5); });
  table["histc_all"] = of_x([](const Tensor& x) { return histc(x, 4); });
  table["bucketize"] = with([](auto& x, auto& edges) { return bucketize(x, edges); }, "x", "edges");
  table["isin"] = with([](auto& x, auto& candidates) { return isin(x, candidates); }, "x", "candidates");
}

void add_products(Table& table) {
  const char* equations[] = {"bij,jk->bik",
                             "bij,jk",
                             "ii->i",
                             "iji->j",
                             "ij->ji",
                             "ij",
                             "ba",
                             "...ij,...jk->...ik",
                             "i,j->ij",
                             "i,i->",
                             "ij,jk,kl->il",
                             "a...,...a->...",
                             "ij,ij->i",
                             "i...->...",
                             "bhqd,bhkd->bhqk",
                             "abc,cd,bd->ad",
                             " i j , j -> i ",
                             "iij,jB->iB"};
  for (size_t i = 0; i < std::size(equations); ++i)
    table["einsum_" + std::to_string(i)] = [equation = equations[i]](const Given& in) {
      Tensors operands;
      for (const char* name : {"x", "y", "z"})
        if (in.count(name)) operands.push_back(in.at(name));
      return Tensors{einsum(equation, operands)};
    };
  const auto of_two = [](const auto& fn) { return with(fn, "x", "y"); };
  table["tensordot"] = of_two([](auto& x, auto& y) { return tensordot(x, y, {0, 2}, {2, 0}); });
  table["tensordot_last"] = of_two([](auto& x, auto& y) { return tensordot(x, y); });
  table["kron"] = of_two(kron);
  table["cdist"] = of_two([](auto& x, auto& y) { return cdist(x, y); });
  table["cross"] = of_two([](auto& x, auto& y) { return cross(x, y, 1); });
  table["matmul_of_ints"] = of_two(matmul);
  table["addmm"] = with([](auto& x, auto& y, auto& z) { return addmm(x, y, z, 0.5, -2); }, "x", "y", "z");
  table["baddbmm"] = with([](auto& x, auto& y, auto& z) { return baddbmm(x, y, z); }, "x", "y", "z");
}

/// Equal dtypes, shapes and, up to the rounding of a few sums, values; NaN equals NaN.
void expect_alike(const Tensor& got, const Tensor& want) {
  ASSERT_TRUE(got.defined());
  EXPECT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(std::abs(a[i] - b[i]) <= 1e-12 * (1 + std::abs(b[i])) || (std::isnan(a[i]) && std::isnan(b[i])))
        << "element " << i << ": " << a[i] << " and " << b[i];
}

TEST(IndexingGolden, ResultsAndGradientsArePyTorchs) {
  Table table;
  for (const auto add : {add_rearrangements, add_scatters, add_indices, add_orders, add_products}) add(table);
  std::map<std::string, Given> cases;
  for (const NamedTensor& entry : load_safetensors(source_dir() + "/tests/golden/indexing.safetensors").tensors) {
    const size_t slash = entry.name.find('/');
    cases[entry.name.substr(0, slash)][entry.name.substr(slash + 1)] = entry.tensor;
  }
  EXPECT_EQ(cases.size(), table.size());
  for (const auto& [name, tensors] : cases) {
    SCOPED_TRACE(name);
    ASSERT_EQ(table.count(name), 1u) << "the test does not know the case";
    Given in;
    for (const auto& [key, tensor] : tensors)
      if (!key.starts_with("out") && !key.starts_with("d_"))
        in[key] = is_floating(tensor.dtype()) ? tensor.clone().set_requires_grad(true) : tensor;
    const Tensors results = table.at(name)(in);
    for (size_t i = 0; i < results.size(); ++i)
      expect_alike(results[i], tensors.at("out" + (i ? std::to_string(i) : std::string())));
    if (!tensors.count("d_out")) continue;
    results[0].backward(tensors.at("d_out"));
    for (const auto& [key, tensor] : in)
      if (tensors.count("d_" + key)) expect_alike(tensor.grad(), tensors.at("d_" + key));
  }
}

Tensor numbers(const std::vector<double>& values) { return tensor(values, {.dtype = float64, .requires_grad = true}); }
Tensor places(const std::vector<int64_t>& values) { return from_vector(values, {static_cast<int64_t>(values.size())}); }

TEST(Scatter, EqualExtremesShareTheGradient) {
  const Tensor x = numbers({1, 2, 7}), source = numbers({1, 0, 1, 2, 3});
  const Tensor y = scatter_reduce(x, 0, places({0, 0, 0, 1, 1}), source, ScatterReduction::kMax, true);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{1, 3, 7}));
  y.backward(numbers({6, 5, 4}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 0, 4}));
  EXPECT_EQ(source.grad().to_vector<double>(), (std::vector<double>{2, 0, 2, 0, 5}));
}

TEST(Scatter, ProductsWithSeveralZeros) {
  const Tensor x = numbers({0, 3, 0}), source = numbers({0, 5, 2, 4});
  const Tensor y = scatter_reduce(x, 0, places({0, 0, 1, 2}), source, ScatterReduction::kProd, true);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 6, 0}));
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 2, 4}));
  EXPECT_EQ(source.grad().to_vector<double>(), (std::vector<double>{0, 0, 3, 0}));
}

// The gradient of sum() is one element, expanded.
TEST(IndexPut, OfSeveralValuesForAnElementTheLastGetsTheGradient) {
  const Tensor x = zeros({3, 2}, {.dtype = float64, .requires_grad = true}), values = numbers({1, 2, 3, 4, 5, 6});
  const Tensor y = index_put(x, {places({2, 0, 2})}, values.reshape({3, 2}));
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{3, 4, 0, 0, 5, 6}));
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(values.grad().to_vector<double>(), (std::vector<double>{0, 0, 1, 1, 1, 1}));
}

TEST(Index, MasksWithoutDimensionsTakeAllOrNothing) {
  const Tensor x = numbers({1, 2});
  const Tensor all = x.index({full({}, 1, {.dtype = boolean})}), none = x.index({full({}, 0, {.dtype = boolean})});
  EXPECT_EQ(all.shape(), Shape({1, 2}));
  EXPECT_EQ(all.to_vector<double>(), (std::vector<double>{1, 2}));
  EXPECT_EQ(none.shape(), Shape({0, 2}));
}

}  // namespace
}  // namespace tern::test
