#pragma once
// Batch normalisation (Ioffe & Szegedy, arXiv:1502.03167) of the columns of a matrix: x [rows, channels], where a row
// is a pixel of an image with its channels last, or an item. In parts, so that several processes can exchange the sums
// in between. Numbers of channels are fp32 (fp64 of fp64). All views are contiguous.

#include "tern/kernels/image_activation.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// Bytes of workspace for batch_norm_statistics and batch_norm_backward_sums.
TERN_KERNEL(int64_t, batch_norm_workspace, Stream stream, int64_t rows, int64_t channels, DType dtype);
/// mean and squares: [channels], of each column its mean and the sum of the squared differences from it. At least one
/// row.
TERN_KERNEL(void, batch_norm_statistics, Stream stream, ConstView x, View mean, View squares, void* workspace);

/// How many values a channel has: those of all processes together, `count` [1], or where that is absent `rows`.
struct BatchNormCount {
  int64_t rows = 0;
  ConstView count = {};
};
/// The running statistics, [channels] with any stride and of any floating dtype; both may be absent.
struct BatchNormRunning {
  View mean, variance;
  double momentum = 0;  // running += momentum * (the batch's - running)
};
/// rstd = 1 / sqrt(squares / count + eps) and scale = rstd * weight. weight: [channels] with any stride and of any
/// floating dtype; it may be absent, and then so is scale. The running variance takes squares / (count - 1).
TERN_KERNEL(void, batch_norm_numbers, Stream stream, ConstView mean, ConstView squares, const BatchNormCount& count,
            ConstView weight, double eps, View rstd, View scale, const BatchNormRunning& running);

/// What the passes over the images do with each column: z = (x - mean) * scale + shift. All [channels]; shift may be
/// absent.
struct BatchNormMap {
  ConstView mean, scale, shift;
  ImageActivation activation = ImageActivation::kNone;
};

/// y = activation(z + residual). residual: of x's shape and dtype, or absent. y: like x.
TERN_KERNEL(void, batch_norm_apply, Stream stream, ConstView x, const BatchNormMap& map, ConstView residual, View y);

/// The gradient of z: g = dy * activation'(z + residual). For the slope of kRelu, with or without a residual, the
/// result y may be given; it must be given if there was a residual, and is absent for all other activations.
/// sums: [2, channels], of each column the sum of g and that of g * (x - mean), in a fixed order. g: like x and not dy,
/// or absent.
TERN_KERNEL(void, batch_norm_backward_sums, Stream stream, ConstView dy, ConstView y, ConstView x,
            const BatchNormMap& map, View sums, View g, void* workspace);
/// What follows from those sums, [channels] each; offset and slope may be absent, as may weight and bias, the gradients
/// of the parameters, which are of any floating dtype.
struct BatchNormGradients {
  View weight, bias, offset, slope;
};
/// weight = sums[1] * rstd, bias = sums[0]; offset = -scale * total[0] / count, slope = -scale * rstd^2 * total[1] /
/// count. sums: of this process; total: of all; [2, channels] each.
TERN_KERNEL(void, batch_norm_gradients, Stream stream, ConstView sums, ConstView total, const BatchNormCount& count,
            ConstView rstd, ConstView scale, const BatchNormGradients& results);
/// dx = scale * g + offset + slope * (x - mean), where g = dy * activation'(z). offset, slope: [channels]; both absent,
/// if the statistics are not those of x. x may be absent if neither they nor the activation read it. dx may be dy.
TERN_KERNEL(void, batch_norm_backward_apply, Stream stream, ConstView dy, ConstView x, const BatchNormMap& map,
            ConstView offset, ConstView slope, View dx);

}  // namespace tern::kernels
