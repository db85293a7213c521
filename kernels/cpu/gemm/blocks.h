#pragma once
// Products cut into blocks of rows, so that what follows a product (bias, activation, conversion) finds each block in
// cache.

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/gemm/onednn.h"
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
  bool panels = false;         // products of panels.h; b is packed in advance (BlockProduct::packed)
};

class RowBlocks;

/// One product of a chain and what it reads besides its rows. bias: fp32 [n], read only with blocks.adds_bias().
/// packed: b as blocks.pack() wrote it, or null.
struct BlockProduct {
  const RowBlocks& blocks;
  const void* b;
  const float* bias;
  const void* packed = nullptr;
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

  /// The memory of run().
  int64_t workspace_bytes() const { return 64 + packed_bytes_ + slots_ * slot_bytes_; }
  /// Whether run() adds the bias, as the product's last step; otherwise it is left to the epilogue.
  bool adds_bias() const { return bias_; }

  /// epilogue(ResultBlock) runs on each block while it is in cache. bias: fp32 [n], read only with adds_bias().
  template <class Epilogue>
  void run(const void* a, const void* b, const float* bias, void* c, void* workspace, const Epilogue& epilogue) const {
    const BlockProduct product{*this, b, bias};
    run_chain({&product, 1}, a, c, workspace, [&](size_t, const ResultBlock& block, void*) { epilogue(block); });
  }

  /// Products one after another on the same rows; what is between them stays in cache. after(i, ResultBlock, next) is
  /// the epilogue of product i: of all but the last it makes the next product's input, `next`, which is the result
  /// itself where product i is direct. a: the first one's, c: the last one's.
  template <class After>
  static void run_chain(std::span<const BlockProduct> products, const void* a, void* c, void* workspace,
                        const After& after);
  static int64_t chain_workspace_bytes(std::span<const BlockProduct> products);

  /// b in the layout that run() reads, of packed_bytes(): 0 without packed products.
  void pack(const void* b, void* memory) const;
  int64_t packed_bytes() const { return packed_bytes_; }
  bool same_packing(const RowBlocks& other) const {
    return panels_ ? other.panels_ : main_ && main_->same_packing(*other.main_);
  }

 private:
  /// Memory of one slot: for each product what it needs itself, and its input unless that is the chain's.
  static int64_t chain_slot_bytes(std::span<const BlockProduct> products);
  int64_t input_bytes() const { return align_up(rows_ * lda_ * size_of(input_)); }

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

  /// One block: from its rows of a to `to` or, without, to scratch memory. Returns where it is.
  void* compute(int64_t rows, const void* from, const void* b, const float* bias, void* to, const void* packed,
                char* scratch) const;
  void run_padded(const Matmul& product, int64_t product_rows, int64_t rows, const char* from, const float* bias,
                  char* to, const void* packed, char* scratch) const;
  std::shared_ptr<const Matmul> product_of(int64_t rows) const;

  DType input_, output_;
  bool direct_, transpose_b_, bias_, panels_;
  int64_t m_, n_, k_, lda_, ldb_, ldc_;
  int64_t rows_, full_ = 0;             // of a full block; the number of those
  int64_t last_rows_ = 0, blocks_ = 0;  // of a block behind them; the number of all
  int64_t slots_ = 0, packed_bytes_ = 0, padding_bytes_ = 0, slot_bytes_ = 0, matmul_scratch_ = 0, epilogue_bytes_ = 0;
  std::shared_ptr<const Matmul> main_, last_;  // null without packed products
};

template <class After>
void RowBlocks::run_chain(std::span<const BlockProduct> products, const void* a, void* c, void* workspace,
                          const After& after) {
  char* const packed = align_up(workspace);
  char* slots = packed;
  for (const BlockProduct& p : products) {
    if (p.packed) continue;
    p.blocks.pack(p.b, slots);
    slots += p.blocks.packed_bytes_;
  }
  const RowBlocks& first = products.front().blocks;
  const int64_t slot_bytes = chain_slot_bytes(products);
  first.for_blocks([&](int64_t slot, int64_t begin, int64_t rows) {
    char *scratch = slots + slot * slot_bytes, *next_packed = packed;
    const void* input = first.input_row(a, begin);
    for (size_t i = 0; i < products.size(); ++i) {
      const auto& [blocks, b, bias, kept] = products[i];
      const void* const matrix = kept ? kept : next_packed;
      const bool last = i + 1 == products.size();
      char* const end = scratch + blocks.slot_bytes_;
      void* const to = last ? blocks.output_row(c, begin) : blocks.direct_ ? end : nullptr;
      void* const result = blocks.compute(rows, input, b, bias, to, matrix, scratch);
      after(i, ResultBlock{begin, rows, result, blocks.ldc_, end - blocks.epilogue_bytes_}, end);
      if (last) break;
      input = end;
      scratch = end + products[i + 1].blocks.input_bytes();
      if (!kept) next_packed += blocks.packed_bytes_;
    }
  });
}

}  // namespace tern::kernels::TERN_CPU
