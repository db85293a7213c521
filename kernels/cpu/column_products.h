#pragma once
// c = a^T b of matrices with as many rows, as in the gradient of a weight. Included only by kernels/cpu/*.cpp.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tern/kernels/cpu/gemm_blocks.h"
#include "tern/kernels/cpu/register_products.h"
#include "tern/kernels/kernel.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// c[m, n] = a[k, m]^T b[k, n]. Blocks of rows come one after another; each is copied in the order in which it is
/// multiplied. In which order an element is summed depends on k alone.
class ColumnProducts {
 public:
  static constexpr int64_t kNumbers = 4 * kPanel;  // columns of b that a task multiplies

  ColumnProducts(int64_t m, int64_t n, int64_t k)
      : m_(m), n_(n), k_(k), strips_((m + kRows - 1) / kRows), threads_(num_threads()) {
    const int64_t blocks = std::max<int64_t>((k + kBlock - 1) / kBlock, 1);
    block_ = (k + blocks - 1) / blocks;
  }

  /// Of memory for run().
  int64_t bytes() const { return 64 + strips_bytes() + threads_ * slot_bytes(); }

  /// Adds to c, or replaces it. Rows of c have room for whole vectors. write_panels(first, count, begin, numbers, to)
  /// writes columns [begin, begin + numbers) of rows [first, first + count) of b: to[panel][row][kPanel], the last
  /// panel with zeros behind them.
  template <class WritePanels>
  void run(const float* a, int64_t lda, bool add, float* c, int64_t ldc, void* memory,
           const WritePanels& write_panels) const {
    auto* const strips = reinterpret_cast<float*>(align_up(memory));
    char* const slots = reinterpret_cast<char*>(strips) + strips_bytes();
    for (int64_t first = 0; first < k_; first += block_) {
      const int64_t count = std::min(block_, k_ - first);
      write_strips(a + first * lda, lda, count, strips);
      add_block(strips, first, count, add || first > 0, c, ldc, slots, write_panels);
    }
  }

 private:
  static constexpr int64_t kBlock = 256;  // rows whose numbers are multiplied while they are in cache
  static constexpr int64_t kStrips = 64;  // of a task: 384 columns of a

  int64_t strips_bytes() const { return align_up(strips_ * kRows * block_ * 4); }
  int64_t slot_bytes() const { return align_up(kNumbers * block_ * 4); }

  /// strips: [strips of a's columns][rows][kRows].
  void write_strips(const float* a, int64_t lda, int64_t count, float* strips) const {
    parallel_for(count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* const from = a + r * lda;
        float* to = strips + r * kRows;
        int64_t c = 0;
        for (; c + kRows <= m_; c += kRows, to += count * kRows) std::memcpy(to, from + c, kRows * 4);
        for (int64_t i = 0; c + i < m_; ++i) to[i] = from[c + i];
      }
    });
  }

  template <class WritePanels>
  void add_block(const float* strips, int64_t first, int64_t count, bool add, float* c, int64_t ldc, char* slots,
                 const WritePanels& write_panels) const {
    const int64_t groups = (n_ + kNumbers - 1) / kNumbers, parts = (strips_ + kStrips - 1) / kStrips;
    std::atomic<int64_t> next = 0;
    parallel_for(std::min(groups * parts, threads_), 1, [&](int64_t slot, int64_t) {
      auto* const panels = reinterpret_cast<float*>(slots + slot * slot_bytes());
      for (int64_t task = next++; task < groups * parts; task = next++) {
        const int64_t begin = task / parts * kNumbers, numbers = std::min(kNumbers, n_ - begin);
        const int64_t column = task % parts * kStrips * kRows, columns = std::min(kStrips * kRows, m_ - column);
        write_panels(first, count, begin, numbers, panels);
        for (int64_t k = 0; k < numbers; k += kPanel)
          for_rows(columns, [&]<int kCount>(int64_t i) {
            const float *const strip = strips + (column + i) * count, *const panel = panels + k * count;
            float* const to = c + (column + i) * ldc + begin + k;
            if (numbers - k > kLanes)
              multiply_columns<kCount>(strip, kRows, panel, kPanel, count, add, to, ldc);
            else
              multiply_columns<kCount, 1>(strip, kRows, panel, kPanel, count, add, to, ldc);
          });
      }
    });
  }

  const int64_t m_, n_, k_, strips_, threads_;
  int64_t block_;
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
