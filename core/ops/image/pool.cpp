#include "tern/core/ops/image/pool.h"

#include <cmath>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/pool.h"

namespace tern {

using detail::image_shape, detail::rows_of;
using kernels::PoolShape;

namespace {

Shape pool_input(const PoolShape& s, int dims) { return image_shape(s.batch, s.channels, s.in, dims); }
Shape pool_output(const PoolShape& s, int dims) { return image_shape(s.batch, s.channels, s.out, dims); }

/// The elements of x [batch, channels, spatial...] at the indices of a pooling, in its order; 0 of a window that holds
/// no element.
Tensor at_indices(const Tensor& x, const Tensor& indices) {
  static_assert(kernels::kNoPlace < 0);
  const Tensor none = zeros({}, indices.options());
  const Tensor taken = gather(x.flatten(2), 2, maximum(indices, none).flatten(2)).reshape(indices.shape());
  return where(lt(indices, none), 0.0, taken);
}

/// dx of a maximum: linear in dy, whose gradient are the elements that were taken.
struct MaxPoolBackward final : TwiceDifferentiable<MaxPoolBackward> {
  static constexpr const char* kName = "max_pool_backward";
  Saved index_;

  Tensor forward(const Tensor& dy, const Constant& index, const PoolShape& shape) {
    index_ = index.tensor;
    const Tensor dx = detail::empty_channels_last(pool_input(shape, dy.dim() - 2), dy.options());
    kernels::max_pool_backward(current_stream(dy.device()), shape, rows_of(dy.channels_last()), rows_of(index.tensor),
                               rows_of(dx));
    return dx;
  }
  Grads backward(const Tensor& g) override { return {at_indices(g, index_.get())}; }
};

/// The indices are the second output.
struct MaxPool final : TwiceDifferentiable<MaxPool> {
  static constexpr const char* kName = "max_pool";
  SavedOutput index_;
  PoolShape shape_;

  std::vector<Tensor> forward(const Tensor& x, const PoolShape& shape) {
    shape_ = shape;
    const Shape size = pool_output(shape, x.dim() - 2);
    const Tensor y = detail::empty_channels_last(size, x.options());
    const Tensor index = detail::empty_channels_last(size, {DType::kInt64, x.device()});
    kernels::max_pool(current_stream(x.device()), shape, rows_of(x.channels_last()), rows_of(y), rows_of(index));
    if (needs_grad(0)) index_.save(index, 1);
    return {y, index};
  }
  Grads backward(const Tensor& dy) override { return {MaxPoolBackward::apply(dy, Constant{index_.get()}, shape_)}; }
};

/// The values alone, where nothing is recorded: the places are two thirds of what a pass writes.
Tensor max_pool_values(const Tensor& x, const PoolShape& shape) {
  const ProfileRange range(MaxPool::kName, RangeKind::kOp);
  const AllocationTag tag(MaxPool::kName);
  const Tensor y = detail::empty_channels_last(pool_output(shape, x.dim() - 2), x.options());
  kernels::max_pool(current_stream(x.device()), shape, rows_of(x.channels_last()), rows_of(y), {});
  const Tensor* const read[] = {&x};
  if (range.recording()) range.count_tensors(read, 1, &y, 1);
  if (anomaly_mode() != Anomaly::kOff) detail::check_anomaly_forward(MaxPool::kName, read, 1, y);
  return y;
}

/// Whether the places are needed.
bool needs_places(const Tensor& x) {
  const Tensor* const read[] = {&x};
  return detail::active_trace() || detail::requires_record(read, 1);
}

/// A mean is linear: its gradient is the transposed map, whose gradient is the mean.
template <bool kTransposed>
struct MeanPoolPass final : TwiceDifferentiable<MeanPoolPass<kTransposed>> {
  static constexpr const char* kName = kTransposed ? "mean_pool_backward" : "mean_pool";
  PoolShape shape_;
  kernels::PoolDivisor divisor_;

