#pragma once

#include "tern/core/tensor.h"
#include "tern/core/tensor/generator.h"

namespace tern {

/// Dropout as an argument of an op. p in [0, 1]; 0 means none and draws nothing. Without a generator the thread's
/// default is used. row_keys: undefined, or int64 with one entry per row (all dimensions but the last): rows with equal
/// keys get equal masks, so that a packed batch draws the masks of the padded one (kernels/random.h).
struct DropoutOptions {
  double p = 0;
  Generator* generator = nullptr;
  Tensor row_keys = {};
};

/// Zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et al., JMLR 2014).
Tensor dropout(const Tensor& x, const DropoutOptions& options);

/// Zeroes whole channels of x [batch, channels, ...] with probability p and scales the others by 1 / (1 - p) (Tompson
/// et al., arXiv:1411.4280), as PyTorch's dropout1d, dropout2d and dropout3d. row_keys: of the batch.
Tensor feature_dropout(const Tensor& x, const DropoutOptions& options);
/// Stochastic depth (Huang et al., arXiv:1603.09382): zeroes with probability p each sample, the entries of dimension
/// 0, or the whole batch, and scales the others by 1 / (1 - p), as torchvision.ops.stochastic_depth.
enum class StochasticDepthMode : uint8_t { kRow, kBatch };
Tensor stochastic_depth(const Tensor& x, StochasticDepthMode mode, const DropoutOptions& options);
/// Zeroes squares of block_size pixels in each channel (Ghiasi et al., arXiv:1810.12890), so many that a share p of the
/// pixels is about what is lost, and scales what is left by the number of pixels over the number of those left, as
/// torchvision.ops.drop_block2d. x: floating [batch, channels, height, width]; a larger block is as large as the
/// image's shorter side. drop_block3d: cubes, of [batch, channels, depth, height, width]. row_keys are not taken.
Tensor drop_block2d(const Tensor& x, int64_t block_size, const DropoutOptions& options);
Tensor drop_block3d(const Tensor& x, int64_t block_size, const DropoutOptions& options);
/// Sets each element with probability p to the negative limit of SELU, and then scales and shifts all elements so that
/// mean 0 and variance 1 stay so (Klambauer et al., arXiv:1706.02515). p = 1 gives zeros.
Tensor alpha_dropout(const Tensor& x, const DropoutOptions& options);

namespace detail {
/// The generator's next key, for ops that take DropoutOptions. Throws Error when p is outside [0, 1] or NaN.
kernels::Dropout draw(const DropoutOptions& options, const char* op, Device device);
/// Throws Error unless row_keys is undefined or contiguous int64 [rows] on the device.
void check_row_keys(const char* op, const Tensor& row_keys, int64_t rows, Device device);
/// Applies the dropout of this draw; the op's gradient is the same call with the gradient. x is contiguous; row_keys as
/// in DropoutOptions.
Tensor dropout_of(const Tensor& x, const kernels::Dropout& dropout, const Tensor& row_keys);
}  // namespace detail

}  // namespace tern
