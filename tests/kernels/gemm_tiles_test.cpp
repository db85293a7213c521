// The division of a product into tiles: depends only on the shape, covers each element once, has enough tiles for
// threads.

#define TERN_CPU cpu_test
#include "tern/kernels/cpu/gemm/tiles.h"

#include <map>
#include <mutex>
#include <tuple>

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

using cpu_test::Tiles;
using Cut = std::map<std::tuple<int64_t, int64_t>, std::tuple<int64_t, int64_t>>;  // position to size

Cut cut_of(int64_t m, int64_t n, int64_t k) {
  Cut cut;
  std::mutex mutex;
  Tiles(m, n, k).run([&](int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t) {
    std::lock_guard<std::mutex> lock(mutex);
    EXPECT_TRUE(cut.emplace(std::tuple(row, col), std::tuple(rows, cols)).second) << "a tile ran twice";
  });
  return cut;
}

using GemmTiles = OnCpu;

TEST_F(GemmTiles, DoNotDependOnTheNumberOfThreads) {
  for (int i = 0; i < 300; ++i) {
    const int64_t m = 1 + below(below(2) ? 200 : 3000), n = 1 + below(below(2) ? 600 : 5000), k = 1 + below(3000);
    SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
    set_num_threads(1);
    const Cut want = cut_of(m, n, k);
    int64_t area = 0, rows_of_first_col = 0;
    for (const auto& [place, size] : want) {
      area += std::get<0>(size) * std::get<1>(size);
      if (std::get<1>(place) == 0) rows_of_first_col += std::get<0>(size);
      EXPECT_LE(std::get<0>(place) + std::get<0>(size), m);
      EXPECT_LE(std::get<1>(place) + std::get<1>(size), n);
    }
    EXPECT_EQ(area, m * n);
    EXPECT_EQ(rows_of_first_col, m);
    for (const int threads : {2, 3, 8, 17, 64}) {
      set_num_threads(threads);
      ASSERT_EQ(cut_of(m, n, k), want) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tern::kernels
