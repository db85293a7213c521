// sort, argsort, topk, cumsum, nonzero and masked_select: values, dimensions, dtypes, hand-written gradients, errors.

#include <algorithm>
#include <numeric>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

std::vector<double> values_of(const Tensor& x) { return x.to_vector<double>(); }

/// Small integers, which give ties, and some NaN.
Tensor with_ties(const Shape& shape, std::mt19937_64& random) {
  Tensor x = empty(shape, {.dtype = float64});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = random() % 11 == 0 ? NAN : static_cast<double>(random() % 5) - 2;
  return x;
}

/// The fibres of x along d, in row-major order of the other dimensions.
std::vector<std::vector<double>> fibres(const Tensor& x, int d) {
  const std::vector<double> all = values_of(x.transpose(d, -1).contiguous());
  const auto length = static_cast<size_t>(x.size(d));
  std::vector<std::vector<double>> result;
  for (size_t i = 0; i < all.size(); i += length) result.emplace_back(all.begin() + i, all.begin() + i + length);
  return result;
}

std::vector<double> order_of(const std::vector<double>& x, bool descending) {
  std::vector<double> order(x.size());
  std::iota(order.begin(), order.end(), 0.0);
  const auto less = [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
  std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
    const double u = x[static_cast<size_t>(a)], v = x[static_cast<size_t>(b)];
    return descending ? less(v, u) : less(u, v);
  });
  return order;
}

/// The elements at the indices, including NaN.
void expect_chosen(const std::vector<double>& x, const std::vector<double>& indices,
                   const std::vector<double>& values) {
  ASSERT_EQ(indices.size(), values.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const double expected = x[static_cast<size_t>(indices[i])];
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(values[i]) : expected == values[i]) << i;
  }
}

TEST(Sort, EveryDimensionAndDirection) {
  std::mt19937_64 random = fresh_random();
  for (const Shape& shape : {Shape{7}, Shape{4, 5}, Shape{3, 1, 6}, Shape{2, 3, 2, 300}})
    for (int d = -shape.dims(); d < shape.dims(); ++d)
      for (const bool descending : {false, true}) {
        const Tensor x = with_ties(shape, random);
        const SortResult result = sort(x, d, descending);
        EXPECT_EQ(result.values.shape(), shape);
        EXPECT_EQ(result.values.dtype(), float64);
        EXPECT_EQ(result.indices.dtype(), int64);
        expect_equal(argsort(x, d, descending), result.indices);
        const auto rows = fibres(x, d), indices = fibres(result.indices, d), values = fibres(result.values, d);
        for (size_t r = 0; r < rows.size(); ++r) {
          EXPECT_EQ(indices[r], order_of(rows[r], descending));
          expect_chosen(rows[r], indices[r], values[r]);
        }
      }
}

TEST(Sort, ViewsAndDTypes) {
  const Tensor x = tensor({5, 9, 3, 9, 7, 9, 1, 9});
  EXPECT_EQ(values_of(sort(x.slice(0, 0, 8, 2)).values), (std::vector<double>{1, 3, 5, 7}));
  EXPECT_EQ(values_of(sort(tensor({3, 1}).unsqueeze(0).expand({2, 2}), 1).values), (std::vector<double>{1, 3, 1, 3}));
  for (const DType dtype : {float32, bfloat16, float16, int64, int32, uint8}) {
    const SortResult result = sort(tensor({3, 1, 2, 1}).to(dtype), 0, true);
    EXPECT_EQ(result.values.dtype(), dtype);
    EXPECT_EQ(values_of(result.values), (std::vector<double>{3, 2, 1, 1}));
    EXPECT_EQ(values_of(result.indices), (std::vector<double>{0, 2, 1, 3}));
  }
  const Tensor flags = from_vector<bool>({true, false, true, false}, {4});
  EXPECT_EQ(values_of(argsort(flags)), (std::vector<double>{1, 3, 0, 2}));
  const int64_t big = int64_t{1} << 60;  // differ beyond a double's precision
  EXPECT_EQ(argsort(from_vector<int64_t>({big + 1, big, -big - 1, -big}, {4})).to_vector<int64_t>(),
            (std::vector<int64_t>{2, 3, 1, 0}));
}

TEST(Sort, AScalarIsOneElement) {
  const Tensor x = full({}, 3);
  EXPECT_EQ(sort(x).values.shape(), Shape{});
  EXPECT_EQ(sort(x, 0).values.item<double>(), 3);
  EXPECT_EQ(argsort(x, -1).item<int64_t>(), 0);
  EXPECT_EQ(topk(x, 1).indices.shape(), Shape{});
  EXPECT_EQ(cumsum(x, 0).item<double>(), 3);
  expect_error([&] { sort(x, 1); }, {"dimension 1"});
}

