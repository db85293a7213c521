#pragma once
// How a linear layer is computed.

#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/gemm/epilogue.h"
#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/view.h"

namespace tern::kernels::TERN_CPU {

/// In blocks of rows, or by gemm (into fp32 memory when y has 16 bits).
struct LinearPlan {
  bool blocks;
  int64_t rows, in, out;
  DType dtype;
  bool wide;    // products need separate fp32 memory
  bool panels;  // the weight was packed in advance, for products of Tern's own

  /// packed: the weight is packed in advance, if it can be.
  LinearPlan(const ConstView& x, const ConstView& weight, bool packed = false)
      : LinearPlan(x.dtype, x.rows(), weight.shape[0], x.cols(), packed) {}
  LinearPlan(DType type, int64_t count, int64_t to, int64_t from, bool packed)
      : rows(count),
        in(from),
        out(to),
        dtype(type),
        wide(is_low_precision(type)),
        panels(packed && kOwnIsFaster && type == DType::kFloat32 && count >= kPanelRows && to >= 16 && from >= 16) {
    const bool supported = dtype == DType::kFloat32 || has_packed_matmul(dtype);
    blocks = panels || (supported && RowBlocks::suits(dtype, rows, out, in));
  }
  /// Blocks that go to y, or to fp32 memory when y has 16 bits.
  RowBlocks row_blocks() const { return row_blocks(true, in); }
  /// The same for a weight that is stored as [in, out] unless transpose_b, with rows ldb apart.
  RowBlocks row_blocks(bool transpose_b, int64_t ldb) const {
    return RowBlocks(dtype, dtype, !wide, transpose_b, rows, out, in, in, ldb, out, {.bias = true, .panels = panels});
  }
  /// For an epilogue that writes all results itself; it has `epilogue_bytes` of memory. block_rows: 0, or the rows of a
  /// block.
  RowBlocks scratch_blocks(int64_t epilogue_bytes, int64_t block_rows = 0) const {
    return RowBlocks(dtype, dtype, false, true, rows, out, in, in, in, out,
                     {.bias = true, .rows = block_rows, .epilogue_bytes = epilogue_bytes, .panels = panels});
  }
  /// Fewer rows are better shared out by columns.
  static constexpr int64_t kPanelRows = 64;
  int64_t bias_bytes() const { return align_up(out * 8); }
  View product(void* data) const {
    const int64_t shape[] = {rows, out}, strides[] = {out, 1};
    return View(data, wide ? DType::kFloat32 : dtype, 2, shape, strides);
  }
  int64_t product_bytes() const { return wide ? align_up(rows * out * 4) : 0; }
};

}  // namespace tern::kernels::TERN_CPU
