#pragma once
// How linear layers and feed-forward networks are computed.

#include "tern/kernels/cpu/gemm_blocks.h"
#include "tern/kernels/cpu/gemm_finish.h"
#include "tern/kernels/view.h"

namespace tern::kernels::TERN_CPU {

/// How a linear layer is computed: in blocks of rows, or by gemm (into fp32 memory when y has 16 bits).
struct LinearPlan {
  bool blocks;
  int64_t rows, in, out;
  DType dtype;
  bool wide;  // products need fp32 memory of their own

  LinearPlan(const ConstView& x, const ConstView& weight)
      : rows(x.rows()), in(x.cols()), out(weight.shape[0]), dtype(x.dtype), wide(is_low_precision(x.dtype)) {
    const bool supported = dtype == DType::kFloat32 || has_packed_matmul(dtype);
    blocks = supported && RowBlocks::suits(dtype, rows, out, in);
  }
  RowBlocks row_blocks() const {
    return RowBlocks(dtype, dtype, !wide, true, rows, out, in, in, in, out, {.bias = true});
  }
  /// For an epilogue that writes all results itself; it has `epilogue_bytes` of memory.
  RowBlocks scratch_blocks(int64_t epilogue_bytes) const {
    return RowBlocks(dtype, dtype, false, true, rows, out, in, in, in, out,
                     {.bias = true, .epilogue_bytes = epilogue_bytes});
  }
  int64_t bias_bytes() const { return align_up(out * 8); }
  View product(void* data) const {
    const int64_t shape[] = {rows, out}, strides[] = {out, 1};
    return View(data, wide ? DType::kFloat32 : dtype, 2, shape, strides);
  }
  int64_t product_bytes() const { return wide ? align_up(rows * out * 4) : 0; }
};

struct FeedForwardPlan {
  LinearPlan first, second;

  FeedForwardPlan(const ConstView& x, const ConstView& weight1, const ConstView& weight2)
      : first(x, weight1), second(hidden(nullptr), weight2) {}

  View hidden(void* data) const {
    const int64_t shape[] = {first.rows, first.out}, strides[] = {first.out, 1};
    return View(data, first.dtype, 2, shape, strides);
  }
  /// Workspace of run_feed_forward(). second_blocks: the second layer's.
  int64_t blocks_bytes(const RowBlocks& second_blocks) const {
    return 64 + first.bias_bytes() + second.bias_bytes() +
           RowBlocks::both_workspace_bytes(first.row_blocks(), second_blocks);
  }
  int64_t hidden_bytes() const { return align_up(first.rows * first.out * size_of(first.dtype)); }
  bool blocks() const { return first.blocks && second.blocks; }
};

/// Both layers block by block. second: the second layer's blocks. make_epilogue(bias2 in fp32, if it is there and the
/// second product does not add it) gives the second's epilogue.
template <class T, class MakeEpilogue>
void run_feed_forward(const FeedForwardPlan& plan, const RowBlocks& second, ConstView x, ConstView weight1,
                      ConstView bias1, Activation activation, ConstView weight2, ConstView bias2, void* y,
                      void* workspace, const MakeEpilogue& make_epilogue) {
  char* memory = align_up(workspace);
  float* const buffer1 = reinterpret_cast<float*>(memory);
  memory += plan.first.bias_bytes();
  float* const buffer2 = reinterpret_cast<float*>(memory);
  memory += plan.second.bias_bytes();
  const float *const wide1 = wide_bias<float>(bias1, buffer1), *const wide2 = wide_bias<float>(bias2, buffer2);
  const RowBlocks first = plan.first.row_blocks();
  const float* const left1 = first.adds_bias() ? nullptr : wide1;
  const auto middle = [&](int64_t rows, const void* result, int64_t stride, void* hidden) {
    finish_rows<T, float>(rows, plan.first.out, static_cast<const float*>(result), stride, left1, activation, nullptr,
                          static_cast<T*>(hidden));
  };
  RowBlocks::run_both(first, second, x.data, weight1.data, or_zeros(wide1, plan.first.out, buffer1), weight2.data,
                      or_zeros(wide2, plan.second.out, buffer2), y, memory, middle,
                      make_epilogue(second.adds_bias() ? nullptr : wide2));
}

}  // namespace tern::kernels::TERN_CPU
