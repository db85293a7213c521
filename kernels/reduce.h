#pragma once
// Reductions. Each sums in a fixed order, so results do not depend on the number of threads.

#include "tern/kernels/base/check.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

enum class Reduction : uint8_t {
  kSum,
  kMean,
  kMax,
  kMin,
  kProduct,
  kSumOfSquares,
  kAll,  // these give bool
  kAny,
  kSumOfMagnitudes,  // these take floats
  kDeviations,       // the sum of the squared differences from the mean
  kLogSumExp         // log(sum(exp(x))), without overflow
};

/// Throws Error when a reduction of floats is given integers or bool.
inline void check_reduction(Reduction reduction, const ConstView& x) {
  TERN_CHECK(reduction < Reduction::kSumOfMagnitudes || is_floating(x.dtype),
             "reduce: this reduction takes floats; convert the tensor with .to(float32)");
}

/// Reduces x over the dimensions whose bit is set in `dims`. y has x's number of dimensions, with size 1 where reduced.
/// 16-bit and fp32 accumulate in fp32 by pairwise blocks, fp64 in fp64, integers and bool in int64 (kSum, kProduct).
/// Any strides. Empty x: sums 0, product 1, mean NaN, log of the sum -inf, all true, any false; the caller must reject
/// max and min, which are NaN when any element is NaN.
/// `workspace` is aligned to 16 bytes and may be null where reduce_workspace returns 0.
TERN_KERNEL(void, reduce, Stream stream, Reduction reduction, ConstView x, uint32_t dims, void* workspace, View y);
/// Bytes of workspace for reduce with the same views.
TERN_KERNEL(int64_t, reduce_workspace, Stream stream, ConstView x, uint32_t dims, View y);

/// index (int64, x's shape with size 1 at `dim`) = position of the first largest (smallest) element along dim.
/// A NaN counts as the largest (smallest), as in PyTorch.
/// `workspace` as in reduce.
TERN_KERNEL(void, arg_extreme, Stream stream, bool largest, ConstView x, int dim, void* workspace, View index);
/// Bytes of workspace for arg_extreme with the same views.
TERN_KERNEL(int64_t, arg_extreme_workspace, Stream stream, ConstView x, int dim, View index);

/// Bytes of workspace for column_sum.
TERN_KERNEL(int64_t, column_sum_workspace, Stream stream, int64_t rows, int64_t cols, DType dtype);
/// y[j] (+)= sum over the rows of a contiguous x[rows, cols], in fp32 in a fixed order. Used for bias gradients.
TERN_KERNEL(void, column_sum, Stream stream, ConstView x, bool accumulate, void* workspace, View y);

/// The result of gradient_norm, in device memory.
struct GradientNorm {
  double sum_of_squares;  // over all tensors, in fp64 from fp32 (or fp64) partial sums of fixed blocks
  int32_t non_finite;     // 1 when any element is infinite or NaN
  int32_t first_bad;      // index of the first tensor with such an element, or -1
};
/// Number of gradient elements per partial sum, on a GPU and on the CPU.
inline constexpr int64_t kGradientNormBlock = 16384, kGradientNormBlockOnCpu = 4096;
/// Bytes of workspace for gradient_norm over `elements` elements in `count` tensors.
TERN_KERNEL(int64_t, gradient_norm_workspace, Stream stream, int64_t elements, int64_t count);
/// Reads `count` contiguous floating tensors once. `*result` is in device memory. ticket: an int32 on the device that
/// is 0 before and after the call; may be null on the CPU and for one tensor of at most kGradientNormBlock elements.
TERN_KERNEL(void, gradient_norm, Stream stream, const ConstView* tensors, int64_t count, void* workspace, void* ticket,
            GradientNorm* result);

/// gradient_norm's result for one block: the sum of squares, which is finite exactly when all its elements are.
struct alignas(16) GradientBlock {
  double sum;
  int64_t tensor;  // index of the block's tensor
};
/// First half of gradient_norm: the results of all tensors' blocks, in order.
TERN_KERNEL(void, gradient_norm_blocks, Stream stream, const ConstView* tensors, int64_t count, GradientBlock* blocks);
/// Second half: the norm of the `count` blocks blocks[order[0]], blocks[order[1]], ... Processes that hold parts of
/// gradients, split between blocks, use it to compute the norm of the whole; with `order` that of the whole tensors'
/// blocks, the bits equal gradient_norm's.
TERN_KERNEL(void, gradient_norm_fold, Stream stream, const GradientBlock* blocks, const int64_t* order, int64_t count,
            GradientNorm* result);

}  // namespace tern::kernels
