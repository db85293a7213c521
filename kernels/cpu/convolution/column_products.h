#pragma once
// c = a^T b of matrices with as many rows, as in the gradient of a weight. Included only by kernels/cpu.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/prefetch.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/cpu/simd/register_products.h"
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

  /// The bytes of memory for run().
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

/// The same for few columns, which are read where they are. n: whole vectors. Parts of the rows, of which there are as
/// many as suit the sizes, are summed on their own and then added in order.
class FewColumnProducts {
 public:
  /// Whether the sums share the L2 cache with a block of rows.
  static bool suits(int64_t m, int64_t n) { return m * n <= 16384 && n <= 512; }

  FewColumnProducts(int64_t m, int64_t n, int64_t k)
      : m_(m), n_(n), k_(k), parts_(std::clamp<int64_t>(m * n * k / kPartProducts, 1, std::min(kMaxParts, k))) {
    constexpr int64_t kMinBlock = 2048, kMaxBlock = 12288;  // numbers of a block of rows
    block_ = std::max<int64_t>(std::clamp(4 * m * n, kMinBlock, kMaxBlock) / (m + n), 16);
    for_vectors([&]<int kMaxCount, int kVectors>(int64_t) { steps_ += (m + kMaxCount - 1) / kMaxCount; });
  }

  int64_t bytes() const { return 64 + parts_ * (sums_bytes() + memory_bytes()); }

  /// Replaces c[m, n]; a: [k, m]. b(first, count, memory): where rows [first, first + count) of b are, which may be
  /// written to `memory`, count * n floats.
  template <class Rows>
  void run(const float* a, float* c, void* memory, const Rows& b) const {
    char* const begin = align_up(memory);
    const auto sums = [&](int64_t part) { return reinterpret_cast<float*>(begin + part * sums_bytes()); };
    parallel_for(parts_, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part)
        add_part(a, part, sums(part), reinterpret_cast<float*>(begin + parts_ * sums_bytes() + part * memory_bytes()),
                 b);
    });
    std::copy_n(sums(0), m_ * n_, c);
    for (int64_t part = 1; part < parts_; ++part) add_to(c, sums(part), m_ * n_);
  }

 private:
  static constexpr int64_t kPartProducts = 1 << 21, kMaxParts = 32;

  int64_t sums_bytes() const { return align_up(m_ * n_ * 4); }
  int64_t memory_bytes() const { return align_up(block_ * n_ * 4); }

  /// A block of rows stays in cache until it has met all columns; the next one is loaded meanwhile, in the order of
  /// memory.
  template <class Rows>
  void add_part(const float* a, int64_t part, float* sums, float* memory, const Rows& b) const {
    const int64_t begin = k_ * part / parts_, end = k_ * (part + 1) / parts_;
    for (int64_t first = begin; first < end; first += block_) {
      const int64_t count = std::min(block_, end - first), next = std::min(block_, end - first - count);
      const float *const as = a + first * m_, *const bs = b(first, count, memory);
      Ahead later_a(as + count * m_, next * m_, steps_), later_b(bs + count * n_, bs == memory ? 0 : next * n_, steps_);
      for_vectors([&]<int kMaxCount, int kVectors>(int64_t column) {
        for_rows<kMaxCount>(m_, [&]<int kCount>(int64_t i) {
          later_a.load();
          later_b.load();
          multiply_columns<kCount, kVectors>(as + i, m_, bs + column, n_, count, first > begin, sums + i * n_ + column,
                                             n_);
        });
      });
    }
  }

  /// body.operator()<rows, vectors>(column): twelve sums at a time where that is possible.
  template <class Body>
  void for_vectors(const Body& body) const {
    for (int64_t column = 0; column < n_;) {
      const int64_t vectors = (n_ - column) / kLanes;
      if (vectors == 1) {
        body.template operator()<6, 1>(column);
        column += kLanes;
      } else if (vectors == 2 || vectors == 4) {
        body.template operator()<6, 2>(column);
        column += 2 * kLanes;
      } else {
        body.template operator()<4, 3>(column);
        column += 3 * kLanes;
      }
    }
  }

  const int64_t m_, n_, k_, parts_;
  int64_t block_, steps_ = 0;  // steps_: products of a block
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