  Tensor forward(const Tensor& x, const PoolShape& shape, const kernels::PoolDivisor& divisor) {
    shape_ = shape;
    divisor_ = divisor;
    const int dims = x.dim() - 2;
    const Tensor y =
        detail::empty_channels_last(kTransposed ? pool_input(shape, dims) : pool_output(shape, dims), x.options());
    const auto& pass = kTransposed ? kernels::mean_pool_backward : kernels::mean_pool;  // of one signature
    pass(current_stream(x.device()), shape, divisor, rows_of(x.channels_last()), rows_of(y));
    return y;
  }
  Grads backward(const Tensor& dy) override { return {MeanPoolPass<!kTransposed>::apply(dy, shape_, divisor_)}; }
};
using MeanPool = MeanPoolPass<false>;

/// x with a batch, and whether it had one.
struct Images {
  Tensor x;
  bool batched;
  Images(const char* op, const Tensor& input, int dims) : x(input), batched(input.dim() == dims + 2) {
    TERN_CHECK(batched || x.dim() == dims + 1, op, ": x must be [batch, channels, ", dims,
               " spatial dimensions] or without batch, got ", x.shape());
    TERN_CHECK(is_floating(x.dtype()), op, ": x must be floating, got ", x.dtype());
    if (!batched) x = x.unsqueeze(0);
    for (int d = 2; d < x.dim(); ++d)
      TERN_CHECK(x.size(d) > 0, op, ": a spatial dimension of x is empty: ", input.shape());
  }
  Tensor result(const Tensor& y) const { return batched ? y : y.squeeze(0); }
};

struct PoolSizes {
  const SpatialSizes &kernel, &stride, &padding, &dilation;
  bool ceil_mode;
};

PoolShape pool_shape(const char* op, const Tensor& x, const PoolSizes& sizes) {
  const int dims = x.dim() - 2;
  const std::vector<int64_t> kernel = sizes.kernel.of(op, "kernel", dims);
  const std::vector<int64_t> stride = sizes.stride.of(op, "stride", dims);
  const std::vector<int64_t> padding = sizes.padding.of(op, "padding", dims);
  const std::vector<int64_t> dilation = sizes.dilation.of(op, "dilation", dims);
  detail::check_sizes(op, "kernel", kernel, 1);
  detail::check_sizes(op, "stride", stride, 1);
  detail::check_sizes(op, "padding", padding, 0);
  detail::check_sizes(op, "dilation", dilation, 1);
  PoolShape s{.batch = x.size(0), .channels = x.size(1)};
  for (int i = 0; i < dims; ++i) {
    const auto d = static_cast<size_t>(3 - dims + i), j = static_cast<size_t>(i);
    s.in[d] = x.size(i + 2);
    s.kernel[d] = kernel[j];
    s.stride[d] = stride[j];
    s.padding[d] = padding[j];
    s.dilation[d] = dilation[j];
    TERN_CHECK(padding[j] <= kernel[j] / 2, op, ": padding (", padding[j], ") must be at most half of the kernel (",
               kernel[j], ")");
    const int64_t reach = dilation[j] * (kernel[j] - 1) + 1, padded = s.in[d] + 2 * padding[j];
    // With ceil_mode a window may begin that the padded input does not fill.
    const int64_t beyond = sizes.ceil_mode ? stride[j] - 1 : 0;
    TERN_CHECK(reach <= padded + beyond, op, ": the window reaches over ", reach, " elements of dimension ", i + 2,
               ", more than the padded input has: ", padded, "; x is ", x.shape());
    s.out[d] = (padded - reach + beyond) / stride[j] + 1;
    // A last window must not begin in the padding behind the image.
    if (sizes.ceil_mode && (s.out[d] - 1) * stride[j] >= s.in[d] + padding[j]) --s.out[d];
  }
  return s;
}

PoolShape adaptive_shape(const char* op, const Tensor& x, const SpatialSizes& size) {
  const int dims = x.dim() - 2;
  const std::vector<int64_t> out = size.of(op, "size", dims);
  PoolShape s{.batch = x.size(0), .channels = x.size(1)};
  s.adaptive = true;
  for (int i = 0; i < dims; ++i) {
    const auto d = static_cast<size_t>(3 - dims + i), j = static_cast<size_t>(i);
    s.in[d] = x.size(i + 2);
    s.out[d] = out[j] == -1 ? s.in[d] : out[j];
    TERN_CHECK(s.out[d] >= 0, op, ": a size must be at least 0, or -1 for that of x, got ", out[j]);
  }
  return s;
}

/// The indices are undefined where they are neither wanted nor needed for a gradient.
MaxPoolResult max_pool_of(const char* op, int dims, const Tensor& x, const SpatialSizes& kernel,
                          const MaxPoolOptions& options, bool wants_indices) {
  const Images images(op, x, dims);
  const SpatialSizes& stride = options.stride ? *options.stride : kernel;
  const PoolShape shape =
      pool_shape(op, images.x, {kernel, stride, options.padding, options.dilation, options.ceil_mode});
  if (!wants_indices && !needs_places(images.x)) return {images.result(max_pool_values(images.x, shape)), {}};
  const std::vector<Tensor> both = MaxPool::apply(images.x, shape);
  return {images.result(both[0]), images.result(both[1])};
}

Tensor mean_pool_of(const char* op, int dims, const Tensor& x, const SpatialSizes& kernel,
                    const AvgPoolOptions& options) {
  const Images images(op, x, dims);
  const SpatialSizes &stride = options.stride ? *options.stride : kernel, one = 1;
  const PoolShape shape = pool_shape(op, images.x, {kernel, stride, options.padding, one, options.ceil_mode});
  return images.result(
      MeanPool::apply(images.x, shape, kernels::PoolDivisor{options.count_include_pad, options.divisor_override}));
}

Tensor adaptive_mean_of(const char* op, int dims, const Tensor& x, const SpatialSizes& size) {
  const Images images(op, x, dims);
  return images.result(MeanPool::apply(images.x, adaptive_shape(op, images.x, size), kernels::PoolDivisor{}));
}

Tensor adaptive_max_of(const char* op, int dims, const Tensor& x, const SpatialSizes& size) {
  const Images images(op, x, dims);
  const PoolShape shape = adaptive_shape(op, images.x, size);
  return images.result(needs_places(images.x) ? MaxPool::apply(images.x, shape)[0] : max_pool_values(images.x, shape));
}

Tensor lp_pool_of(const char* op, int dims, const Tensor& x, double power, const SpatialSizes& kernel,
                  const LpPoolOptions& options) {
  TERN_CHECK(std::isfinite(power) && power != 0, op, ": the power must be a finite number and not 0, got ", power);
  const AvgPoolOptions mean{.stride = options.stride, .ceil_mode = options.ceil_mode};
  const auto pool = dims == 1 ? avg_pool1d : dims == 2 ? avg_pool2d : avg_pool3d;
  TERN_CHECK(is_floating(x.dtype()), op, ": x must be floating, got ", x.dtype());
  int64_t elements = 1;
  for (const int64_t size : kernel.of(op, "kernel", dims)) elements *= size;
  const Tensor sums = mul(pool(pow(x, power), kernel, mean), static_cast<double>(elements));
  if (power <= 1) return pow(sums, 1 / power);
  // The root of 0 has an infinite slope, and 0 inf would be NaN.
  const Tensor zero = sums.detach() == 0.0;
  return masked_fill(pow(masked_fill(sums, zero, 1), 1 / power), zero, 0);
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options) {
  return max_pool_of("max_pool1d", 1, x, kernel, options, false).values;
}
Tensor max_pool2d(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options) {
  return max_pool_of("max_pool2d", 2, x, kernel, options, false).values;
}
Tensor max_pool3d(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options) {
  return max_pool_of("max_pool3d", 3, x, kernel, options, false).values;
}
MaxPoolResult max_pool1d_with_indices(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options) {
  return max_pool_of("max_pool1d", 1, x, kernel, options, true);
}
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options) {
  return max_pool_of("max_pool2d", 2, x, kernel, options, true);
}
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const SpatialSizes& kernel, const MaxPoolOptions& options) {
  return max_pool_of("max_pool3d", 3, x, kernel, options, true);
}

