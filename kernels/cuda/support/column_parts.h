#pragma once
// First stage of column sums of a matrix: partial sums over groups of rows of terms that the caller computes from the
// elements. The second stage is in column_sums.h.

#include <algorithm>

#include "tern/kernels/cuda/support/column_sums.h"

namespace tern::kernels::cuda {

inline constexpr int kRunRows = 64;  // rows that a thread adds before adding them to its total

/// The division of a matrix: `lanes` threads (a power of two) along the columns, one vector each, and the other threads
/// along the rows. Depends only on the shape.
struct ColumnCut {
  int lanes;
  int64_t tiles, rows_of_part, parts;

  template <class T>
  int64_t workspace_bytes(int64_t cols) const {
    return parts * cols * static_cast<int64_t>(sizeof(ComputeType<T>));
  }
};

/// `ahead`: number of rows that a thread loads at a time.
template <class T>
ColumnCut choose_column_cut(int64_t rows, int64_t cols, int ahead) {
  const int64_t vectors = std::max<int64_t>(1, ceil_div(cols, vector_width<T>));
  ColumnCut cut{1, 0, 0, 0};
  while (cut.lanes < vectors && cut.lanes < kWarpSize) cut.lanes *= 2;
  cut.tiles = ceil_div(vectors, cut.lanes);
  const int64_t steps = ceil_div(rows, kRowThreads / cut.lanes * ahead);  // of all rows that a block loads at a time
  const int64_t parts = std::max<int64_t>(1, std::min(ceil_div(2 * kMaxParts, cut.tiles), steps));
  cut.rows_of_part = std::max<int64_t>(1, ceil_div(rows, parts));
  cut.parts = ceil_div(rows, cut.rows_of_part);
  return cut;
}

/// Terms has an element type T; kAhead; Raw, the data that a thread loads of a row; load(row, column); and value(raw,
/// row, column), the vector of terms at that position. Values for columns outside the matrix are unspecified.
template <class Terms>
__global__ void __launch_bounds__(kRowThreads)
    column_parts_kernel(const Terms terms, int64_t rows, int64_t cols, const ColumnCut cut,
                        ComputeType<typename Terms::T>* parts) {
  using F = ComputeType<typename Terms::T>;
  constexpr int kWidth = vector_width<typename Terms::T>, kAhead = Terms::kAhead;
  using Sums = Vector<F, kWidth>;
  TERN_SHARED(F, shared, [kRowThreads][kWidth]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cut.lanes, height = kRowThreads / cut.lanes;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * cut.lanes + lane) * kWidth;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * cut.rows_of_part;
  const int64_t end = begin + cut.rows_of_part < rows ? begin + cut.rows_of_part : rows;
  Sums total = {};
  if (column < cols) {
    int64_t row = begin + thread / cut.lanes;
    while (row < end) {
      Sums run = {};
      for (int done = 0; done < kRunRows && row < end; done += kAhead, row += kAhead * height) {
        typename Terms::Raw raw[kAhead] = {};
#pragma unroll
        for (int a = 0; a < kAhead; ++a)
          if (row + a * height < end) raw[a] = terms.load(row + a * height, column);
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (row + a * height >= end) continue;
          const Sums values = terms.value(raw[a], row + a * height, column);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) run.v[k] += values.v[k];
        }
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) total.v[k] += run.v[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) shared[thread][k] = total.v[k];
  for (int half = height / 2; half > 0; half /= 2) {
    block_barrier();
    if (thread / cut.lanes >= half) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) shared[thread][k] += shared[thread + half * cut.lanes][k];
  }
  if (thread >= cut.lanes || column >= cols) return;
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    if (column + k < cols) store_one(parts + blockIdx.y * cols + column + k, shared[thread][k]);
}

/// y[j] (+)= sum over rows of the terms in column j; at least one row. workspace: cut.workspace_bytes().
template <class Terms>
void sum_columns(Stream stream, const Terms& terms, int64_t rows, int64_t cols, bool accumulate, void* workspace,
                 const View& y) {
  using F = ComputeType<typename Terms::T>;
  F* const parts = static_cast<F*>(workspace);
  const ColumnCut cut = choose_column_cut<typename Terms::T>(rows, cols, Terms::kAhead);
  if (cut.parts > 0)
    launch(column_parts_kernel<Terms>, dim3(grid_blocks(cut.tiles), static_cast<unsigned>(cut.parts)), kRowThreads, 0,
           stream, terms, rows, cols, cut, parts);
  add_parts<F>(stream, {parts, y.data, y.dtype}, {}, cut.parts, cols, cols, accumulate);
}

}  // namespace tern::kernels::cuda
