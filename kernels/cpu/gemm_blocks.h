#pragma once
// Products cut into blocks of rows, so that what follows a product (bias, activation, conversion) finds each block in
// cache.

#include <algorithm>
#include <atomic>
#include <memory>

#include "tern/core/check.h"
#include "tern/kernels/cpu/gemm_onednn.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {

constexpr int64_t align_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }
inline char* align_up(void* pointer) {
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(pointer) + 63) / 64 * 64);
}

/// c[m, n] = a[m, k] op(b). With packed products (see has_packed_matmul) b is packed once per call and each thread
/// takes blocks of rows; otherwise (fp32 only) each block is one sgemm. Which element is summed in which order depends
/// on the shape alone, not on the number of threads.
class RowBlocks {
 public:
  /// Where blocks beat one oneDNN call on all threads: enough rows to share, and b worth packing.
  static bool suits(DType input, int64_t m, int64_t n, int64_t k);

  /// direct: blocks go to c (dtype `output`, row stride ldc); otherwise to fp32 scratch memory, for the epilogue to
  /// move on.
  RowBlocks(DType input, DType output, bool direct, bool transpose_b, int64_t m, int64_t n, int64_t k, int64_t lda,
            int64_t ldb, int64_t ldc);

  int64_t workspace_bytes() const { return 64 + packed_bytes_ + padding_bytes_ + slots_ * slot_bytes_; }

  /// epilogue(first_row, rows, result, row_stride) runs on each block while it is in cache. It must not throw.
  template <class Epilogue>
  void run(const void* a, const void* b, void* c, void* workspace, const Epilogue& epilogue) const {
    char* packed = align_up(workspace);
    if (main_) main_->pack(b, packed);
    std::atomic<int64_t> next = 0;
    std::atomic<bool> failed = false;
    // One task per slot of scratch memory; tasks draw blocks from a counter.
    parallel_for(slots_, 1, [&](int64_t slot, int64_t) {
      char* scratch = packed + packed_bytes_ + padding_bytes_ + slot * slot_bytes_;
      for (int64_t block = next++; block < blocks_; block = next++) {
        const int64_t begin = block * rows_, rows = std::min(rows_, m_ - begin);
        const auto [result, stride] = compute(begin, rows, a, b, c, packed, scratch, failed);
        epilogue(begin, rows, result, stride);
      }
    });
    TERN_CHECK(!failed, "gemm [", m_, ", ", k_, "] x [", k_, ", ", n_, "] ", name_of(input_), ": oneDNN failed");
  }

 private:
  struct Result {
    void* data;
    int64_t stride;
  };
  Result compute(int64_t begin, int64_t rows, const void* a, const void* b, void* c, char* packed, char* scratch,
                 std::atomic<bool>& failed) const;
  bool run_padded(int64_t rows, const char* from, char* to, char* packed, char* scratch) const;
  int64_t padded_a_bytes() const;
  std::shared_ptr<const Matmul> product_of(int64_t rows) const;

  DType input_, output_;
  bool direct_, transpose_b_;
  int64_t m_, n_, k_, lda_, ldb_, ldc_;
  int64_t rows_, blocks_,
      last_rows_ = 0;  // last_rows_: rows of the last product, rounded up to what products exist for
  int64_t slots_, packed_bytes_ = 0, padding_bytes_ = 0, slot_bytes_ = 0, matmul_scratch_ = 0;
  std::shared_ptr<const Matmul> main_, last_;  // null without packed products
};

}  // namespace tern::kernels::TERN_CPU