TEST(Sort, NothingToSort) {
  for (const Shape& shape : {Shape{0}, Shape{2, 0}, Shape{0, 3}})
    for (int d = 0; d < shape.dims(); ++d)
      for (const DType dtype : {float32, int64, boolean}) {
        const Tensor x = zeros(shape, {.dtype = dtype});
        EXPECT_EQ(sort(x, d).values.shape(), shape);
        EXPECT_EQ(argsort(x, d, true).shape(), shape);
        EXPECT_EQ(topk(x, x.size(d), d).values.shape(), shape);
        EXPECT_EQ(topk(x, 0, d).indices.shape(), shape.with(d, 0));
        EXPECT_EQ(cumsum(x, d).shape(), shape);
      }
  expect_error([] { topk(zeros({0}), 1); }, {"topk", "[0, 0]", "got 1"});
}

TEST(Sort, TheGradientGoesWhereTheValueCameFrom) {
  const Tensor x = tensor({2, 3, 1, 3}, {.requires_grad = true});
  sort(x, 0, true).values.backward(tensor({10, 20, 30, 40}));
  EXPECT_EQ(values_of(x.grad()), (std::vector<double>{30, 10, 40, 20}));
  const Tensor y = tensor({2, 3, 1, 3}, {.requires_grad = true});
  topk(y, 2).values.backward(tensor({10, 20}));
  EXPECT_EQ(values_of(y.grad()), (std::vector<double>{0, 10, 0, 20}));
  EXPECT_FALSE(sort(y).indices.requires_grad());
  EXPECT_FALSE(argsort(y).requires_grad());
}

TEST(Sort, RecomputedInBackward) {
  const Tensor mask = from_vector<bool>({true, false, true}, {3});
  const auto chain = [&](const Tensor& x) {
    return masked_select(cumsum(topk(sort(x, 0, true).values, 3).values, 1), mask);
  };
  Generator generator = fresh_generator();
  const Tensor x = leaf({4, 5}, generator), y = x.detach().clone().set_requires_grad(true);
  sum(square(chain(x))).backward();
  sum(square(checkpoint(chain, y))).backward();
  expect_equal(y.grad(), x.grad());
}

TEST(Sort, IndicesThatWereChangedAreNoticed) {
  const Tensor x = tensor({2, 3, 1}, {.requires_grad = true});
  SortResult result = sort(x);
  result.indices.fill_(0);
  expect_error([&] { sum(result.values).backward(); }, {"sort", "modified in place"});
}

TEST(TopK, IsTheBeginningOfTheSort) {
  std::mt19937_64 random = fresh_random();
  for (const Shape& shape : {Shape{9}, Shape{4, 5}, Shape{2, 400, 2}})
    for (int d = 0; d < shape.dims(); ++d)
      for (const int64_t k : {int64_t{0}, int64_t{1}, shape[d] / 2, shape[d]})
        for (const bool largest : {false, true}) {
          const Tensor x = with_ties(shape, random);
          const SortResult whole = sort(x, d, largest), top = topk(x, k, d, largest);
          expect_equal(top.indices, whole.indices.slice(d, 0, k));
          EXPECT_EQ(top.values.shape(), shape.with(d, k));
          const SortResult unsorted = topk(x, k, d, largest, false);
          EXPECT_EQ(unsorted.values.shape(), shape.with(d, k));
          expect_equal(unsorted.indices, sort(top.indices, d).values);
        }
}

TEST(TopK, Errors) {
  expect_error([] { topk(zeros({3, 5}), 6); }, {"topk", "[0, 5]", "dimension -1", "[3, 5]", "got 6"});
  expect_error([] { topk(zeros({3, 5}), 4, 0); }, {"topk", "[0, 3]", "got 4"});
  expect_error([] { topk(zeros({3, 5}), -1); }, {"topk", "got -1"});
  expect_error([] { topk(zeros({3, 5}), 1, 2); }, {"dimension 2", "[3, 5]"});
  expect_error([] { sort(zeros({3, 5}), -3); }, {"dimension -3", "[3, 5]"});
  expect_error([] { cumsum(zeros({3, 5}), 2); }, {"dimension 2", "[3, 5]"});
}

