#pragma once
// Sorting and selecting within rows. The rules determine every result uniquely, so results are the same on every device
// and level. The order is that of sort_key.h: NaN is greatest, -0 equals 0.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// Bytes of workspace for sort_rows; cols < 2^32 - 1 (here and below).
TERN_KERNEL(int64_t, sort_rows_workspace, Stream stream, int64_t rows, int64_t cols, DType dtype);
/// values[r, j] = x[r, index[r, j]], ascending or descending in j; equal elements keep their order. x and values:
/// contiguous [rows, cols] of one dtype; index: contiguous int64. x and values must not overlap.
TERN_KERNEL(void, sort_rows, Stream stream, ConstView x, bool descending, void* workspace, View values, View index);

/// Bytes of workspace for top_k_rows.
TERN_KERNEL(int64_t, top_k_rows_workspace, Stream stream, int64_t rows, int64_t cols, int64_t k, DType dtype);
/// The k <= cols largest (smallest) elements of every row of x [rows, cols]; the first of equal elements are taken.
/// sorted: as sort_rows' first k columns; otherwise in the order of x. values and index: contiguous [rows, k].
TERN_KERNEL(void, top_k_rows, Stream stream, ConstView x, bool largest, bool sorted, void* workspace, View values,
            View index);

/// Which element of a row select_rows takes, as a place in its sorted order: a given one; the lower of the two in the
/// middle, or the first NaN if there is one; the lower in the middle of those that are not NaN (a NaN if all are).
enum class Selection : uint8_t { kPlace, kMedian, kMedianOfNumbers };

/// The place in a row of `cols` elements, of which `numbers` are not NaN.
TERN_HD inline int64_t selected_place(Selection which, int64_t place, int64_t numbers, int64_t cols) {
  if (which == Selection::kPlace) return place;
  if (which == Selection::kMedian) return numbers < cols ? numbers : (cols - 1) / 2;
  return numbers > 0 ? (numbers - 1) / 2 : 0;
}

/// Bytes of workspace for select_rows.
TERN_KERNEL(int64_t, select_rows_workspace, Stream stream, int64_t rows, int64_t cols, DType dtype);
/// values[r] = x[r, index[r]], the element that is at the selected place when the row is sorted as by sort_rows;
/// `place` in [0, cols) is used by kPlace. x: contiguous [rows, cols]; values and index (int64): contiguous [rows, 1].
TERN_KERNEL(void, select_rows, Stream stream, ConstView x, Selection which, int64_t place, void* workspace, View values,
            View index);

/// index[r, j] = the number of elements of sorted[r, :] that are less than values[r, j], or, with `right`, not greater.
/// sorted: ascending, contiguous [rows or 1, cols]; values: contiguous [rows, k] of the same dtype; index: int64.
TERN_KERNEL(void, search_sorted, Stream stream, ConstView sorted, ConstView values, bool right, View index);

/// Sets x [rows, cols] to 0 and then x[r, index[r, j]] = y[r, j]; no index repeats within a row. Indices outside
/// [0, cols) are skipped. All contiguous, x and y of one dtype. It is the gradient of selecting elements of rows.
TERN_KERNEL(void, scatter_rows, Stream stream, ConstView y, ConstView index, View x);

}  // namespace tern::kernels
