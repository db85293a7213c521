// The end of a sub-layer: what its last product gives is added to the residual stream and normalised, block by block.

#include "tern/kernels/cpu/gemm_plan.h"
#include "tern/kernels/cpu/norm_rows.h"
#include "tern/kernels/gemm.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// The epilogue. left_bias: what the product has not added itself.
template <class T>
class End {
 public:
  End(const ResidualNorm& end, int64_t cols, const float* left_bias)
      : end_(end), cols_(cols), left_bias_(left_bias), gamma_(end.gamma), beta_(end.beta), no_dropout_({}, {}) {}

  void operator()(const ResultBlock& block) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      float* const result = static_cast<float*>(block.result) + i * block.stride;
      T* finished = reinterpret_cast<T*>(block.memory);
      if constexpr (std::is_same_v<T, float>) finished = result;
      if (left_bias_ || !std::is_same_v<T, float>)
        finish_rows<T, float>(1, cols_, result, block.stride, left_bias_, Activation::kNone, nullptr, finished);
      const int64_t row = block.begin + i, at = row * cols_;
      T* const norm = end_.norm.as<T>() + at;
      T* const sum = end_.sum ? end_.sum.as<T>() + at : norm;
      add_row(row, cols_, finished, end_.residual.as<T>() + at, no_dropout_, sum);
      float mean, rstd;
      row_statistics(sum, cols_, end_.eps, mean, rstd);
      normalize_row(sum, cols_, mean, rstd, gamma_, beta_, norm);
    }
  }

 private:
  const ResidualNorm& end_;
  int64_t cols_;
  const float* left_bias_;
  Affine<T> gamma_, beta_;
  DropoutFactors no_dropout_;
};

/// Memory of one epilogue: a row in 16 bits.
int64_t row_bytes(const LinearPlan& plan) { return plan.wide ? plan.out * size_of(plan.dtype) : 0; }

}  // namespace

bool linear_norm_pays(Stream, ConstView x, ConstView weight) { return LinearPlan(x, weight).blocks; }

int64_t linear_norm_workspace(Stream, ConstView x, ConstView weight) {
  const LinearPlan plan(x, weight);
  return 64 + plan.bias_bytes() + plan.scratch_blocks(row_bytes(plan)).workspace_bytes();
}

void linear_norm(Stream, ConstView x, ConstView weight, ConstView bias, const ResidualNorm& end, void* workspace) {
  const LinearPlan plan(x, weight);
  char* const memory = align_up(workspace);
  dispatch_blocks(plan.dtype, [&]<class T>() {
    float* const bias_buffer = reinterpret_cast<float*>(memory);
    const float* const wide = wide_bias<float>(bias, bias_buffer);
    const RowBlocks blocks = plan.scratch_blocks(row_bytes(plan));
    blocks.run(x.data, weight.data, or_zeros(wide, plan.out, bias_buffer), nullptr, memory + plan.bias_bytes(),
               End<T>(end, plan.out, blocks.adds_bias() ? nullptr : wide));
  });
}

bool feed_forward_norm_pays(Stream, ConstView x, ConstView weight1, ConstView weight2) {
  return FeedForwardPlan(x, weight1, weight2).blocks();
}

int64_t feed_forward_norm_workspace(Stream, ConstView x, ConstView weight1, ConstView weight2) {
  const FeedForwardPlan plan(x, weight1, weight2);
  return plan.blocks_bytes(plan.second.scratch_blocks(row_bytes(plan.second)));
}

void feed_forward_norm(Stream, ConstView x, ConstView weight1, ConstView bias1, Activation activation,
                       ConstView weight2, ConstView bias2, const ResidualNorm& end, void* workspace) {
  const FeedForwardPlan plan(x, weight1, weight2);
  dispatch_blocks(plan.first.dtype, [&]<class T>() {
    const RowBlocks second = plan.second.scratch_blocks(row_bytes(plan.second));
    run_feed_forward<T>(plan, second, x, weight1, bias1, activation, weight2, bias2, nullptr, workspace,
                        [&](const float* left_bias) { return End<T>(end, plan.second.out, left_bias); });
  });
}

}  // namespace tern::kernels::TERN_CPU
