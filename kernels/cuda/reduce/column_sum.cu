// Sums of a matrix's columns in two stages: groups of rows, then the groups' sums.

#include "tern/kernels/cuda/support/column_parts.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

/// Terms that are the matrix's elements.
template <class Element>
struct Elements {
  using T = Element;
  using Raw = Vector<T, vector_width<T>>;
  static constexpr int kAhead = 4;
  const T* x;
  int64_t cols;

  __device__ Raw load(int64_t row, int64_t column) const { return load_columns(x + row * cols, column, cols); }
  __device__ auto value(const Raw& raw, int64_t, int64_t) const { return to_compute(raw); }
};

}  // namespace

int64_t column_sum_workspace(Stream, int64_t rows, int64_t cols, DType dtype) {
  return dispatch_float(dtype, [&]<class T>() -> int64_t {
    return choose_column_cut<T>(rows, cols, Elements<T>::kAhead).template workspace_bytes<T>(cols);
  });
}

void column_sum(Stream stream, ConstView x, bool accumulate, void* workspace, View y) {
  const int64_t rows = x.rows(), cols = x.cols();
  if (cols == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    sum_columns(stream, Elements<T>{x.as<T>(), cols}, rows, cols, accumulate, workspace, y);
  });
}

}  // namespace tern::kernels::cuda
