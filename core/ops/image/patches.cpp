#include "tern/core/ops/image/patches.h"

#include <array>

#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

using Pair = std::array<int64_t, 2>;  // of height and width

struct Patches {
  int64_t batch = 0, channels = 0;
  Pair in, out, kernel, dilation, padding, stride;

  Shape images() const { return {batch, channels, in[0], in[1]}; }
  Shape padded() const { return {batch, channels, in[0] + 2 * padding[0], in[1] + 2 * padding[1]}; }
  Shape windows() const { return {batch, channels, kernel[0], kernel[1], out[0], out[1]}; }
  Shape columns() const { return {batch, channels * kernel[0] * kernel[1], out[0] * out[1]}; }
  /// The pixels of all windows that element (y, x) of the kernel meets: a view of padded images.
  Tensor met(const Tensor& images, int64_t y, int64_t x) const {
    const auto part = [&](const Tensor& t, int dim, size_t d, int64_t place) {
      const int64_t begin = place * dilation[d];
      return t.slice(dim, begin, begin + (out[d] - 1) * stride[d] + 1, stride[d]);
    };
    return part(part(images, 2, 0, y), 3, 1, x);
  }
  /// body(y, x) for each element of the kernel.
  template <class Body>
  void for_kernel(const Body& body) const {
    for (int64_t y = 0; y < kernel[0]; ++y)
      for (int64_t x = 0; x < kernel[1]; ++x) body(y, x);
  }
};

/// kTransposed: from columns to images. Each is the other's derivative.
template <bool kTransposed>
struct MovePatches final : TwiceDifferentiable<MovePatches<kTransposed>> {
  static constexpr const char* kName = kTransposed ? "fold" : "unfold";
  Patches patches_;

  Tensor forward(const Tensor& x, const Patches& patches) {
    patches_ = patches;
    const Patches& p = patches;
    if constexpr (kTransposed) {
      const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
      const Tensor windows = x.to(wide).reshape(p.windows()), sums = zeros(p.padded(), {wide, x.device()});
      p.for_kernel([&](int64_t i, int64_t j) { p.met(sums, i, j).add_(windows.select(2, i).select(2, j)); });
      return sums.narrow(2, p.padding[0], p.in[0]).narrow(3, p.padding[1], p.in[1]).contiguous().to(x.dtype());
    } else {
      const Tensor windows = empty(p.windows(), x.options());
      const Tensor images = pad(x, {p.padding[1], p.padding[1], p.padding[0], p.padding[0]});
      p.for_kernel([&](int64_t i, int64_t j) { windows.select(2, i).select(2, j).copy_(p.met(images, i, j)); });
      return windows.reshape(p.columns());
    }
  }
  Grads backward(const Tensor& dy) override { return {MovePatches<!kTransposed>::apply(dy, patches_)}; }
};

/// All but batch and channels.
Patches patches_of(const char* op, const std::vector<int64_t>& size, const SpatialSizes& kernel,
                   const UnfoldOptions& options) {
  const std::vector<int64_t> kernels = kernel.of(op, "kernel", 2), dilation = options.dilation.of(op, "dilation", 2),
                             padding = options.padding.of(op, "padding", 2),
                             stride = options.stride.of(op, "stride", 2);
  detail::check_sizes(op, "kernel", kernels, 1);
  detail::check_sizes(op, "dilation", dilation, 1);
  detail::check_sizes(op, "padding", padding, 0);
  detail::check_sizes(op, "stride", stride, 1);
  Patches p;
  for (size_t d = 0; d < 2; ++d) {
    p.in[d] = size[d];
    p.kernel[d] = kernels[d];
    p.dilation[d] = dilation[d];
    p.padding[d] = padding[d];
    p.stride[d] = stride[d];
    const int64_t reach = dilation[d] * (kernels[d] - 1) + 1, padded = size[d] + 2 * padding[d];
    TERN_CHECK(size[d] > 0 && reach <= padded, op, ": a window of ", reach, d == 0 ? " rows" : " columns",
               " does not fit into ", padded, ", those of the padded image");
    p.out[d] = (padded - reach) / stride[d] + 1;
  }
  return p;
}

/// fn of x as [batch, channels, rest...] in the order of memory, where the channels may be the last dimension.
template <class Fn>
Tensor in_memory_order(const Tensor& x, const Fn& fn) {
  if (!detail::has_channels_last(x)) return fn(x, false);
  return fn(x.movedim(1, -1), true).movedim(-1, 1);
}

/// [batch, channels * factor^2, height, width] as [batch, channels, height * factor, width * factor], or with kDown the
/// other way. Each is the other's inverse and derivative.
template <bool kDown>
struct MovePixels final : TwiceDifferentiable<MovePixels<kDown>> {
  static constexpr const char* kName = kDown ? "pixel_unshuffle" : "pixel_shuffle";
  int64_t factor_ = 1;