Tensor avg_pool1d(const Tensor& x, const SpatialSizes& kernel, const AvgPoolOptions& options) {
  return mean_pool_of("avg_pool1d", 1, x, kernel, options);
}
Tensor avg_pool2d(const Tensor& x, const SpatialSizes& kernel, const AvgPoolOptions& options) {
  return mean_pool_of("avg_pool2d", 2, x, kernel, options);
}
Tensor avg_pool3d(const Tensor& x, const SpatialSizes& kernel, const AvgPoolOptions& options) {
  return mean_pool_of("avg_pool3d", 3, x, kernel, options);
}

Tensor adaptive_avg_pool1d(const Tensor& x, const SpatialSizes& size) {
  return adaptive_mean_of("adaptive_avg_pool1d", 1, x, size);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const SpatialSizes& size) {
  return adaptive_mean_of("adaptive_avg_pool2d", 2, x, size);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const SpatialSizes& size) {
  return adaptive_mean_of("adaptive_avg_pool3d", 3, x, size);
}
Tensor adaptive_max_pool1d(const Tensor& x, const SpatialSizes& size) {
  return adaptive_max_of("adaptive_max_pool1d", 1, x, size);
}
Tensor adaptive_max_pool2d(const Tensor& x, const SpatialSizes& size) {
  return adaptive_max_of("adaptive_max_pool2d", 2, x, size);
}
Tensor adaptive_max_pool3d(const Tensor& x, const SpatialSizes& size) {
  return adaptive_max_of("adaptive_max_pool3d", 3, x, size);
}

Tensor lp_pool1d(const Tensor& x, double power, const SpatialSizes& kernel, const LpPoolOptions& options) {
  return lp_pool_of("lp_pool1d", 1, x, power, kernel, options);
}
Tensor lp_pool2d(const Tensor& x, double power, const SpatialSizes& kernel, const LpPoolOptions& options) {
  return lp_pool_of("lp_pool2d", 2, x, power, kernel, options);
}
Tensor lp_pool3d(const Tensor& x, double power, const SpatialSizes& kernel, const LpPoolOptions& options) {
  return lp_pool_of("lp_pool3d", 3, x, power, kernel, options);
}

}  // namespace tern
