#pragma once
// What the tests of the row kernels and reductions share: the same results under every schedule, and bytes moved.

#include <algorithm>

#include "tern/tests/simt/schedules.h"

namespace tern::kernels {

/// run() must leave the same bits in every array under every schedule, and nothing outside a contiguous array's
/// elements; the last run's results stay.
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

/// Bytes that run() moves through global memory.
inline double moved_bytes(const std::function<void()>& run) {
  simt::reset_stats();
  run();
  const simt::Stats stats = simt::stats();
  return static_cast<double>(stats.loaded_bytes + stats.stored_bytes);
}

inline double bytes_of(const Array& array) { return static_cast<double>(array.numel() * size_of(array.dtype())); }

}  // namespace tern::kernels