  Tensor forward(const Tensor& x, int64_t factor) {
    factor_ = factor;
    const int64_t r = factor, area = r * r;
    const Shape shape = kDown ? Shape{x.size(0), x.size(1) * area, x.size(2) / r, x.size(3) / r}
                              : Shape{x.size(0), x.size(1) / area, x.size(2) * r, x.size(3) * r};
    const bool last = detail::has_channels_last(x);
    const Tensor y = last ? detail::empty_channels_last(shape, x.options()) : empty(shape, x.options());
    const Tensor &large = kDown ? x : y, &deep = kDown ? y : x;
    const int64_t channels = large.size(1);
    const auto view = [&](const Tensor& t) { return last ? detail::channels_moved_last(t.view()) : t.view(); };
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < r; ++j) {
        const Tensor pixels = large.slice(2, i, INT64_MAX, r).slice(3, j, INT64_MAX, r);
        const Tensor planes = deep.slice(1, i * r + j, INT64_MAX, area).narrow(1, 0, channels);
        kernels::copy(current_stream(x.device()), view(kDown ? pixels : planes), view(kDown ? planes : pixels));
      }
    return y;
  }
  Grads backward(const Tensor& dy) override { return {MovePixels<!kDown>::apply(dy, factor_)}; }
};

/// x [..., channels, height, width] as images.
Tensor pixels_of(const char* op, const Tensor& x, int64_t factor) {
  TERN_CHECK(x.dim() >= 3, op, ": expected [..., channels, height, width], got ", x.shape());
  TERN_CHECK(factor >= 1 && factor < 1 << 15, op, ": the factor must be at least 1 and below 2^15, got ", factor);
  int64_t batch = 1;
  for (int d = 0; d < x.dim() - 3; ++d) batch *= x.size(d);
  return x.dim() == 4 ? x : x.reshape({batch, x.size(-3), x.size(-2), x.size(-1)});
}

/// y with the leading dimensions of x.
Tensor with_dimensions_of(const Tensor& x, const Tensor& y) {
  if (x.dim() == 4) return y;
  std::vector<int64_t> sizes = x.shape().vec();
  for (size_t d = 1; d < 4; ++d) sizes[sizes.size() - 4 + d] = y.size(static_cast<int>(d));
  return y.reshape(sizes);
}

}  // namespace

Tensor unfold(const Tensor& x, const SpatialSizes& kernel, const UnfoldOptions& options) {
  TERN_CHECK(is_floating(x.dtype()) && (x.dim() == 3 || x.dim() == 4),
             "unfold: x must be floating [batch, channels, height, width] or without batch, got ", x.describe());
  const Tensor images = x.dim() == 4 ? x : x.unsqueeze(0);
  Patches patches = patches_of("unfold", {images.size(2), images.size(3)}, kernel, options);
  patches.batch = images.size(0);
  patches.channels = images.size(1);
  const Tensor columns = MovePatches<false>::apply(images, patches);
  return x.dim() == 4 ? columns : columns.squeeze(0);
}

Tensor fold(const Tensor& columns, const SpatialSizes& size, const SpatialSizes& kernel, const UnfoldOptions& options) {
  TERN_CHECK(is_floating(columns.dtype()) && (columns.dim() == 2 || columns.dim() == 3),
             "fold: columns must be floating [batch, channels * kernel elements, windows] or without batch, got ",
             columns.describe());
  const std::vector<int64_t> sizes = size.of("fold", "size", 2);
  detail::check_sizes("fold", "size", sizes, 1);
  Patches patches = patches_of("fold", sizes, kernel, options);
  const int64_t elements = patches.kernel[0] * patches.kernel[1], windows = patches.out[0] * patches.out[1];
  TERN_CHECK(columns.size(-2) % elements == 0, "fold: the ", elements,
             " elements of the kernel must divide dimension -2 of ", columns.shape());
  TERN_CHECK(columns.size(-1) == windows, "fold: images of ", Shape(sizes), " have ", windows,
             " windows, which dimension -1 of ", columns.shape(), " must be");
  const Tensor batched = columns.dim() == 3 ? columns : columns.unsqueeze(0);
  patches.batch = batched.size(0);
  patches.channels = columns.size(-2) / elements;
  const Tensor images = MovePatches<true>::apply(batched, patches);
  return columns.dim() == 3 ? images : images.squeeze(0);
}

Tensor pixel_shuffle(const Tensor& x, int64_t factor) {
  const Tensor images = pixels_of("pixel_shuffle", x, factor);
  TERN_CHECK(x.size(-3) % (factor * factor) == 0, "pixel_shuffle: the factor (", factor,
             ") squared must divide the channels of ", x.shape());
  return with_dimensions_of(x, MovePixels<false>::apply(images, factor));
}
Tensor pixel_unshuffle(const Tensor& x, int64_t factor) {
  const Tensor images = pixels_of("pixel_unshuffle", x, factor);
  TERN_CHECK(x.size(-2) % factor == 0 && x.size(-1) % factor == 0, "pixel_unshuffle: the factor (", factor,
             ") must divide height and width of ", x.shape());
  return with_dimensions_of(x, MovePixels<true>::apply(images, factor));
}

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  TERN_CHECK(x.dim() >= 2, "channel_shuffle: expected [batch, channels, ...], got ", x.shape());
  const int64_t channels = x.size(1);
  TERN_CHECK(groups >= 1 && channels % groups == 0, "channel_shuffle: groups (", groups,
             ") must be at least 1 and divide the channels of ", x.shape());
  return in_memory_order(x, [&](const Tensor& t, bool last) {
    const int dim = last ? -1 : 1, at = last ? t.dim() - 1 : 1;
    return t.unflatten(dim, {groups, channels / groups}).transpose(at, at + 1).reshape(t.shape());
  });
}

}  // namespace tern
