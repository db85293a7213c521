// CUDA gathers and scatters in the emulator, against plain loops.

#include "tern/kernels/embedding.h"

#include <array>

#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels {
namespace {

using Sizes = std::vector<std::array<int64_t, 3>>;

Array random_ids(std::mt19937_64& random, DType dtype, const Shape& shape, int64_t count,
                 Order order = Order::kContiguous) {
  Array ids(dtype, shape, order);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.set(i, static_cast<double>(random() % count));
  return ids;
}

TEST(SimtEmbedding, Forward) {
  for_each_schedule([] {
    std::mt19937_64 random = fresh_random();
    for (const DType dtype : kAllTypes)
      for (const DType id_type : {int64, int32})
        for (const Order order : {Order::kContiguous, Order::kMisaligned})
          for (auto [rows, count, cols] : Sizes{{0, 3, 4}, {1, 1, 1}, {93, 17, 33}, {60, 10, 144}, {3, 2, 5000}}) {
            Array weight(dtype, {count, cols}, order), y(dtype, {rows, cols});
            fill_with_random(weight, random, 0, 9);
            const Array ids = random_ids(random, id_type, {rows}, count);
            IndexFault bad;
            cuda::embedding_forward(kCuda, weight.cview(), ids.cview(), y.view(), &bad);
            EXPECT_EQ(bad.count, 0);
            EXPECT_EQ(bad.first, -1);
            for (int64_t i = 0; i < y.numel(); ++i)
              ASSERT_EQ(y.at(i), weight.at(static_cast<int64_t>(ids.at(i / cols)) * cols + i % cols));
          }
  });
}

TEST(SimtEmbedding, BadIdsAreCountedAndGiveZeros) {
  for_each_schedule([] {
    std::mt19937_64 random = fresh_random();
    for (const int64_t cols : {3, 8}) {
      Array weight(float32, {5, cols}), y(float32, {3000, cols});
      fill_with_random(weight, random, 1, 2);
      fill_with_random(y, random, 1, 2);
      Array ids = random_ids(random, int64, {3000}, 5);
      for (const int64_t i : {2900, 700, 1500}) ids.set(i, i == 700 ? -1 : 5);
      IndexFault bad;
      cuda::embedding_forward(kCuda, weight.cview(), ids.cview(), y.view(), &bad);
      EXPECT_EQ(bad.count, 3);
      EXPECT_EQ(bad.first, 700);
      for (int64_t i = 0; i < 3000; ++i)
        for (int64_t c = 0; c < cols; ++c)
          ASSERT_EQ(y.at(i * cols + c) == 0, i == 700 || i == 1500 || i == 2900) << "row " << i;
    }
  });
}

/// Sums in the order of the positions, in fp32 (fp64), rounded once: every bit must agree.
void check_backward(DType dtype, DType out_type, DType id_type, int64_t padding, int64_t rows, int64_t count,
                    int64_t cols, Order order) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " into " << name_of(out_type) << ", padding " << padding << ", "
                                  << rows << " rows, table " << count << "x" << cols);
  std::mt19937_64 random = fresh_random(static_cast<uint64_t>(rows * 31 + cols));
  Array dy(dtype, {rows, cols}, order), dweight(out_type, {count, cols}, order);
  fill_with_random(dy, random, -1, 1);
  fill_with_random(dweight, random, 5, 6);  // must be overwritten
  Array ids = random_ids(random, id_type, {rows}, count);
  if (rows > 60) ids.set(50, static_cast<double>(count)), ids.set(51, -7);  // reported in forward, skipped here
  std::vector<char> workspace(cuda::embedding_backward_workspace(kCuda, rows, count, cols) + 1, 42);
  cuda::embedding_backward(kCuda, dy.cview(), ids.cview(), padding, workspace.data(), dweight.view());
  EXPECT_EQ(workspace.back(), 42);
  std::vector<double> expected(count * cols, 0);
  for (int64_t i = 0; i < rows; ++i) {
    const auto id = static_cast<int64_t>(ids.at(i));
    if (id < 0 || id >= count || id == padding) continue;
    for (int64_t c = 0; c < cols; ++c) {
      double& sum = expected[id * cols + c];
      sum = dtype == float64 ? sum + dy.at(i * cols + c)
                             : static_cast<float>(sum) + static_cast<float>(dy.at(i * cols + c));
    }
  }
  for (int64_t i = 0; i < count * cols; ++i) ASSERT_EQ(dweight.at(i), round_to(out_type, expected[i])) << i;
}

