#pragma once

#include <optional>

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/tensor.h"

namespace tern {

struct MaxUnpoolOptions {
  std::optional<SpatialSizes> stride = {};  // the kernel, if it is not given
  SpatialSizes padding = 0;
  SpatialSizes size = std::vector<int64_t>{};  // of the result, one number for each spatial dimension; unless given
                                               // (size - 1) stride - 2 padding + kernel
};
/// The inverse of max_pool: zeros, and the values at their indices, which max_pool..._with_indices gave for these
/// sizes. Of several values with one index the last is taken, and all get its gradient. Channels stay last in memory if
/// they are. Error where an index is outside of the result (as -1 is), or a given size differs by the stride or more
/// from what it is otherwise.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                    const MaxUnpoolOptions& options = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                    const MaxUnpoolOptions& options = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                    const MaxUnpoolOptions& options = {});

}  // namespace tern
