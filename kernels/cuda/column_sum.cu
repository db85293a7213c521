// Sums of a matrix's columns in two stages: groups of rows, then the groups' sums.

#include <algorithm>

#include "tern/kernels/cuda/support/column_sums.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kAhead = 4;     // rows of which a thread has the loads under way
constexpr int kRunRows = 64;  // rows that a thread adds up before they join its total

/// How a matrix is cut: `lanes` threads (a power of two) lie along the columns, a vector each, the others along the
/// rows. The shape alone decides.
struct Cut {
  int lanes;
  int64_t tiles, rows_of_part, parts;
};

template <class T>
Cut choose_cut(int64_t rows, int64_t cols) {
  const int64_t vectors = std::max<int64_t>(1, ceil_div(cols, vector_width<T>));
  Cut cut{1, 0, 0, 0};
  while (cut.lanes < vectors && cut.lanes < kWarpSize) cut.lanes *= 2;
  cut.tiles = ceil_div(vectors, cut.lanes);
  const int64_t steps = ceil_div(rows, kRowThreads / cut.lanes * kAhead);  // of all the rows of a block at once
  const int64_t parts = std::max<int64_t>(1, std::min(ceil_div(2 * kMaxParts, cut.tiles), steps));
  cut.rows_of_part = std::max<int64_t>(1, ceil_div(rows, parts));
  cut.parts = ceil_div(rows, cut.rows_of_part);
  return cut;
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    column_parts_kernel(const T* x, int64_t rows, int64_t cols, const Cut cut, ComputeType<T>* parts) {
  using F = ComputeType<T>;
  constexpr int kWidth = vector_width<T>;
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
        Vector<T, kWidth> raw[kAhead] = {};
#pragma unroll
        for (int a = 0; a < kAhead; ++a)
          if (row + a * height < end) raw[a] = load_columns(x + (row + a * height) * cols, column, cols);
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const Sums values = to_compute(raw[a]);
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

}  // namespace

int64_t column_sum_workspace(Stream, int64_t rows, int64_t cols, DType dtype) {
  return dispatch_float(dtype, [&]<class T>() -> int64_t {
    return choose_cut<T>(rows, cols).parts * cols * static_cast<int64_t>(sizeof(ComputeType<T>));
  });
}

void column_sum(Stream stream, ConstView x, bool accumulate, void* workspace, View y) {
  const int64_t rows = x.rows(), cols = x.cols();
  if (cols == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const parts = static_cast<F*>(workspace);
    const Cut cut = choose_cut<T>(rows, cols);
    if (cut.parts > 0)
      launch(column_parts_kernel<T>, dim3(static_cast<unsigned>(cut.tiles), static_cast<unsigned>(cut.parts)),
             kRowThreads, 0, stream, x.as<T>(), rows, cols, cut, parts);
    add_parts<F>(stream, {parts, y.data, y.dtype}, {}, cut.parts, cols, cols, accumulate);
  });
}

}  // namespace tern::kernels::cuda
