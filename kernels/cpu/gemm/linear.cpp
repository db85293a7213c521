#include "tern/kernels/cpu/gemm/epilogue.h"
#include "tern/kernels/cpu/gemm/plan.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/gemm.h"

namespace tern::kernels::TERN_CPU {
namespace {

ConstView as_matrix(const ConstView& v) {
  const int64_t shape[] = {v.rows(), v.cols()}, strides[] = {v.cols(), 1};
  return ConstView(v.data, v.dtype, 2, shape, strides);
}

/// Rows per block of the activation's backward: at most 64 blocks, whatever the number of threads.
int64_t backward_rows(int64_t rows) { return std::max<int64_t>(16, (rows + 63) / 64); }
int64_t backward_blocks(int64_t rows) { return (rows + backward_rows(rows) - 1) / backward_rows(rows); }

template <class T>
void backward_block(int64_t begin, int64_t end, int64_t cols, const T* dy, const T* pre, Activation activation, T* dpre,
                    ComputeType<T>* sums) {
  using F = ComputeType<T>;
  F dy_buffer[kTile], pre_buffer[kTile], result[kTile];
  if (sums) std::fill_n(sums, cols, F(0));
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t j = 0; j < cols; j += kTile) {
      const int64_t n = std::min(kTile, cols - j), at = r * cols + j;
      const F* gradient = widen(dy + at, dy_buffer, n);
      if (activation != Activation::kNone) {
        const F* input = widen(pre + at, pre_buffer, n);
        if (activation == Activation::kGelu)
          for (int64_t i = 0; i < n; ++i) result[i] = gradient[i] * Gelu().derivative(input[i]);
        else
          for (int64_t i = 0; i < n; ++i) result[i] = math::select(input[i] <= F(0), F(0), gradient[i]);
        narrow(result, dpre + at, n);
        gradient = result;
      }
      if (sums) add_to(sums + j, gradient, n);
    }
  }
}

}  // namespace

int64_t linear_workspace(Stream stream, ConstView x, ConstView weight, View) {
  const LinearPlan plan(x, weight);
  if (plan.rows == 0 || plan.out == 0) return 0;
  if (plan.blocks) return 64 + plan.bias_bytes() + plan.row_blocks().workspace_bytes();
  return 64 + plan.bias_bytes() + plan.product_bytes() +
         gemm_workspace(stream, false, true, as_matrix(x), weight, plan.product(nullptr));
}

void linear_forward(Stream stream, ConstView x, ConstView weight, ConstView bias, Activation activation, View pre,
                    View y, void* workspace) {
  const LinearPlan plan(x, weight);
  if (plan.rows == 0 || plan.out == 0) return;
  dispatch_float(plan.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    char* memory = align_up(workspace);
    F* const bias_buffer = reinterpret_cast<F*>(memory);
    const F* wide = wide_bias<F>(bias, bias_buffer);
    memory += plan.bias_bytes();
    T* kept = pre ? pre.as<T>() : nullptr;
    // left_bias: what the product has not added itself.
    const auto finish = [&](int64_t begin, int64_t rows, const void* result, int64_t stride, const F* left_bias) {
      if (!left_bias && !kept && activation == Activation::kNone && !plan.wide) return;
      finish_rows<T, F>(rows, plan.out, static_cast<const F*>(result), stride, left_bias, activation,
                        kept ? kept + begin * plan.out : nullptr, y.as<T>() + begin * plan.out);
    };
    if constexpr (std::is_same_v<F, float>) {
      if (plan.blocks) {
        const RowBlocks blocks = plan.row_blocks();
        const float* const left_bias = blocks.adds_bias() ? nullptr : wide;
        return blocks.run(
            x.data, weight.data, or_zeros(wide, plan.out, bias_buffer), kept ? pre.data : y.data, memory,
            [&](const ResultBlock& block) { finish(block.begin, block.rows, block.result, block.stride, left_bias); });
      }
    }
    void* product = plan.wide ? memory : kept ? pre.data : y.data;
    gemm(stream, false, true, 1, as_matrix(x), weight, 0, plan.product(product), memory + plan.product_bytes());
    parallel_for(plan.rows, std::max<int64_t>(1, 16384 / plan.out), [&](int64_t begin, int64_t end) {
      finish(begin, end - begin, static_cast<F*>(product) + begin * plan.out, plan.out, wide);
    });
  });
}

int64_t linear_activation_backward_workspace(Stream, ConstView dy) {
  return backward_blocks(dy.rows()) * dy.cols() * 8 + 64;
}

void linear_activation_backward(Stream, ConstView dy, ConstView pre, Activation activation, View dpre, View dbias,
                                void* workspace) {
  const int64_t rows = dy.rows(), cols = dy.cols(), blocks = backward_blocks(rows);
  if (cols == 0 || (activation == Activation::kNone && !dbias)) return;
  dispatch_float(dy.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* sums = reinterpret_cast<F*>(align_up(workspace));
    parallel_for(rows, backward_rows(rows), [&](int64_t begin, int64_t end) {
      F* block_sums = dbias ? sums + begin / backward_rows(rows) * cols : nullptr;
      backward_block<T>(begin, end, cols, dy.as<T>(), pre ? pre.as<T>() : nullptr, activation,
                        dpre ? dpre.as<T>() : nullptr, block_sums);
    });
    if (!dbias) return;
    dispatch_float(dbias.dtype, [&]<class B>() {
      parallel_for(cols, kTile, [&](int64_t begin, int64_t end) {
        F total[kTile] = {};
        for (int64_t b = 0; b < blocks; ++b) add_to(total, sums + b * cols + begin, end - begin);
        narrow(total, dbias.as<B>() + begin, end - begin);
      });
    });
  });
}

int64_t linear_weight_backward_workspace(Stream stream, ConstView dy, ConstView x, View dweight) {
  return std::max(linear_activation_backward_workspace(stream, dy),
                  gemm_workspace(stream, true, false, dy, x, dweight));
}

void linear_weight_backward(Stream stream, ConstView dy, ConstView x, View dweight, View dbias, void* workspace) {
  linear_activation_backward(stream, dy, {}, Activation::kNone, {}, dbias, workspace);
  gemm(stream, true, false, 1, dy, x, 0, dweight, workspace);
}

}  // namespace tern::kernels::TERN_CPU