TEST(SimtEmbedding, BackwardIsTheSumInOrder) {
  for_each_schedule([] {
    for (const DType dtype : kFloatTypes)
      for (const DType id_type : {int64, int32})
        for (const int64_t padding : {-1, 0, 3})
          for (auto [rows, count, cols] : Sizes{{0, 7, 4}, {1, 4, 1}, {200, 11, 70}, {300, 600, 16}, {70, 2, 264}})
            check_backward(dtype, dtype, id_type, padding, rows, count, cols, Order::kContiguous);
    check_backward(bfloat16, float32, int64, -1, 90, 5, 24, Order::kContiguous);
    check_backward(float32, float16, int64, 2, 90, 5, 24, Order::kMisaligned);
    check_backward(float64, float32, int32, 2, 90, 5, 6, Order::kMisaligned);
  });
}

Shape gathered_shape(Shape shape, int dim, int64_t length) {
  shape[dim] = length;
  return shape;
}

/// Calls use(element of y, element of x) for each pair of elements of x and y (or dx and dy) that correspond.
template <class Use>
void for_each_gathered(const Array& index, const Shape& x_shape, int dim, const Use& use) {
  for (int64_t i = 0; i < index.numel(); ++i) {
    Shape at(x_shape.size());
    int64_t rest = i, target = 0;
    for (int d = static_cast<int>(x_shape.size()) - 1; d >= 0; --d) {
      at[d] = rest % index.shape()[d];
      rest /= index.shape()[d];
    }
    at[dim] = static_cast<int64_t>(index.at(i));
    for (size_t d = 0; d < x_shape.size(); ++d) target = target * x_shape[d] + at[d];
    use(i, target);
  }
}

TEST(SimtGather, ForwardAndBackward) {
  for_each_schedule([] {
    std::mt19937_64 random = fresh_random();
    for (const Shape& shape : {Shape{50}, Shape{6, 9}, Shape{3, 5, 8}, Shape{2, 1, 4, 3}})
      for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim)
        for (const int64_t length : {0, 1, 7, 70})
          for (const Order order : kAllOrders) {
            if (kFewCases && random() % 3 != 0) continue;
            const Shape dense = gathered_shape(shape, dim, length);
            const Array index = random_ids(random, int64, dense, shape[dim], order);
            for (const DType dtype : kAllTypes) {
              Array x(dtype, shape, order), y(dtype, dense, order);
              fill_with_random(x, random, 0, 9);
              IndexFault fault;
              cuda::gather(kCuda, x.cview(), dim, index.cview(), y.view(), &fault);
              ASSERT_EQ(fault.count, 0);
              for_each_gathered(index, shape, dim, [&](int64_t i, int64_t from) { ASSERT_EQ(y.at(i), x.at(from)); });
            }
            for (const DType dtype : kFloatTypes) {
              Array dy(dtype, dense, order), dx(dtype, shape, order);
              fill_with_random(dy, random, -1, 1);
              fill_with_random(dx, random, 5, 6);  // must be overwritten
              cuda::gather_backward(kCuda, dy.cview(), dim, index.cview(), dx.view());
              std::vector<double> expected(dx.numel(), 0);
              for_each_gathered(index, shape, dim, [&](int64_t i, int64_t to) {
                expected[to] = round_to(dtype, expected[to] + dy.at(i));  // each sum is rounded to dx's type
              });
              for (int64_t i = 0; i < dx.numel(); ++i) ASSERT_EQ(dx.at(i), expected[i]);
            }
          }
  });
}

TEST(SimtGather, IndicesOutsideTheDimensionAreCountedAndLeftOut) {
  for_each_schedule([] {
    Array x(float32, {4, 3}), y(float32, {5, 3}), dx(float32, {4, 3});
    std::mt19937_64 random = fresh_random();
    fill_with_random(x, random, 1, 2);
    Array index = random_ids(random, int64, {5, 3}, 4, Order::kContiguous);
    for (const auto& [i, bad] : {std::pair<int64_t, double>{1, 4}, {7, -1}, {14, 9e15}}) index.set(i, bad);
    IndexFault fault;
    cuda::gather(kCuda, x.cview(), 0, index.cview(), y.view(), &fault);
    EXPECT_EQ(fault.count, 3);
    for (int64_t i = 0; i < 15; ++i)
      EXPECT_EQ(y.at(i), i == 1 || i == 7 || i == 14 ? 0 : x.at(static_cast<int64_t>(index.at(i)) * 3 + i % 3)) << i;
    Array dy(float32, {5, 3});
    fill_with_random(dy, random, 1, 2);
    std::vector<double> expected(12, 0);
    for (int64_t i = 0; i < 15; ++i) {
      if (i == 1 || i == 7 || i == 14) continue;
      double& to = expected[static_cast<size_t>(index.at(i)) * 3 + static_cast<size_t>(i % 3)];
      to = round_to(float32, to + dy.at(i));
    }
    cuda::gather_backward(kCuda, dy.cview(), 0, index.cview(), dx.view());
    EXPECT_EQ(dx.values(), expected);
  });
}

}  // namespace
}  // namespace tern::kernels