TEST(CumSum, ValuesAndDTypes) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  EXPECT_EQ(values_of(cumsum(x, 0)), (std::vector<double>{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(values_of(cumsum(x, -1)), (std::vector<double>{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(values_of(cumsum(x.t(), 0)), (std::vector<double>{1, 4, 3, 9, 6, 15}));
  for (const DType dtype : {float64, float32, bfloat16, float16}) EXPECT_EQ(cumsum(x.to(dtype), 0).dtype(), dtype);
  for (const DType dtype : {int64, int32, uint8}) {
    EXPECT_EQ(cumsum(x.to(dtype), 0).dtype(), int64);
    EXPECT_EQ(values_of(cumsum(x.to(dtype), 1)), (std::vector<double>{1, 3, 6, 4, 9, 15}));
  }
  EXPECT_EQ(values_of(cumsum(full({300}, 255, {.dtype = uint8}), 0).slice(0, 299)), (std::vector<double>{76500}));
  EXPECT_EQ(values_of(cumsum(from_vector<bool>({true, false, true}, {3}), 0)), (std::vector<double>{1, 1, 2}));
  // Small numbers are not lost in a large sum, as in 16 bits or fp32.
  EXPECT_EQ(cumsum(full({100000}, 1, {.dtype = float16}).slice(0, 0, 2049), 0)[2048].item<double>(), 2048);
  EXPECT_EQ(cumsum(full({1 << 22}, 0.1), 0)[-1].item<double>(), 0.1f * (1 << 22));
  const Autocast region(cpu, bfloat16);
  EXPECT_EQ(cumsum(x.to(bfloat16), 0).dtype(), float32);
}

TEST(Nonzero, IndicesInRowMajorOrder) {
  const Tensor x = tensor({0, 1, 0, -2, 0, NAN}).reshape({2, 3});
  const Tensor found = nonzero(x);
  EXPECT_EQ(found.dtype(), int64);
  EXPECT_EQ(found.shape(), (Shape{3, 2}));
  EXPECT_EQ(values_of(found), (std::vector<double>{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(values_of(nonzero(x.t())), (std::vector<double>{0, 1, 1, 0, 2, 1}));
  for (const DType dtype : {float64, bfloat16, float16, int64, int32, uint8, boolean})
    EXPECT_EQ(values_of(nonzero(tensor({0, 3, 0, 1}).to(dtype))), (std::vector<double>{1, 3})) << dtype;
  EXPECT_EQ(nonzero(zeros({4})).shape(), (Shape{0, 1}));
  EXPECT_EQ(nonzero(zeros({0, 3})).shape(), (Shape{0, 2}));
  EXPECT_EQ(nonzero(full({}, 5)).shape(), (Shape{1, 0}));
  EXPECT_EQ(nonzero(full({}, 0)).shape(), (Shape{0, 0}));
  EXPECT_FALSE(nonzero(tensor({1}, {.requires_grad = true})).requires_grad());
}

TEST(MaskedSelect, BroadcastsBoth) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}).reshape({2, 3}), mask = from_vector<bool>({true, false, true}, {3});
  EXPECT_EQ(values_of(masked_select(x, mask)), (std::vector<double>{1, 3, 4, 6}));
  EXPECT_EQ(values_of(masked_select(x, gt(x, full({}, 3)))), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(values_of(masked_select(tensor({7, 8, 9}), from_vector<bool>({true, false}, {2, 1}))),
            (std::vector<double>{7, 8, 9}));
  EXPECT_EQ(masked_select(x, zeros({}, {.dtype = boolean})).shape(), Shape{0});
  EXPECT_EQ(masked_select(zeros({0, 3}), mask).shape(), Shape{0});
  EXPECT_EQ(masked_select(full({}, 2), ones({}, {.dtype = boolean})).shape(), Shape{1});
  EXPECT_EQ(masked_select(x.to(int32), mask).dtype(), int32);
  EXPECT_EQ(values_of(masked_select(tensor({1, 2, 3, 4, 5, 6}).slice(0, 1, 6, 2), mask)), (std::vector<double>{2, 6}));
  EXPECT_EQ(
      values_of(masked_select(tensor({1, 2}), from_vector<bool>({true, false, false, true}, {4}).slice(0, 0, 4, 3))),
      (std::vector<double>{1, 2}));
  const Tensor row = tensor({1, 2, 3}, {.requires_grad = true});
  masked_select(row.expand({2, 3}), from_vector<bool>({true, false, true, true, false, false}, {2, 3}))
      .backward(tensor({10, 20, 40}));
  EXPECT_EQ(values_of(row.grad()), (std::vector<double>{50, 0, 20}));
}

TEST(MaskedSelect, Errors) {
  const Tensor x = zeros({2, 3});
  expect_error([&] { masked_select(x, ones({2, 3})); }, {"masked_select", "bool", "float32 [2, 3]"});
  expect_error([&] { masked_select(x, ones({2}, {.dtype = boolean})); }, {"masked_select", "[2, 3]", "[2]"});
}

}  // namespace
}  // namespace tern::test
