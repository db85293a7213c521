#include "tern/dist/collectives/row_exchange.h"

#include <gtest/gtest.h>

#include <limits>

#include "tern/core/ops/ops.h"
#include "tern/tests/support/seed.h"

namespace tern::dist {
namespace {

TEST(RowExchange, EveryBitOfARowCounts) {
  for (const int64_t width : {1, 2, 3, 7, 67, 256})
    for (const DType dtype : {float32, float64, bfloat16}) {
      std::mt19937_64 random = fresh_random();
      const int64_t rows = 301;
      std::vector<double> numbers(static_cast<size_t>(rows * width), 0.0);
      std::vector<uint8_t> expected(static_cast<size_t>(rows), 0);
      const double values[] = {1, -0.0, std::numeric_limits<double>::quiet_NaN()};
      for (int64_t i = 0; i < 40; ++i) {
        const uint64_t place = random() % numbers.size();
        numbers[place] = values[i % 3];
        expected[place / static_cast<uint64_t>(width)] = 1;
      }
      const Tensor gradient = from_vector(numbers, {rows, width}).to(dtype);
      EXPECT_EQ(touched_rows(gradient).to(uint8).to_vector<uint8_t>(), expected) << width << " " << dtype;
    }
}

TEST(RowExchange, ManyRowsAreExchangedWhole) {
  const auto exchanged = [](int64_t set, int64_t count) {
    std::vector<uint8_t> marks(static_cast<size_t>(count), 0);
    for (int64_t i = 0; i < set; ++i) marks[static_cast<size_t>(2 * i % count + (2 * i >= count))] = 1;
    return rows_to_exchange(from_vector(marks, {count}).to(boolean));
  };
  EXPECT_EQ(exchanged(5, 10), (std::vector<int64_t>{0, 2, 4, 6, 8}));
  EXPECT_EQ(exchanged(6, 10), std::nullopt);
  EXPECT_EQ(exchanged(0, 10), std::vector<int64_t>{});
}

TEST(RowExchange, TakesAndPutsRows) {
  const int64_t count = 513, width = 131;
  Generator generator(fresh_seed());
  const Tensor from = randn({count, width}, generator), to = randn({count, width}, generator);
  const std::vector<float> before = to.to_vector<float>(), source = from.to_vector<float>();
  std::vector<int64_t> rows;
  for (int64_t row = 3; row < count; row += 1 + row % 4) rows.push_back(row);
  const Tensor packed = take_rows(from, rows);
  ASSERT_EQ(packed.shape(), (Shape{static_cast<int64_t>(rows.size()), width}));
  put_rows(packed, rows, to);
  const std::vector<float> after = to.to_vector<float>();
  size_t next = 0;
  for (int64_t row = 0; row < count; ++row) {
    const bool moved = next < rows.size() && rows[next] == row;
    next += moved;
    for (int64_t k = row * width; k < (row + 1) * width; ++k)
      ASSERT_EQ(after[static_cast<size_t>(k)], (moved ? source : before)[static_cast<size_t>(k)]) << row;
  }
}

}  // namespace
}  // namespace tern::dist
