// Row gathers and scatters against plain loops.

#include "tern/tests/kernels/contracts/embedding.h"

namespace tern::kernels {
namespace {

class Embedding : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Embedding, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Embedding, Forward) {
  for (const DType dtype : kAllTypes)
    for (const DType id_type : {int64, int32})
      for (const Order order : {Order::kContiguous, Order::kMisaligned}) {
        for (const auto& size : Sizes{{0, 3, 4}, {1, 1, 1}, {93, 17, 33}, {60, 10, 144}, {3, 2, 5000}})
          if (takes_case(size[0] * size[2], random)) check_embedding_forward(dtype, id_type, order, size, random);
        if (!target().is_cpu()) continue;
        for (const auto& size : Sizes{{513, 17, 33}, {3000, 100, 128}})
          check_embedding_forward(dtype, id_type, order, size, random);
      }
}

TEST_P(Embedding, BadIdsAreCountedAndGiveZeros) {
  for_each_run([&] {
    for (const int64_t cols : {3, 8}) {
      const Array weight = random_array(random, float32, {5, cols}, 1, 2);
      Array y = random_array(random, float32, {3000, cols}, 1, 2);
      Array ids = random_ids(random, int64, {3000}, 5);
      for (const int64_t i : {2900, 700, 1500}) ids.set(i, i == 700 ? -1 : 5);
      IndexFault bad;
      run_kernel([&](Call& on) { embedding_forward(on.stream(), on(weight), on(ids), on(y), on.memory(&bad)); });
      EXPECT_EQ(bad.count, 3);
      EXPECT_EQ(bad.first, 700);
      for (int64_t i = 0; i < 3000; ++i)
        for (int64_t c = 0; c < cols; ++c)
          ASSERT_EQ(y.at(i * cols + c) == 0, i == 700 || i == 1500 || i == 2900) << "row " << i;
    }
  });
}

TEST_P(Embedding, BackwardIsTheSumInOrder) {
  for (const DType dtype : kFloatTypes)
    for (const DType id_type : {int64, int32})
      for (const int64_t padding : {-1, 0, 3}) {
        Sizes sizes = {{0, 7, 4}, {1, 4, 1}, {200, 11, 70}, {300, 600, 16}, {70, 2, 264}};
        if (target().is_cpu()) sizes.insert(sizes.end(), {{300, 11, 600}, {2000, 5000, 16}});
        for (const auto& [rows, count, cols] : sizes)
          if (takes_case(rows * cols, random))
            check_embedding_backward({dtype, dtype, id_type, padding, rows, count, cols}, random);
      }
  check_embedding_backward({bfloat16, float32, int64, -1, 90, 5, 24}, random);
  check_embedding_backward({float32, float16, int64, 2, 90, 5, 24, Order::kMisaligned}, random);
  check_embedding_backward({float64, float32, int32, 2, 90, 5, 6, Order::kMisaligned}, random);
}

TEST_P(Embedding, GatherAndScatter) {
  for (const Shape& shape : {Shape{50}, Shape{6, 9}, Shape{3, 5, 8}, Shape{2, 1, 4, 3}})
    for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim)
      for (const int64_t length : {0, 1, 7, 70})
        for (const Order order : kAllOrders) {
          Shape dense = shape;
          dense[dim] = length;
          const Array index = random_ids(random, int64, dense, shape[dim], order);
          for (const DType dtype : kAllTypes)
            if (takes_case(0, random)) check_gather(dtype, shape, dim, index, order, random);
        }
}

