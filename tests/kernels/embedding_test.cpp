// Row gathers and scatters against plain loops.

#include "tern/kernels/embedding.h"

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

Array random_ids(std::mt19937_64& random, DType dtype, const Shape& shape, int64_t count,
                 Order order = Order::kContiguous) {
  Array ids(dtype, shape, order);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.set(i, static_cast<double>(random() % count));
  return ids;
}

TEST(Embedding, Forward) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kAllTypes)
      for (DType id_type : {int64, int32})
        for (auto [rows, count, cols] :
             std::vector<std::array<int64_t, 3>>{{0, 3, 4}, {1, 1, 1}, {513, 17, 33}, {3000, 100, 128}}) {
          Array weight(dtype, {count, cols}), y(dtype, {rows, cols});
          fill_with_random(weight, random, 0, 9);
          Array ids = random_ids(random, id_type, {rows}, count);
          IndexFault bad;
          expect_same_for_any_threads(y, [&] {
            bad = {};
            embedding_forward({}, weight.cview(), ids.cview(), y.view(), &bad);
          });
          EXPECT_EQ(bad.count, 0);
          for (int64_t i = 0; i < y.numel(); ++i)
            ASSERT_EQ(y.at(i), weight.at(static_cast<int64_t>(ids.at(i / cols)) * cols + i % cols));
        }
    Array weight(float32, {5, 3}), y(float32, {3000, 3});
    fill_with_random(weight, random, 1, 2);
    Array ids = random_ids(random, int64, {3000}, 5);
    for (int64_t i : {2900, 700, 1500}) ids.set(i, i == 700 ? -1 : 5);
    IndexFault bad;
    expect_same_for_any_threads(y, [&] {
      bad = {};
      embedding_forward({}, weight.cview(), ids.cview(), y.view(), &bad);
    });
    EXPECT_EQ(bad.count, 3);
    EXPECT_EQ(bad.first, 700);
    EXPECT_EQ(y.at(2100), 0);
    EXPECT_NE(y.at(2103), 0);
  });
}

TEST(Embedding, Backward) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kFloatTypes)
      for (DType id_type : {int64, int32})
        for (int64_t padding : {-1, 0, 3})
          for (auto [rows, count, cols] :
               std::vector<std::array<int64_t, 3>>{{0, 7, 4}, {1, 4, 1}, {300, 11, 600}, {2000, 5000, 16}}) {
            Array dy(dtype, {rows, cols}), dweight(dtype, {count, cols});
            fill_with_random(dy, random, -1, 1);
            Array ids = random_ids(random, id_type, {rows}, count);
            if (rows > 100)
              ids.set(50, static_cast<double>(count)), ids.set(51, -7);  // reported in forward, ignored here
            MarkedWorkspace workspace(embedding_backward_workspace({}, rows, count, cols));
            expect_same_for_any_threads(dweight, [&] {
              fill_with_random(dweight, random, 5, 6);  // must be overwritten
              embedding_backward({}, dy.cview(), ids.cview(), padding, workspace.data(), dweight.view());
            });
            std::vector<double> expected(count * cols, 0), size(count * cols, 0);
            for (int64_t i = 0; i < rows; ++i) {
              const int64_t id = static_cast<int64_t>(ids.at(i));
              if (id < 0 || id >= count || id == padding) continue;
              for (int64_t c = 0; c < cols; ++c) {
                expected[id * cols + c] += dy.at(i * cols + c);
                size[id * cols + c] += std::fabs(dy.at(i * cols + c));
              }
            }
            for (int64_t i = 0; i < count * cols; ++i)
              ASSERT_TRUE(near(dweight.at(i), expected[i], 1.01 * epsilon_of(dtype),
                               size[i] * (dtype == float64 ? 1e-14 : 1e-6)));
          }
    // 16-bit gradients into an fp32 table.
    Array dy(bfloat16, {2, 3}), ids(int64, {2}), dweight(float32, {2, 3});
    for (int64_t i = 0; i < 6; ++i) dy.set(i, i == 0 ? 256 : 1);
    ids.set(0, 1);
    ids.set(1, 1);
    int64_t workspace[16];
    embedding_backward({}, dy.cview(), ids.cview(), -1, workspace, dweight.view());
    EXPECT_EQ(dweight.at(3), 257);
    EXPECT_EQ(dweight.at(0), 0);
  });
}

