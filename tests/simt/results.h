#pragma once
// Helpers of the tests of row kernels and reductions: equality of results under every schedule, and bytes moved.

#include <algorithm>

#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels {

/// Expects that run() gives the same bits in every array under every schedule and writes nothing outside a contiguous
/// array's elements. The arrays keep the last run's results.
inline void expect_same_for_all_schedules(const std::vector<Array*>& results, const std::function<void()>& run) {
  std::vector<std::vector<char>> first;
  for_each_schedule([&] {
    run();
    for (size_t i = 0; i < results.size(); ++i) {
      if (first.size() <= i) first.push_back(results[i]->bytes());
      EXPECT_TRUE(first[i] == results[i]->bytes()) << "result " << i << " depends on the schedule";
    }
  });
  for (size_t i = 0; i < results.size(); ++i) {
    const ConstView view = results[i]->cview();
    if (!view.is_contiguous()) continue;
    const std::vector<char>& bytes = results[i]->bytes();
    const int64_t begin = static_cast<const char*>(view.data) - bytes.data();
    const int64_t end = begin + view.numel() * size_of(view.dtype);
    const auto touched = [](char byte) { return byte != 0x5a; };
    EXPECT_TRUE(std::none_of(bytes.begin(), bytes.begin() + begin, touched)) << "written before result " << i;
    EXPECT_TRUE(std::none_of(bytes.begin() + end, bytes.end(), touched)) << "written beyond result " << i;
  }
}

/// The number of bytes that run() moves to and from global memory.
inline double moved_bytes(const std::function<void()>& run) {
  simt::reset_stats();
  run();
  const simt::Stats stats = simt::stats();
  return static_cast<double>(stats.loaded_bytes + stats.stored_bytes);
}

inline double bytes_of(const Array& array) { return static_cast<double>(array.numel() * size_of(array.dtype())); }

}  // namespace tern::kernels