/// Sums of many ones and products near 1, which 16 bits cannot hold before the last of them.
TEST_P(Embedding, ScatterOfHalvesIsRoundedOnce) {
  const int64_t n = target().is_cpu() ? 5000 : 1100;
  for (const DType dtype : {bfloat16, float16})
    for (const ScatterMode mode : {ScatterMode::kAdd, ScatterMode::kMultiply})
      for (const bool is_line : {false, true})
        for (const Order order : kAllOrders) {
          // Three elements or rows of y get all of them; a fourth is not named.
          const int64_t cols = is_line ? 1 : 5;
          const double factor = 1 + 2 * epsilon_of(dtype);
          const Shape shape = is_line ? Shape{4} : Shape{4, cols};
          Array source(dtype, is_line ? Shape{n} : Shape{n, cols}, order), index(int64, source.shape());
          source.fill(mode == ScatterMode::kAdd ? 1 : factor);
          std::vector<float> sums(static_cast<size_t>(4 * cols), mode == ScatterMode::kAdd ? 3 : 1);
          const std::vector<float> before = sums;
          for (int64_t i = 0; i < n * cols; ++i) {
            const auto row = static_cast<int64_t>(random() % 8 == 0) + static_cast<int64_t>(random() % 64 == 0);
            index.set(i, static_cast<double>(row));
            float& sum = sums[static_cast<size_t>(row * cols + i % cols)];
            sum = mode == ScatterMode::kAdd ? sum + 1 : sum * static_cast<float>(factor);
          }
          for_each_run([&] {
            Array y(dtype, shape, order);
            for (int64_t i = 0; i < y.numel(); ++i) y.set(i, before[static_cast<size_t>(i)]);
            run_kernel([&](Call& on) { run_scatter(on, mode, source, 0, on(index), y, nullptr); });
            for (int64_t i = 0; i < y.numel(); ++i)
              ASSERT_EQ(y.at(i), round_to(dtype, sums[static_cast<size_t>(i)])) << name_of(dtype) << ", element " << i;
            expect_gaps_untouched(y);
          });
        }
}

/// The index may be shorter than x in every dimension, and longer along dim.
TEST_P(Embedding, GatherOfOtherShapes) {
  for (const auto& [x, index_shape] : std::vector<std::pair<Shape, Shape>>{{{6}, {9}},
                                                                           {{5, 7}, {5, 7}},
                                                                           {{40, 300}, {33, 200}},
                                                                           {{3, 4, 5}, {2, 6, 5}},
                                                                           {{3, 4, 5}, {3, 4, 1}},
                                                                           {{2, 3}, {0, 3}},
                                                                           {{2, 130, 2, 3}, {2, 100, 1, 3}}})
    for (int dim = 0; dim < static_cast<int>(x.size()); ++dim) {
      Shape shape = index_shape;
      for (size_t d = 0; d < shape.size(); ++d)
        if (static_cast<int>(d) != dim) shape[d] = std::min(shape[d], x[d]);
      for (const Order order : kAllOrders) {
        const Array index = random_ids(random, int64, shape, x[dim], order);
        for (const DType dtype : {float32, bfloat16, float64, uint8})
          if (takes_case(0, random)) check_gather(dtype, x, dim, index, order, random);
      }
    }
}

TEST_P(Embedding, GatherIndicesOutsideTheDimensionAreCountedAndLeftOut) {
  for_each_run([&] {
    const Array x = random_array(random, float32, {4, 3}, 1, 2), source = random_array(random, float32, {5, 3}, 1, 2);
    Array y(float32, {5, 3}), sums(float32, {4, 3}), index = random_ids(random, int64, {5, 3}, 4);
    sums.fill(0);
    for (const auto& [i, bad] : {std::pair<int64_t, double>{14, 4}, {7, -1}, {6, 9e15}}) index.set(i, bad);
    IndexFault fault, fault_of_scatter;
    run_kernel([&](Call& on) {
      gather(on.stream(), on(x), 0, on(index), on(y), on.memory(&fault));
      run_scatter(on, ScatterMode::kAdd, source, 0, on(index), sums, on.memory(&fault_of_scatter));
    });
    for (const IndexFault& found : {fault, fault_of_scatter}) {
      EXPECT_EQ(found.count, 3);
      EXPECT_EQ(found.first, 6);  // in row-major order
    }
    std::vector<double> expected(12, 0);
    for (int64_t i = 0; i < 15; ++i) {
      const bool bad = i == 6 || i == 7 || i == 14;
      const int64_t element = bad ? 0 : static_cast<int64_t>(index.at(i)) * 3 + i % 3;
      EXPECT_EQ(y.at(i), bad ? 0 : x.at(element)) << i;
      if (!bad) expected[element] = round_to(float32, expected[element] + source.at(i));
    }
    EXPECT_EQ(sums.values(), expected);
  });
}

