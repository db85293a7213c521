#include "tern/kernels/cpu/gemm/blocks.h"

#include <cstring>

#include "tern/kernels/cpu/gemm/panels.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Larger blocks read the packed matrix less often, smaller ones share out better.
int64_t rows_per_block(int64_t m) { return m >= 2048 ? 256 : m >= 512 ? 128 : 64; }

/// The same for products of panels.h: few blocks, because each reads the whole matrix, and as many for each thread.
int64_t rows_of_panels(int64_t m) {
  constexpr int64_t kMost = 44 * kRows, kLeast = 8 * kRows;
  const int64_t threads = num_threads();
  const int64_t rounds = ((m + kMost - 1) / kMost + threads - 1) / threads;
  const int64_t share = (m + rounds * threads - 1) / (rounds * threads);
  return std::max((share + kRows - 1) / kRows * kRows, kLeast);
}

/// The last blocks' products have a multiple of this many rows, so that few products serve all numbers of rows.
constexpr int64_t kRowStep = 16;

}  // namespace

bool RowBlocks::suits(DType input, int64_t m, int64_t n, int64_t k) {
  if (n < 16 || k < 16) return false;
  if (has_packed_matmul(input)) return m >= 128;
  return input == DType::kFloat32 && m >= 1024;
}

RowBlocks::RowBlocks(DType input, DType output, bool direct, bool transpose_b, int64_t m, int64_t n, int64_t k,
                     int64_t lda, int64_t ldb, int64_t ldc, RowBlocksOptions options)
    : input_(input),
      output_(direct ? output : DType::kFloat32),
      direct_(direct),
      transpose_b_(transpose_b),
      bias_(options.bias && (options.panels || has_packed_matmul(input))),
      panels_(options.panels),
      m_(m),
      n_(n),
      k_(k),
      lda_(lda),
      ldb_(ldb),
      ldc_(direct ? ldc : n),
      rows_(options.rows ? options.rows : rows_per_block(m)),
      epilogue_bytes_(align_up(options.epilogue_bytes)) {
  if (panels_) {
    if (options.rows == 0) rows_ = rows_of_panels(m);
    packed_bytes_ = align_up(panel_bytes(n, k));
  } else {
    prepare_products();
  }
  // As many full blocks for each thread; the rest is divided among all threads, unless blocks of given rows are
  // required. (sgemm does not guarantee that a row's sums do not depend on the number of rows; for packed products a
  // test does.)
  const int64_t threads = options.rows || !has_packed_matmul(input) ? 1 : num_threads();
  full_ = m / rows_ / threads * threads;
  const int64_t left = m - full_ * rows_, share = (left + threads - 1) / threads;
  last_rows_ = left == 0 ? rows_ : std::min(rows_, (share + kRowStep - 1) / kRowStep * kRowStep);
  blocks_ = full_ + (left + last_rows_ - 1) / last_rows_;
  slots_ = std::min<int64_t>(blocks_, num_threads());
  if (!direct) slot_bytes_ = align_up(rows_ * n * size_of(output_));
  if (has_packed_matmul(input)) {
    main_ = product_of(rows_);
    last_ = product_of(last_rows_);
    if (!last_->same_packing(*main_)) last_ = nullptr;
    packed_bytes_ = align_up(main_->packed_bytes());
    matmul_scratch_ = align_up(std::max(main_->scratch_bytes(), last_ ? last_->scratch_bytes() : 0));
    if (!last_ || left % last_rows_ != 0) padding_bytes_ = input_bytes() + align_up(rows_ * ldc_ * size_of(output_));
  }
  slot_bytes_ += matmul_scratch_ + padding_bytes_ + epilogue_bytes_;
}

void RowBlocks::pack(const void* b, void* memory) const {
  if (panels_)
    pack_panels(transpose_b_, n_, k_, static_cast<const float*>(b), ldb_, static_cast<float*>(memory));
  else if (main_)
    main_->pack(b, memory);
}

std::shared_ptr<const Matmul> RowBlocks::product_of(int64_t rows) const {
  return find_matmul({.input = input_,
                      .output = output_,
                      .transpose_b = transpose_b_,
                      .pack_b = true,
                      .bias = bias_,
                      .m = rows,
                      .n = n_,
                      .k = k_,
                      .lda = lda_,
                      .ldb = ldb_,
                      .ldc = ldc_});
}

int64_t RowBlocks::chain_slot_bytes(std::span<const BlockProduct> products) {
  int64_t bytes = 0;
  for (size_t i = 0; i < products.size(); ++i)
    bytes += products[i].blocks.slot_bytes_ + (i > 0 ? products[i].blocks.input_bytes() : 0);
  return bytes;
}

int64_t RowBlocks::chain_workspace_bytes(std::span<const BlockProduct> products) {
  int64_t bytes = 64 + products.front().blocks.slots_ * chain_slot_bytes(products);
  for (const BlockProduct& product : products) bytes += product.packed ? 0 : product.blocks.packed_bytes_;
  return bytes;
}

void* RowBlocks::compute(int64_t rows, const void* from, const void* b, const float* bias, void* to, const void* packed,
                         char* scratch) const {
  if (!to) to = scratch + matmul_scratch_;
  if (panels_) {
    multiply_panels(rows, n_, k_, static_cast<const float*>(from), lda_, static_cast<const float*>(packed), bias,
                    static_cast<float*>(to), ldc_);
  } else if (!main_) {
    sgemm(false, transpose_b_, rows, n_, k_, 1.0f, static_cast<const float*>(from), lda_, static_cast<const float*>(b),
          ldb_, 0.0f, static_cast<float*>(to), ldc_);
  } else if (rows == rows_) {
    main_->run(from, packed, bias, to, scratch);
  } else if (last_ && rows == last_rows_) {
    last_->run(from, packed, bias, to, scratch);
  } else {
    run_padded(last_ ? *last_ : *main_, last_ ? last_rows_ : rows_, rows, static_cast<const char*>(from), bias,
               static_cast<char*>(to), packed, scratch);
  }
  return to;
}

void RowBlocks::run_padded(const Matmul& product, int64_t product_rows, int64_t rows, const char* from,
                           const float* bias, char* to, const void* packed, char* scratch) const {
  // The copies keep the row strides, so that the same products serve; what comes out of the padding is not used.
  char* padded_a = scratch + slot_bytes_ - epilogue_bytes_ - padding_bytes_;
  char* padded_c = padded_a + input_bytes();
  const int64_t a_row = lda_ * size_of(input_), c_row = ldc_ * size_of(output_);
  std::memset(padded_a, 0, product_rows * a_row);
  for (int64_t r = 0; r < rows; ++r) std::memcpy(padded_a + r * a_row, from + r * a_row, k_ * size_of(input_));
  product.run(padded_a, packed, bias, padded_c, scratch);
  for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * c_row, padded_c + r * c_row, n_ * size_of(output_));
}

}  // namespace tern::kernels::TERN_CPU
