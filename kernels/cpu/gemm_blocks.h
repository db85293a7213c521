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

/// A block's result, for what follows the product: rows `stride` apart.
struct ResultBlock {
  int64_t begin, rows;
  void* result;
  int64_t stride;
  char* memory;  // RowBlocksOptions::epilogue_bytes, 64-byte aligned
};

struct RowBlocksOptions {
  bool bias = false;           // packed products add one, see adds_bias()
  int64_t rows = 0;            // of a block; 0: as many as suit the shape
  int64_t epilogue_bytes = 0;  // of memory that each epilogue has to itself
};

/// c[m, n] = a[m, k] op(b). With packed products (see has_packed_matmul) b is packed once per call and each thread
/// takes blocks of rows; otherwise (fp32 only) each block is one sgemm. In which order an element is summed does not
/// depend on the number of threads; with packed products not on its block either.
class RowBlocks {
 public:
  /// Where blocks beat products without packing, in Tiles: enough rows to share, and b worth packing.
  static bool suits(DType input, int64_t m, int64_t n, int64_t k);

  /// direct: blocks go to c (dtype `output`, row stride ldc); otherwise to fp32 scratch memory, for the epilogue to
  /// move on.
  RowBlocks(DType input, DType output, bool direct, bool transpose_b, int64_t m, int64_t n, int64_t k, int64_t lda,
            int64_t ldb, int64_t ldc, RowBlocksOptions options = {});

  int64_t workspace_bytes() const { return 64 + packed_bytes_ + slots_ * slot_bytes_; }
  /// Whether run() adds the bias, as the product's last step; otherwise it is left to the epilogue.
  bool adds_bias() const { return bias_; }

  /// epilogue(ResultBlock) runs on each block while it is in cache. bias: fp32 [n], read only with adds_bias().
  template <class Epilogue>
  void run(const void* a, const void* b, const float* bias, void* c, void* workspace, const Epilogue& epilogue) const {
    char* const memory = align_up(workspace);
    pack(b, memory);
    for_blocks([&](int64_t slot, int64_t begin, int64_t rows) {
      char* const scratch = memory + packed_bytes_ + slot * slot_bytes_;
      void* const result = compute(rows, input_row(a, begin), b, bias, output_row(c, begin), memory, scratch);
      epilogue(ResultBlock{begin, rows, result, ldc_, scratch + slot_bytes_ - epilogue_bytes_});
    });
  }

  /// Two products on the same rows; what is between them stays in cache. middle(rows, result, row_stride, hidden) makes
  /// of the first's block the second's input, `hidden`, which is `result` when the first is direct.
  template <class Middle, class Epilogue>
  static void run_both(const RowBlocks& first, const RowBlocks& second, const void* a, const void* b, const float* bias,
                       const void* b2, const float* bias2, void* c, void* workspace, const Middle& middle,
                       const Epilogue& epilogue) {
    char* const memory = align_up(workspace);
    char* const memory2 = memory + first.packed_bytes_;
    first.pack(b, memory);
    second.pack(b2, memory2);
    first.for_blocks([&](int64_t slot, int64_t begin, int64_t rows) {
      char* const scratch = memory2 + second.packed_bytes_ + slot * both_slot_bytes(first, second);
      char* const scratch2 = scratch + first.slot_bytes_;
      char* const hidden = scratch2 + second.slot_bytes_;
      void* const to = first.direct_ ? hidden : nullptr;
      void* const result = first.compute(rows, first.input_row(a, begin), b, bias, to, memory, scratch);
      middle(rows, result, first.ldc_, hidden);
      void* const result2 = second.compute(rows, hidden, b2, bias2, second.output_row(c, begin), memory2, scratch2);
      epilogue(ResultBlock{begin, rows, result2, second.ldc_, hidden - second.epilogue_bytes_});
    });
  }
  static int64_t both_workspace_bytes(const RowBlocks& first, const RowBlocks& second) {
    return 64 + first.packed_bytes_ + second.packed_bytes_ + first.slots_ * both_slot_bytes(first, second);
  }

 private:
  static int64_t both_slot_bytes(const RowBlocks& first, const RowBlocks& second) {
    return first.slot_bytes_ + second.slot_bytes_ + align_up(second.rows_ * second.lda_ * size_of(second.input_));
  }

  const void* input_row(const void* a, int64_t row) const {
    return static_cast<const char*>(a) + row * lda_ * size_of(input_);
  }
  /// Null unless blocks go to c.
  void* output_row(void* c, int64_t row) const {
    return direct_ ? static_cast<char*>(c) + row * ldc_ * size_of(output_) : nullptr;
  }

  /// body(slot, first_row, rows) for all blocks.
  template <class Body>
  void for_blocks(const Body& body) const {
    std::atomic<int64_t> next = 0;
    // One task per slot of scratch memory; tasks draw blocks from a counter.
    parallel_for(slots_, 1, [&](int64_t slot, int64_t) {
      for (int64_t block = next++; block < blocks_; block = next++) {
        const bool full = block < full_;
        const int64_t begin = full ? block * rows_ : full_ * rows_ + (block - full_) * last_rows_;
        body(slot, begin, std::min(full ? rows_ : last_rows_, m_ - begin));
      }
    });
  }

  void pack(const void* b, char* memory) const {
    if (main_) main_->pack(b, memory);
  }
  /// One block: from its rows of a to `to` or, without, to scratch memory. Returns where it is.
  void* compute(int64_t rows, const void* from, const void* b, const float* bias, void* to, char* memory,
                char* scratch) const;
  void run_padded(const Matmul& product, int64_t product_rows, int64_t rows, const char* from, const float* bias,
                  char* to, char* memory, char* scratch) const;
  int64_t padded_a_bytes() const { return align_up(rows_ * lda_ * size_of(input_)); }
  std::shared_ptr<const Matmul> product_of(int64_t rows) const;

  DType input_, output_;
  bool direct_, transpose_b_, bias_;
  int64_t m_, n_, k_, lda_, ldb_, ldc_;
  int64_t rows_, full_ = 0;             // of a full block; the number of those
  int64_t last_rows_ = 0, blocks_ = 0;  // of a block behind them; the number of all
  int64_t slots_ = 0, packed_bytes_ = 0, padding_bytes_ = 0, slot_bytes_ = 0, matmul_scratch_ = 0, epilogue_bytes_ = 0;
  std::shared_ptr<const Matmul> main_, last_;  // null without packed products
};

}  // namespace tern::kernels::TERN_CPU
