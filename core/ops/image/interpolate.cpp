#include "tern/core/ops/image/interpolate.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/image/pool.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/resample.h"

namespace tern {

using kernels::ResampleAxis, kernels::ResampleMode;

namespace {

/// One axis of an image; its place in memory is dimension `dim` of the sizes in the order of memory.
struct ImageAxis {
  size_t dim;
  ResampleAxis axis;
};

/// x, contiguous or with its channels last, as sizes in the order of memory.
std::vector<int64_t> sizes_in_memory(const Tensor& x, bool last) {
  std::vector<int64_t> sizes = x.shape().vec();
  if (last) std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  return sizes;
}

/// The kernels' view of memory with these sizes along one of them: [outer, axis, inner].
kernels::View along(const Tensor& memory, const std::vector<int64_t>& sizes, size_t dim) {
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < dim; ++d) outer *= sizes[d];
  for (size_t d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
  const Shape shape{outer, sizes[dim], inner};
  return {memory.raw_data(), memory.dtype(), shape.dims(), shape.data(), contiguous_strides(shape).data()};
}

/// Resizing axis by axis; kTransposed is the gradient, whose gradient is the resizing again. Between two axes numbers
/// have the compute type.
template <bool kTransposed>
struct Resize final : TwiceDifferentiable<Resize<kTransposed>> {
  static constexpr const char* kName = kTransposed ? "interpolate_backward" : "interpolate";
  std::vector<ImageAxis> axes_;
  bool last_ = false;