/// An index expanded over the columns, as index_select and index_add have it, over the rows, or along dim itself.
TEST_P(Embedding, GatherAndScatterByExpandedIndices) {
  const int64_t rows = 9, cols = target().is_cpu() ? 700 : 70;
  for (const int dim : {0, 1})
    for (const int expanded : {0, 1})
      for (const Order order : kAllOrders) {
        const int64_t size = dim == 0 ? rows : cols, length = expanded == 0 ? cols : rows;
        const Array line = random_ids(random, int64, {length}, size);
        Array index(int64, {rows, cols});
        for (int64_t i = 0; i < rows * cols; ++i) index.set(i, line.at(expanded == 0 ? i % cols : i / cols));
        for (const DType dtype : {float32, bfloat16, float64, uint8})
          if (takes_case(0, random)) check_gather(dtype, {rows, cols}, dim, index, order, random, &line);
      }
}

/// Every index that is out of range is reported, in every piece of a long line, and no other element is left out.
TEST_P(Embedding, FaultsInALongLine) {
  const int64_t n = target().is_cpu() ? 70001 : 3001;
  const Array x = random_array(random, float32, {40}, 1, 2), source = random_array(random, float32, {n}, 1, 2);
  Array index = random_ids(random, int64, {n}, 40), y(float32, {n}), sums(float32, {40});
  const int64_t bad = 2500 + static_cast<int64_t>(random() % 400);
  for (const auto& [i, id] : {std::pair<int64_t, double>{bad, 40}, {n - 1, -1}}) index.set(i, id);
  sums.fill(0);
  IndexFault faults[2];
  run_kernel([&](Call& on) {
    gather(on.stream(), on(x), 0, on(index), on(y), on.memory(&faults[0]));
    run_scatter(on, ScatterMode::kMaximum, source, 0, on(index), sums, on.memory(&faults[1]));
  });
  std::vector<double> expected(40, 0);
  for (int64_t i = 0; i < n; ++i) {
    const bool good = i != bad && i != n - 1;
    const auto id = static_cast<size_t>(good ? index.at(i) : 0);
    ASSERT_EQ(y.at(i), good ? x.at(static_cast<int64_t>(id)) : 0) << i;
    if (good) expected[id] = std::max(expected[id], source.at(i));
  }
  EXPECT_EQ(sums.values(), expected);
  for (const IndexFault& fault : faults) {
    EXPECT_EQ(fault.count, 2);
    EXPECT_EQ(fault.first, bad);
  }
}

/// The fault of a three-dimensional index has its row-major position, whatever dimension is indexed.
TEST_P(Embedding, FaultsHaveRowMajorPositions) {
  const Array x = random_array(random, float32, {9, 9, 9}, 1, 2);
  for (int dim = 0; dim < 3; ++dim) {
    Array index = random_ids(random, int64, {2, 3, 5}, 9), y(float32, {2, 3, 5});
    const auto bad = static_cast<int64_t>(random() % 30);
    index.set(bad, 9);
    IndexFault fault;
    run_kernel([&](Call& on) { gather(on.stream(), on(x), dim, on(index), on(y), on.memory(&fault)); });
    EXPECT_EQ(fault.first, bad) << dim;
  }
}

TEST_P(Embedding, OffsetsAreSumsOfWrappedIndices) {
  const int64_t n = 700, sizes[] = {7, 12}, strides[] = {24, 1};
  Array offsets(int64, {n});
  std::vector<double> expected(n, 0);
  for (int k = 0; k < 2; ++k) {
    Array index(int64, {n});
    IndexFault fault;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id =
          static_cast<int64_t>(random() % static_cast<uint64_t>(2 * sizes[k] + 1)) - sizes[k];  // <= size
      index.set(i, static_cast<double>(id));
      if (id == sizes[k]) expected[i] = -1;
      if (expected[i] >= 0) expected[i] += static_cast<double>((id < 0 ? id + sizes[k] : id) * strides[k]);
    }
    run_kernel([&](Call& on) {
      add_offsets(on.stream(), on(index), sizes[k], strides[k], k == 0, on(offsets), on.memory(&fault));
    });
    const std::vector<double> ids = index.values();
    EXPECT_EQ(fault.count, std::count(ids.begin(), ids.end(), static_cast<double>(sizes[k])));
  }
  EXPECT_EQ(offsets.values(), expected);
}

}  // namespace
}  // namespace tern::kernels
