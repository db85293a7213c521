// Dropout over rows: one Philox call per eight columns.

#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/cuda/support/row_dropout.h"
#include "tern/kernels/norm.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 8;  // per Philox call

struct DropoutCall {
  const void* x;
  void* y;
  int64_t rows, cols;
  int64_t row_blocks;  // Philox calls per row
  Divider divider;     // divides by row_blocks
  bool narrow;         // rows * row_blocks < 2^31
  bool vectors;        // x, y and their rows are aligned to 16 bytes
  RowDropout dropout;
};

/// The position of a thread's eight columns.
struct Columns {
  int64_t row, first;
  int count;
};
__device__ inline Columns columns_of(const DropoutCall& call, int64_t block) {
  const int64_t row =
      call.narrow ? static_cast<int64_t>(call.divider.quotient(static_cast<uint32_t>(block))) : block / call.row_blocks;
  const int64_t first = (block - row * call.row_blocks) * kColumns, left = call.cols - first;
  return {row, first, left < kColumns ? static_cast<int>(left) : kColumns};
}

template <class T>
__device__ inline void load_columns(const T* x, const Columns& columns, bool vectors, Vector<T, kColumns>& values) {
  constexpr int kWidth = vector_width<T> < kColumns ? vector_width<T> : kColumns;
  if (vectors) {
#pragma unroll
    for (int j = 0; j < kColumns; j += kWidth) {
      const auto loaded = load_vector<kWidth>(x + j);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values.v[j + i] = loaded.v[i];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (j < columns.count) values.v[j] = load_vector<1>(x + j).v[0];
  }
}

template <class T>
__device__ inline void store_columns(T* y, const Columns& columns, bool vectors, const Vector<T, kColumns>& values) {
  constexpr int kWidth = vector_width<T> < kColumns ? vector_width<T> : kColumns;
  if (vectors) {
#pragma unroll
    for (int j = 0; j < kColumns; j += kWidth) {
      Vector<T, kWidth> stored;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) stored.v[i] = values.v[j + i];
      store_vector(y + j, stored);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (j < columns.count) store_vector(y + j, Vector<T, 1>{{values.v[j]}});
  }
}

/// A thread computes kBlocks groups of eight columns, kThreads groups apart. All loads are issued before random numbers
/// are drawn.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kThreads) dropout_kernel(const DropoutCall call) {
  using F = ComputeType<T>;
  const int64_t blocks = call.rows * call.row_blocks;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlocks * kThreads + threadIdx.x;
  Vector<T, kColumns> values[kBlocks] = {};
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t block = first + b * kThreads;
    if (block >= blocks) break;
    const Columns columns = columns_of(call, block);
    load_columns(static_cast<const T*>(call.x) + columns.row * call.cols + columns.first, columns, call.vectors,
                 values[b]);
  }
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t block = first + b * kThreads;
    if (block >= blocks) return;
    const Columns columns = columns_of(call, block);
    const auto factors = call.dropout.template factors<F, kColumns>(call.dropout.row(columns.row), columns.first);
    auto product = to_compute(values[b]);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) product.v[j] *= factors.v[j];
    store_columns(static_cast<T*>(call.y) + columns.row * call.cols + columns.first, columns, call.vectors,
                  from_compute<T>(product));
  }
}

}  // namespace

void dropout(Stream stream, ConstView x, Dropout dropout, ConstView row_keys, View y) {
  if (y.numel() == 0) return;
  const int64_t rows = x.rows(), cols = x.cols(), row_blocks = (cols + kColumns - 1) / kColumns;
  const int64_t blocks = rows * row_blocks;
  const bool narrow = blocks <= std::numeric_limits<int32_t>::max();
  const DropoutCall call{.x = x.data,
                         .y = y.data,
                         .rows = rows,
                         .cols = cols,
                         .row_blocks = row_blocks,
                         .divider = narrow ? Divider(static_cast<uint32_t>(row_blocks)) : Divider(),
                         .narrow = narrow,
                         .vectors = aligned16(x.data) && aligned16(y.data) && cols % kColumns == 0,
                         .dropout = RowDropout(dropout, row_keys)};
  dispatch_float(x.dtype, [&]<class T>() {
    constexpr int kBlocks = sizeof(T) == 2 ? 2 : 1;
    const unsigned grid = grid_blocks((blocks + kBlocks * kThreads - 1) / (kBlocks * kThreads));
    launch(dropout_kernel<T, kBlocks>, dim3(grid), dim3(kThreads), 0, stream, call);
  });
}

}  // namespace tern::kernels::cuda