/// The element of a tensor of x's shape that element i of `index` selects.
int64_t gathered_position(const Shape& x, const Shape& index, int dim, int64_t i, int64_t id) {
  int64_t position[kMaxDims] = {}, result = 0;
  for (int d = static_cast<int>(index.size()) - 1; d >= 0; --d) {
    position[d] = i % index[d];
    i /= index[d];
  }
  position[dim] = id;
  for (size_t d = 0; d < x.size(); ++d) result = result * x[d] + position[d];
  return result;
}

TEST(Gather, ForwardAndBackward) {
  struct Case {
    Shape x, index;
  };
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const Case& c : std::vector<Case>{{{6}, {9}},
                                           {{5, 7}, {5, 7}},
                                           {{40, 300}, {33, 200}},
                                           {{3, 4, 5}, {2, 6, 5}},
                                           {{3, 4, 5}, {3, 4, 1}},
                                           {{2, 3}, {0, 3}},
                                           {{2, 130, 2, 3}, {2, 100, 1, 3}}})
      for (int dim = 0; dim < static_cast<int>(c.x.size()); ++dim) {
        // The index may be longer than x only along dim.
        Shape shape = c.index;
        for (size_t d = 0; d < shape.size(); ++d)
          if (static_cast<int>(d) != dim) shape[d] = std::min(shape[d], c.x[d]);
        for (Order order : kAllOrders)
          for (DType dtype : {float32, bfloat16, float64, uint8}) {
            Array x(dtype, c.x, order), y(dtype, shape, order);
            fill_with_random(x, random, 0, 9);
            Array index = random_ids(random, int64, shape, c.x[dim], order);
            IndexFault fault;
            expect_same_for_any_threads(y, [&] { gather({}, x.cview(), dim, index.cview(), y.view(), &fault); });
            ASSERT_EQ(fault.count, 0);
            std::vector<double> expected(x.numel(), 0);
            for (int64_t i = 0; i < y.numel(); ++i) {
              const int64_t from = gathered_position(c.x, shape, dim, i, static_cast<int64_t>(index.at(i)));
              ASSERT_EQ(y.at(i), x.at(from));
              if (is_floating(dtype)) expected[from] = round_to(dtype, expected[from] + y.at(i));
            }
            if (!is_floating(dtype)) continue;
            Array dx(dtype, c.x, order);
            expect_same_for_any_threads(dx, [&] { gather_backward({}, y.cview(), dim, index.cview(), dx.view()); });
            for (int64_t i = 0; i < dx.numel(); ++i) ASSERT_TRUE(near(dx.at(i), expected[i], 1e-12, 0)) << dx.at(i);
          }
      }
  });
}

TEST(Gather, IndicesOutsideTheDimensionAreCountedAndLeftOut) {
  for_each_level([] {
    Array x(float32, {4, 3}), y(float32, {5, 3}), dx(float32, {4, 3});
    std::mt19937_64 random = fresh_random();
    fill_with_random(x, random, 1, 2);
    Array index = random_ids(random, int64, {5, 3}, 4, Order::kContiguous);
    for (const auto& [i, bad] : {std::pair<int64_t, double>{1, 4}, {7, -1}, {14, 9e15}}) index.set(i, bad);
    IndexFault fault;
    gather({}, x.cview(), 0, index.cview(), y.view(), &fault);
    EXPECT_EQ(fault.count, 3);
    for (const int64_t i : {1, 7, 14}) EXPECT_EQ(y.at(i), 0);
    EXPECT_NE(y.at(0), 0);
    Array dy(float32, {5, 3});
    fill_with_random(dy, random, 1, 2);
    double expected = 0, sum = 0;
    for (int64_t i = 0; i < 15; ++i) expected += i == 1 || i == 7 || i == 14 ? 0 : dy.at(i);
    gather_backward({}, dy.cview(), 0, index.cview(), dx.view());
    for (int64_t i = 0; i < 12; ++i) sum += dx.at(i);
    EXPECT_NEAR(sum, expected, 1e-5);
  });
}

}  // namespace
}  // namespace tern::kernels