  Tensor forward(const Tensor& x, const std::vector<ImageAxis>& axes, bool last) {
    axes_ = axes;
    last_ = last;
    const kernels::Stream stream = current_stream(x.device());
    const TensorOptions wide{x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, x.device()};
    std::vector<int64_t> sizes = sizes_in_memory(x, last), result_sizes = x.shape().vec();
    Tensor memory = x;
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto& [dim, axis] = axes[kTransposed ? axes.size() - 1 - i : i];
      const Tensor first = empty({axis.out}, {DType::kInt32, x.device()}),
                   weights = empty({axis.out, axis.taps()}, wide);
      kernels::resample_table(stream, axis, first.view(), weights.view());
      const kernels::View from = along(memory, sizes, dim);
      sizes[dim] = kTransposed ? axis.in : axis.out;
      result_sizes[last ? dim + 1 : dim] = sizes[dim];
      const bool done = i + 1 == axes.size();
      const Tensor next = !done  ? empty(Shape(sizes), wide)
                          : last ? detail::empty_channels_last(Shape(result_sizes), x.options())
                                 : empty(Shape(result_sizes), x.options());
      const kernels::View to = along(next, sizes, dim);
      const auto& pass = kTransposed ? kernels::resample_transposed : kernels::resample;  // of one signature
      const auto& bytes = kTransposed ? kernels::resample_transposed_workspace : kernels::resample_workspace;
      const Workspace workspace(x.device(), [&] { return bytes(stream, from, first.view(), weights.view(), to); });
      pass(stream, from, first.view(), weights.view(), to, workspace.data());
      memory = next;
    }
    return memory;
  }
  Grads backward(const Tensor& dy) override {
    return {Resize<!kTransposed>::apply(last_ ? dy.channels_last() : dy.contiguous(), axes_, last_)};
  }
};

std::vector<double> factors_of(const InterpolateOptions& options, size_t dims) {
  TERN_CHECK(options.scale_factor.size() == 1 || options.scale_factor.size() == dims, "interpolate: scale_factor has ",
             options.scale_factor.size(), " numbers, expected one, or one for each of the ", dims, " dimensions");
  std::vector<double> factors = options.scale_factor;
  factors.resize(dims, factors[0]);
  for (const double factor : factors)
    TERN_CHECK(std::isfinite(factor) && factor > 0, "interpolate: scale_factor must be finite and above 0, got ",
               factor);
  return factors;
}

void check_mode(const Tensor& x, const InterpolateOptions& options) {
  const bool filtered = options.mode == InterpolateMode::kLinear || options.mode == InterpolateMode::kCubic;
  TERN_CHECK(is_floating(x.dtype()) && x.dim() >= 3 && x.dim() <= 5,
             "interpolate: x must be floating [batch, channels, 1 to 3 spatial dimensions], got ", x.describe());
  TERN_CHECK(options.mode != InterpolateMode::kCubic || x.dim() == 4,
             "interpolate: kCubic takes two spatial dimensions, got ", x.shape());
  TERN_CHECK(!options.align_corners || filtered, "interpolate: align_corners is an option of kLinear and kCubic");
  TERN_CHECK(!options.antialias || (filtered && x.dim() == 4),
             "interpolate: antialias is an option of kLinear and kCubic with two spatial dimensions");
  TERN_CHECK(options.size.values().empty() != options.scale_factor.empty(),
             "interpolate: expected either a size or a scale_factor, got ",
             options.scale_factor.empty() ? "neither" : "both");
  TERN_CHECK(!options.recompute_scale_factor || options.size.values().empty(),
             "interpolate: recompute_scale_factor needs a scale_factor, not a size");
}

/// Whether a dimension whose size a scale_factor leaves is copied. PyTorch's other forms apply the factor there too:
/// those of kNearestExact, of kCubic without antialias, and of kNearest but for images whose elements its kernels for
/// two dimensions or for channels last find.
bool copies_equal_sizes(const Tensor& x, const InterpolateOptions& options) {
  const bool finds = x.dim() == 4 || detail::has_channels_last(x);
  return options.mode == InterpolateMode::kLinear || options.antialias ||
         (options.mode == InterpolateMode::kNearest && finds);
}

ResampleMode mode_of(InterpolateMode mode) {
  switch (mode) {
    case InterpolateMode::kNearestExact:
      return ResampleMode::kNearestExact;
    case InterpolateMode::kLinear:
      return ResampleMode::kLinear;
    case InterpolateMode::kCubic:
      return ResampleMode::kCubic;
    default:
      return ResampleMode::kNearest;
  }
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  check_mode(x, options);
  const auto dims = static_cast<size_t>(x.dim() - 2);
  std::vector<double> factors(dims, 0);
  std::vector<int64_t> sizes(dims);
  if (options.scale_factor.empty()) {
    sizes = options.size.of("interpolate", "size", x.dim() - 2);
  } else {
    factors = factors_of(options, dims);
    for (size_t d = 0; d < dims; ++d) {
      const double size = std::floor(static_cast<double>(x.size(static_cast<int>(d) + 2)) * factors[d]);
      sizes[d] = static_cast<int64_t>(std::min(size, 0x1p31));
    }
    if (options.recompute_scale_factor) std::fill(factors.begin(), factors.end(), 0);
    for (size_t d = 0; d < dims; ++d)
      if (sizes[d] == x.size(static_cast<int>(d) + 2) && copies_equal_sizes(x, options)) factors[d] = 0;
  }
  detail::check_sizes("interpolate", "the result's size", sizes, 1);
  for (int d = 2; d < x.dim(); ++d)
    TERN_CHECK(x.size(d) > 0 && x.size(d) < int64_t{1} << 31,
               "interpolate: a spatial dimension of x is empty or above 2^31: ", x.shape());
  if (options.mode == InterpolateMode::kArea)
    return dims == 1   ? adaptive_avg_pool1d(x, sizes)
           : dims == 2 ? adaptive_avg_pool2d(x, sizes)
                       : adaptive_avg_pool3d(x, sizes);

  const bool last = detail::has_channels_last(x);
  std::vector<ImageAxis> axes;
  for (size_t d = dims; d-- > 0;)
    axes.push_back({last ? d + 1 : d + 2, ResampleAxis{mode_of(options.mode), x.size(static_cast<int>(d) + 2), sizes[d],
                                                       options.align_corners, options.antialias, factors[d]}});
  // Axes that become shorter come first, which leaves less to the others.
  std::stable_sort(axes.begin(), axes.end(), [](const ImageAxis& a, const ImageAxis& b) {
    return a.axis.out * b.axis.in < b.axis.out * a.axis.in;
  });
  return Resize<false>::apply(last ? x : x.contiguous(), axes, last);
}

}  // namespace tern
