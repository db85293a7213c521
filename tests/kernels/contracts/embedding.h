#pragma once
// The contract of embeddings and gathers: cases, and plain loops as the reference.

#include <array>

#include "tern/kernels/embedding.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

/// Rows, entries of the table, columns.
using Sizes = std::vector<std::array<int64_t, 3>>;

inline Array random_ids(std::mt19937_64& random, DType dtype, const Shape& shape, int64_t count,
                        Order order = Order::kContiguous) {
  Array ids(dtype, shape, order);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.set(i, static_cast<double>(random() % static_cast<uint64_t>(count)));
  return ids;
}

inline void check_embedding_forward(DType dtype, DType id_type, Order order, const std::array<int64_t, 3>& size,
                                    std::mt19937_64& random) {
  const auto [rows, count, cols] = size;
  Array weight = random_array(random, dtype, {count, cols}, 0, 9, order), y(dtype, {rows, cols});
  const Array ids = random_ids(random, id_type, {rows}, count);
  IndexFault bad;
  expect_same_in_every_run(
      {&y}, [&](Call& on) { embedding_forward(on.stream(), on(weight), on(ids), on(y), on.memory(&bad)); });
  EXPECT_EQ(bad.count, 0);
  EXPECT_EQ(bad.first, -1);
  for (int64_t i = 0; i < y.numel(); ++i)
    ASSERT_EQ(y.at(i), weight.at(static_cast<int64_t>(ids.at(i / cols)) * cols + i % cols));
}

struct BackwardCase {
  DType dtype, out_type, id_type;
  int64_t padding, rows, count, cols;
  Order order = Order::kContiguous;
};

/// Sums in the order of the positions, in fp32 (fp64), rounded once: every bit must agree.
inline void check_embedding_backward(const BackwardCase& s, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " into " << name_of(s.out_type) << ", padding " << s.padding
                                  << ", " << s.rows << " rows, table " << s.count << "x" << s.cols);
  const Array dy = random_array(random, s.dtype, {s.rows, s.cols}, -1, 1, s.order);
  Array dweight = random_array(random, s.out_type, {s.count, s.cols}, 5, 6, s.order);  // must be overwritten
  Array ids = random_ids(random, s.id_type, {s.rows}, s.count);
  if (s.rows > 60) {  // reported in forward, skipped here
    ids.set(50, static_cast<double>(s.count));
    ids.set(51, -7);
  }
  expect_same_in_every_run({&dweight}, [&](Call& on) {
    void* const workspace = on.workspace(embedding_backward_workspace(on.stream(), s.rows, s.count, s.cols));
    embedding_backward(on.stream(), on(dy), on(ids), s.padding, workspace, on(dweight));
  });
  std::vector<double> expected(s.count * s.cols, 0);
  for (int64_t i = 0; i < s.rows; ++i) {
    const auto id = static_cast<int64_t>(ids.at(i));
    if (id < 0 || id >= s.count || id == s.padding) continue;
    for (int64_t c = 0; c < s.cols; ++c) {
      double& sum = expected[id * s.cols + c];
      const double term = dy.at(i * s.cols + c);
      sum = s.dtype == float64 ? sum + term : static_cast<float>(sum) + static_cast<float>(term);
    }
  }
  for (int64_t i = 0; i < s.count * s.cols; ++i) ASSERT_EQ(dweight.at(i), round_to(s.out_type, expected[i])) << i;
}

/// Calls use(element of the index, element of x) for each element of the index and the one that it names.
template <class Use>
void for_each_gathered(const Array& index, const Shape& x_shape, int dim, const Use& use) {
  for (int64_t i = 0; i < index.numel(); ++i) {
    Shape at(x_shape.size());
    int64_t rest = i, element = 0;
    for (int d = static_cast<int>(x_shape.size()) - 1; d >= 0; --d) {
      at[d] = rest % index.shape()[d];
      rest /= index.shape()[d];
    }
    at[dim] = static_cast<int64_t>(index.at(i));
    for (size_t d = 0; d < x_shape.size(); ++d) element = element * x_shape[d] + at[d];
    use(i, element);
  }
}

/// combined() of numbers that a double holds.
inline double combined_value(ScatterMode mode, DType dtype, double target, double value) {
  if (mode == ScatterMode::kAssign) return value;
  if (mode == ScatterMode::kMaximum) return std::max(target, value);
  if (mode == ScatterMode::kMinimum) return std::min(target, value);
  const double result = mode == ScatterMode::kAdd ? target + value : target * value;
  if (dtype == int32) return static_cast<int32_t>(static_cast<int64_t>(result));
  return dtype == uint8 ? std::fmod(result, 256) : round_to(dtype, result);
}

/// The index on the target: all of it, or the expanded `line` (one element for each row or column) that it equals.
inline ConstView index_on(Call& on, const Array& index, const Array* line) {
  if (line == nullptr) return on(index);
  const int64_t by_row = line->numel() == index.shape()[0] ? 1 : 0, strides[] = {by_row, 1 - by_row};
  return {ConstView(on(*line)).data, int64, 2, index.shape().data(), strides};
}

/// scatter with its workspace.
inline void run_scatter(Call& on, ScatterMode mode, const Array& source, int dim, ConstView index, Array& y,
                        IndexFault* fault) {
  void* const workspace = on.workspace(scatter_workspace(on.stream(), mode, dim, index, y.view()));
  scatter(on.stream(), mode, on(source), dim, index, workspace, on(y), fault);
}

/// Sums and products of 16-bit floats are rounded to fp32, and at the end to the dtype; other results at each step.
inline void check_scatter(ScatterMode mode, DType dtype, const Shape& shape, int dim, const Array& index, Order order,
                          std::mt19937_64& random, const Array* line = nullptr) {
  SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << ", " << name_of(dtype));
  const double high = dtype == int64 ? 2 : 4;  // products of int64 stay small
  const Array source = random_array(random, dtype, index.shape(), 0, high, order);
  const Array before = random_array(random, dtype, shape, 0, high, order);
  std::vector<double> expected = before.values();
  for_each_gathered(index, shape, dim, [&](int64_t i, int64_t to) {
    expected[to] = combined_value(mode, is_low_precision(dtype) ? float32 : dtype, expected[to], source.at(i));
  });
  for (double& value : expected) value = round_to(dtype, value);
  for_each_run([&] {
    Array y(dtype, shape, order);
    y.set(before.values());
    run_kernel([&](Call& on) { run_scatter(on, mode, source, dim, index_on(on, index, line), y, nullptr); });
    EXPECT_EQ(y.values(), expected);
    expect_gaps_untouched(y);
  });
}

/// gather, and a scatter of any mode.
inline void check_gather(DType dtype, const Shape& shape, int dim, const Array& index, Order order,
                         std::mt19937_64& random, const Array* line = nullptr) {
  Array x = random_array(random, dtype, shape, 0, 9, order), y(dtype, index.shape(), order);
  IndexFault fault;
  expect_same_in_every_run(
      {&y}, [&](Call& on) { gather(on.stream(), on(x), dim, index_on(on, index, line), on(y), on.memory(&fault)); });
  ASSERT_EQ(fault.count, 0);
  for_each_gathered(index, shape, dim, [&](int64_t i, int64_t from) { ASSERT_EQ(y.at(i), x.at(from)); });
  constexpr ScatterMode kModes[] = {ScatterMode::kAssign, ScatterMode::kAdd, ScatterMode::kMultiply,
                                    ScatterMode::kMaximum, ScatterMode::kMinimum};
  check_scatter(kModes[random() % 5], dtype, shape, dim, index, order, random, line);
}

}  // namespace tern::kernels
