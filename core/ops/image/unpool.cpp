#include "tern/core/ops/image/unpool.h"

#include <cmath>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/scatter_call.h"
#include "tern/core/tensor/tensor_impl.h"

namespace tern {
namespace {

/// Writes values [batch, channels, n] into zeros [batch, channels, pixels]. Of several values at one place the last
/// stays, and all of them get the place's gradient, as in PyTorch: max pooling's windows overlap in it, so that they
/// are one value.
struct Unpool final : TwiceDifferentiable<Unpool> {
  static constexpr const char* kName = "max_unpool";
  Saved places_;

  Tensor forward(const Tensor& values, const Tensor& places, int64_t pixels, const char* op) {
    places_ = places;
    const Tensor y = zeros({values.size(0), values.size(1), pixels}, values.options());
    detail::write(y, detail::scatter_call(op, kernels::ScatterMode::kAssign, y, 2, places, values));
    return y;
  }
  Grads backward(const Tensor& dy) override { return {gather(dy, 2, places_.get()), {}}; }
};

Tensor max_unpool_of(const char* op, int dims, const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                     const MaxUnpoolOptions& options) {
  const bool batched = x.dim() == dims + 2;
  TERN_CHECK((batched || x.dim() == dims + 1) && is_floating(x.dtype()), op, ": x must be floating [batch, channels, ",
             dims, " spatial dimensions] or without batch, got ", x.describe());
  TERN_CHECK(indices.shape() == x.shape() && indices.dtype() == DType::kInt64, op, ": indices must be int64 ",
             x.shape(), ", got ", indices.describe());
  const std::vector<int64_t> kernels = kernel.of(op, "kernel", dims), padding = options.padding.of(op, "padding", dims),
                             stride = options.stride ? options.stride->of(op, "stride", dims) : kernels;
  detail::check_sizes(op, "kernel", kernels, 1);
  detail::check_sizes(op, "stride", stride, 1);
  detail::check_sizes(op, "padding", padding, 0);
  const Tensor images = batched ? x : x.unsqueeze(0);
  std::vector<int64_t> size = images.shape().vec();
  const std::vector<int64_t>& given = options.size.values();
  TERN_CHECK(given.empty() || static_cast<int>(given.size()) == dims, op, ": size must have ", dims, " numbers, got ",
             given.size());
  for (int d = 0; d < dims; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t least = (size[i + 2] - 1) * stride[i] - 2 * padding[i] + kernels[i];
    size[i + 2] = given.empty() ? least : given[i];
    TERN_CHECK(size[i + 2] > 0 && std::abs(size[i + 2] - least) < stride[i] + (given.empty() ? 1 : 0), op, ": size ", d,
               " must be within less than the stride (", stride[i], ") of ", least, ", got ", size[i + 2]);
  }
  const Tensor places = (batched ? indices : indices.unsqueeze(0)).flatten(2);
  int64_t pixels = 1;
  for (size_t d = 2; d < size.size(); ++d) pixels *= size[d];
  const Tensor flat = Unpool::apply(images.flatten(2), places, pixels, op);
  const Tensor y = detail::has_channels_last(images) ? flat.reshape(size).channels_last() : flat.reshape(size);
  return batched ? y : y.squeeze(0);
}

}  // namespace

Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                    const MaxUnpoolOptions& options) {
  return max_unpool_of("max_unpool1d", 1, x, indices, kernel, options);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                    const MaxUnpoolOptions& options) {
  return max_unpool_of("max_unpool2d", 2, x, indices, kernel, options);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const SpatialSizes& kernel,
                    const MaxUnpoolOptions& options) {
  return max_unpool_of("max_unpool3d", 3, x, indices, kernel, options);
}

}  // namespace tern
