#pragma once
// Products divided into tiles, which threads compute in turn by one single-threaded library call each.

#include <algorithm>
#include <atomic>

#include "tern/kernels/kernel.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {

/// Divides c[m, n], m and n > 0, into tiles. Only the shape decides, so each element is summed in the same order for
/// any number of threads. Measured with oneDNN's sgemm: dividing rows down to 64, and rows of 1,024 elements into
/// pieces, costs at most 5 % of one thread's time; pieces below 256 elements cost more, except where c has few rows.
class Tiles {
 public:
  Tiles(int64_t m, int64_t n, int64_t k) : m_(m), n_(n) {
    constexpr int64_t kRows = 192, kCols = 1024, kFewRows = 64;
    constexpr int64_t kEnoughTiles = 8;  // tiles, so that a thread slowed by other programs delays little
    constexpr int64_t kMin = 1 << 19;    // multiplications per tile: about 5 us
    int64_t down = divide(m, kRows), across = divide(n, kCols);
    const auto cut = [&] {
      rows_ = std::min(m, round_up(divide(m, down)));
      cols_ = std::min(n, round_up(divide(n, across)));
    };
    for (cut(); count() < kEnoughTiles && rows_ * cols_ * k >= 2 * kMin; cut()) {
      if (rows_ >= 2 * kFewRows)
        down *= 2;
      else if (cols_ >= (m <= kFewRows ? 256 : 512))
        across *= 2;
      else
        break;
    }
  }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t count() const { return divide(m_, rows_) * divide(n_, cols_); }
  /// Number of threads that may take part and thus of scratch slots (see FixedThreads).
  int64_t slots() const { return std::min<int64_t>(count(), num_threads()); }

  /// Runs body(row, rows, col, cols, slot) for every tile, on all threads.
  template <class Body>
  void run(const Body& body) const {
    std::atomic<int64_t> next = 0;
    const int64_t all = count(), across = divide(n_, cols_);
    parallel_for(slots(), 1, [&](int64_t slot, int64_t) {
      for (int64_t tile = next++; tile < all; tile = next++) {
        const int64_t row = tile / across * rows_, col = tile % across * cols_;
        body(row, std::min(rows_, m_ - row), col, std::min(cols_, n_ - col), slot);
      }
    });
  }

 private:
  static constexpr int64_t divide(int64_t value, int64_t by) { return (value + by - 1) / by; }
  static constexpr int64_t round_up(int64_t value) { return divide(value, 16) * 16; }

  int64_t m_, n_, rows_ = 0, cols_ = 0;
};

}  // namespace tern::kernels::TERN_CPU
