#pragma once
// The common iteration space of several strided operands of one shape.

#include <utility>

#include "tern/kernels/view.h"

namespace tern::kernels {

/// Drops dimensions of size 1, sorts the others by the first operand's strides (largest first) and merges neighbours
/// where every operand allows it. At least one dimension remains.
template <int kOperands>
struct Layout {
  int dims = 0;
  int64_t shape[kMaxDims];
  int64_t strides[kOperands][kMaxDims];

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= shape[d];
    return n;
  }
  int64_t inner() const { return shape[dims - 1]; }
  int64_t inner_stride(int operand) const { return strides[operand][dims - 1]; }
  /// True when the operand's elements are contiguous in iteration order.
  bool is_linear(int operand) const { return dims == 1 && (strides[operand][0] == 1 || shape[0] == 1); }
  /// Offset of the operand's first element of row `row`. A row is the last dimension.
  int64_t row_offset(int operand, int64_t row) const {
    int64_t offset = 0;
    for (int d = dims - 2; d >= 0; --d) {
      offset += row % shape[d] * strides[operand][d];
      row /= shape[d];
    }
    return offset;
  }

  void append(int64_t size, const int64_t* operand_strides) {
    shape[dims] = size;
    for (int k = 0; k < kOperands; ++k) strides[k][dims] = operand_strides[k];
    ++dims;
  }
  void swap_dims(int a, int b) {
    std::swap(shape[a], shape[b]);
    for (int k = 0; k < kOperands; ++k) std::swap(strides[k][a], strides[k][b]);
  }
  /// Stable sort: dimensions of equal stride (broadcast ones) keep their order.
  void sort() {
    for (int i = 1; i < dims; ++i)
      for (int j = i; j > 0 && strides[0][j - 1] < strides[0][j]; --j) swap_dims(j - 1, j);
  }
  void merge() {
    int last = 0;
    for (int d = 1; d < dims; ++d) {
      bool mergeable = true;
      for (int k = 0; k < kOperands; ++k) mergeable &= strides[k][last] == strides[k][d] * shape[d];
      if (mergeable) {
        shape[last] *= shape[d];
      } else {
        ++last;
        shape[last] = shape[d];
      }
      for (int k = 0; k < kOperands; ++k) strides[k][last] = strides[k][d];
    }
    if (dims > 0) dims = last + 1;
  }
  void finish() {
    const int64_t zeros[kOperands] = {};
    if (dims == 0) append(1, zeros);
  }
};

/// `strides[k]` points to operand k's strides.
template <int kOperands>
Layout<kOperands> make_layout(int dims, const int64_t* shape, const int64_t* const (&strides)[kOperands]) {
  Layout<kOperands> layout;
  for (int d = 0; d < dims; ++d) {
    if (shape[d] == 1) continue;
    int64_t steps[kOperands];
    for (int k = 0; k < kOperands; ++k) steps[k] = strides[k][d];
    layout.append(shape[d], steps);
  }
  layout.sort();
  layout.merge();
  layout.finish();
  return layout;
}

}  // namespace tern::kernels
