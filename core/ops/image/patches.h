#pragma once

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/tensor.h"

namespace tern {

struct UnfoldOptions {
  SpatialSizes dilation = 1, padding = 0, stride = 1;
};
/// The windows of a kernel over images as columns (torch.nn.functional.unfold). x: floating [batch, channels, height,
/// width] or [channels, height, width]. Result: [batch, channels * kernel height * kernel width, windows], contiguous.
/// Differentiable any number of times. Error where a window is larger than the padded image.
Tensor unfold(const Tensor& x, const SpatialSizes& kernel, const UnfoldOptions& options = {});
/// The transposed map (torch.nn.functional.fold): images of `size` [height, width], each pixel the sum of the elements
/// of the windows that hold it, which are added in fp32 (fp64 of fp64). columns: what unfold gives for such images.
Tensor fold(const Tensor& columns, const SpatialSizes& size, const SpatialSizes& kernel,
            const UnfoldOptions& options = {});

// Elements moved between channels and other places; of any dtype. Channels stay last in memory if they are.

/// [..., channels * factor^2, height, width] as [..., channels, height * factor, width * factor] (Shi et al.,
/// arXiv:1609.05158), and back.
Tensor pixel_shuffle(const Tensor& x, int64_t factor);
Tensor pixel_unshuffle(const Tensor& x, int64_t factor);
/// [batch, channels, ...] with the channels of `groups` groups in turn (Zhang et al., arXiv:1707.01083).
Tensor channel_shuffle(const Tensor& x, int64_t groups);

}  // namespace tern
