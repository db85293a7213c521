#pragma once
// What reductions read: the kept and the reduced dimensions, and elements in the compute type. Included only by
// kernels/cpu.

#include "tern/kernels/cpu/short_rows.h"
#include "tern/kernels/cpu/simd/tile.h"

namespace tern::kernels::TERN_CPU {
namespace {

inline constexpr int64_t kStage = 1024;       // elements in a staging buffer
inline constexpr int64_t kRun = 4096;         // maximum number of elements combined in the compute type
inline constexpr int64_t kBlock = 32768;      // elements per parallel block
inline constexpr int64_t kMaxParts = 256;     // maximum number of parts of one long row
inline constexpr int64_t kMinNeighbours = 8;  // fewer short rows are combined one by one

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Results per parallel block, a multiple of `unit`, each of `length` elements.
constexpr int64_t results_per_block(int64_t length, int64_t unit) {
  return std::max<int64_t>(1, kBlock / std::max<int64_t>(length, 1) / unit) * unit;
}

/// The kept and the reduced dimensions of x, each coalesced. Operand 0 is x, operand 1 the result.
struct Split {
  Layout<2> kept, reduced;
  bool inner_reduced = false;  // x's smallest stride belongs to a reduced dimension

  /// True when rows are combined in blocks of neighbours.
  bool has_short_rows() const {
    const int64_t length = reduced.numel();
    return inner_reduced && length > 0 && length <= kShortRow && kept.inner() >= kMinNeighbours;
  }
};

inline Split split_dims(ConstView x, uint32_t dims, View y) {
  int64_t result_strides[kMaxDims];
  for (int d = 0; d < x.dims; ++d) result_strides[d] = dims >> d & 1 ? 0 : y.strides[d];
  const Layout<2> all = make_layout(x.dims, x.shape, {x.strides, result_strides});
  Split split;
  for (int d = 0; d < all.dims; ++d) {
    const int64_t strides[] = {all.strides[0][d], all.strides[1][d]};
    split.inner_reduced = strides[1] == 0;
    (split.inner_reduced ? split.reduced : split.kept).append(all.shape[d], strides);
  }
  for (Layout<2>* layout : {&split.kept, &split.reduced}) {
    layout->merge();
    layout->finish();
  }
  return split;
}

/// True when the few rows of this length are divided into parts; then the number of elements of a part.
inline bool is_divided(const Split& split, int64_t length) { return split.kept.numel() < 64 && length >= 2 * kBlock; }
inline int64_t part_of(int64_t length) { return std::max(kBlock, ceil_div(ceil_div(length, kMaxParts), kRun) * kRun); }

/// The memory of x; loads elements in the compute type.
template <class F>
struct Source {
  const void* data;
  DType dtype;
  /// A pointer to n elements from `offset` on: into x, or to `tile` after filling it with them (then n <= kStage).
  const F* load(int64_t offset, int64_t stride, int64_t n, F* tile) const {
    if (is_direct(stride)) return static_cast<const F*>(data) + offset;
    load_tile(dtype, data, offset, stride, n, tile);
    return tile;
  }
  bool is_direct(int64_t stride) const { return dtype == dtype_of<F>() && stride == 1; }
};

/// The columns of a block of short rows.
template <class F>
class ColumnsOfRows {
 public:
  /// n <= kBlockRows rows, x_stride apart from `offset` on.
  void load(const Source<F>& x, const Layout<2>& reduced, int64_t offset, int64_t x_stride, int64_t n) {
    const int64_t length = reduced.numel(), inner = reduced.inner();
    if (reduced.is_linear(0) && x_stride == length) {
      const F* rows = static_cast<const F*>(x.data) + offset;
      if (!x.is_direct(1)) {
        load_tile(x.dtype, x.data, offset, 1, n * length, rows_);
        rows = rows_;
      }
      return rows_to_columns(rows, n, length, columns_);
    }
    for (int64_t k = 0; k < length; ++k) {
      const int64_t at = offset + reduced.row_offset(0, k / inner) + k % inner * reduced.inner_stride(0);
      load_tile(x.dtype, x.data, at, x_stride, n, columns_ + k * kBlockRows<F>);
    }
  }
  const F* column(int64_t c) const { return columns_ + c * kBlockRows<F>; }

 private:
  alignas(64) F rows_[kBlockRows<F> * kShortRow];
  alignas(64) F columns_[kBlockRows<F> * kShortRow];
};

template <class Op, class F>
constexpr bool kTakesBFloat16 = Op::kTakesBFloat16&& std::is_same_v<F, float>;
/// True when bfloat16 is converted in registers, without a staging buffer.
template <class Op, class F>
bool takes_bfloat16(const Source<F>& x, int64_t stride) {
  return kTakesBFloat16<Op, F> && x.dtype == DType::kBFloat16 && stride == 1;
}

/// Results that are neighbours in x and in y.
struct Neighbours {
  int64_t x_offset, x_stride, y_offset, y_stride, count;
};
/// Calls body for the kept elements [begin, end), at most kStage at a time.
template <class Body>
void for_neighbours(const Layout<2>& kept, int64_t begin, int64_t end, const Body& body) {
  const int64_t inner = kept.inner(), x_stride = kept.inner_stride(0), y_stride = kept.inner_stride(1);
  for (int64_t i = begin; i < end;) {
    const int64_t row = i / inner, column = i % inner, n = std::min({kStage, inner - column, end - i});
    body(Neighbours{kept.row_offset(0, row) + column * x_stride, x_stride, kept.row_offset(1, row) + column * y_stride,
                    y_stride, n});
    i += n;
  }
}

/// Calls f with the compute type of a dtype: float, double or int64_t.
template <class Body>
void dispatch_compute(DType dtype, Body&& body) {
  if (dtype == DType::kFloat64)
    body.template operator()<double>();
  else if (is_floating(dtype))
    body.template operator()<float>();
  else
    body.template operator()<int64_t>();
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
