// CPU kernels over tensors of more than 2^31 elements of one byte, all in memory: at most 6 GiB at a time.

#include <fstream>

#include "tern/kernels/copy.h"
#include "tern/kernels/embedding.h"
#include "tern/kernels/pointwise/tiles.h"
#include "tern/kernels/reduce.h"
#include "tern/tests/kernels/sparse_memory.h"

namespace tern::kernels {
namespace {

constexpr int64_t kCount = (int64_t{1} << 31) + 77;  // odd, and no multiple of any vector

/// Available memory in bytes according to Linux; 0 if unknown.
int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word)
    if (word == "MemAvailable:") {
      int64_t kilobytes = 0;
      file >> kilobytes;
      return kilobytes * 1024;
    }
  return 0;
}

/// Below 101 and not periodic in powers of two, so that a wrong source element is detected.
uint8_t pattern(int64_t i) { return static_cast<uint8_t>((i + i / 4093) % 101); }

class LargeTensors : public testing::Test {
 protected:
  void SetUp() override {
    constexpr int64_t kNeeded = int64_t{8} << 30;
    if (available_memory() < kNeeded) GTEST_SKIP() << "memory: less than 8 GiB of memory is free";
    ASSERT_TRUE(x && y);
    for (int64_t i = 0; i < kCount; ++i) x.data()[i] = pattern(i);
  }
  /// All elements, as bytes.
  static View all(const SparseMemory& memory) { return memory.view(uint8, {kCount}, {1}); }
  const SparseMemory x{kCount}, y{kCount};
};

TEST_F(LargeTensors, Pointwise) {
  const ConstView inputs[] = {all(x), all(x)};
  pointwise({}, make_call(Add{}, {}, int64), inputs, 2, all(y));
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(y.data()[i], 2 * pattern(i)) << "element " << i;
}

TEST_F(LargeTensors, Reductions) {
  const auto run = [&](Reduction reduction, ConstView view, uint32_t dims, Array& y) {
    std::vector<double> workspace(reduce_workspace({}, view, dims, y.view()) / 8 + 1);
    reduce({}, reduction, view, dims, workspace.data(), y.view());
  };
  int64_t sum = 0, columns[3] = {};
  for (int64_t i = 0; i < kCount; ++i) {
    sum += pattern(i);
    columns[i % 3] += pattern(i);
  }
  Array total(int64, {1}), by_column(int64, {1, 3});
  run(Reduction::kSum, all(x), 1, total);
  EXPECT_EQ(total.at(0), static_cast<double>(sum));

  static_assert(kCount % 3 != 0);
  const int64_t rows = kCount / 3;
  for (int64_t i = 3 * rows; i < kCount; ++i) columns[i % 3] -= pattern(i);
  run(Reduction::kSum, x.view(uint8, {rows, 3}, {3, 1}), 1, by_column);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(by_column.at(c), static_cast<double>(columns[c])) << "column " << c;

  Array place(int64, {1});
  x.data()[kCount - 2] = x.data()[kCount - 1] = 200;
  std::vector<double> workspace(arg_extreme_workspace({}, all(x), 0, place.view()) / 8 + 1);
  arg_extreme({}, true, all(x), 0, workspace.data(), place.view());
  EXPECT_EQ(place.at(0), static_cast<double>(kCount - 2));
}

TEST_F(LargeTensors, Copies) {
  copy({}, x.view(uint8, {kCount - 1}, {1}), View(y.data() + 1, uint8, 1, Shape{kCount - 1}.data(), Shape{1}.data()));
  EXPECT_EQ(y.data()[0], 0);
  for (int64_t i = 1; i < kCount; ++i) ASSERT_EQ(y.data()[i], pattern(i - 1)) << "element " << i;

  const int64_t rows = kCount / 10;
  copy({}, x.view(uint8, {10, rows}, {1, 10}), y.view(uint8, {10, rows}, {rows, 1}));  // transposed
  for (int64_t r = 0; r < 10; ++r)
    for (int64_t c = 0; c < rows; ++c)
      ASSERT_EQ(y.data()[r * rows + c], pattern(c * 10 + r)) << "row " << r << " column " << c;

  fill_integer({}, 7, all(y));
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(y.data()[i], 7) << "element " << i;
}

TEST_F(LargeTensors, GatherAndEmbedding) {
  const std::vector<int64_t> selected = {kCount - 1, 0, (int64_t{1} << 31) + 1, (int64_t{1} << 31) - 1, 5};
  const int64_t n = static_cast<int64_t>(selected.size()), cols = 7, rows = kCount / cols;
  Array index(int64, {n}), y(uint8, {n}), ids(int64, {n}), picked(uint8, {n, cols});
  for (int64_t i = 0; i < n; ++i) {
    index.set(i, static_cast<double>(selected[i]));
    ids.set(i, static_cast<double>(std::min(selected[i] / cols, rows - 1)));
  }
  IndexFault fault;
  gather({}, all(x), 0, index.cview(), y.view(), &fault);
  embedding_forward({}, x.view(uint8, {rows, cols}, {cols, 1}), ids.cview(), picked.view(), &fault);
  EXPECT_EQ(fault.count, 0);
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(y.at(i), pattern(selected[i])) << "index " << selected[i];
    for (int64_t c = 0; c < cols; ++c)
      EXPECT_EQ(picked.at(i * cols + c), pattern(static_cast<int64_t>(ids.at(i)) * cols + c)) << "row " << ids.at(i);
  }
  index.set(1, static_cast<double>(kCount));
  gather({}, all(x), 0, index.cview(), y.view(), &fault);
  EXPECT_EQ(fault.count, 1);
  EXPECT_EQ(y.at(1), 0);
}

}  // namespace
}  // namespace tern::kernels
