#pragma once
// Convolutions as matrix products, for every dtype and device: included by the files that compute convolutions in
// kernels/cpu and kernels/cuda alone, whose kernels it calls. Images are taken in pieces, so that their columns fit the
// workspace, and all at once where the input is its own columns.

#include <algorithm>

#include "tern/kernels/batch_norm.h"
#include "tern/kernels/convolution/convolution.h"
#include "tern/kernels/copy.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/pointwise/ops.h"
#include "tern/kernels/pointwise/tiles.h"

#ifdef TERN_CPU
namespace tern::kernels::TERN_CPU {
#else
namespace tern::kernels::cuda {
#endif
namespace {

class ConvolutionByColumns {
 public:
  ConvolutionByColumns(Stream stream, const ConvolutionShape& shape, DType dtype)
      : stream_(stream), shape_(shape), dtype_(dtype) {
    const int64_t row = shape.groups * shape.depth_of_sums(), image = std::max<int64_t>(shape.out_pixels() * row, 1);
    const int64_t all = std::max<int64_t>(shape.batch, 1);
    images_ = shape.is_product() ? all : std::clamp<int64_t>(kElements / image, 1, all);
  }

  /// The memory of forward and of both gradients: the weight with its channels last, numbers of channels, the columns,
  /// a product's own.
  int64_t workspace_bytes() const {
    if (is_empty()) return 0;
    const View weight = weight_view(nullptr, dtype_), sums = weight_view(nullptr, sum_type());
    const View y = output<void>(nullptr, images_), columns = columns_view(nullptr, images_);
    const auto bytes = [&](bool ta, bool tb, const View& a, const View& b, const View& c) {
      return gemm_workspace(stream_, ta, tb, group(a, 0), group(b, 0), group(c, 0));
    };
    const int64_t products = std::max({bytes(false, true, columns, weight, y), bytes(false, false, y, weight, columns),
                                       bytes(true, false, y, columns, sums)});
    return kAlign + weight_bytes() + channel_bytes() + columns_bytes() + products;
  }

  void forward(const ConstView& x, const ConstView& weight, const ConvolutionEpilogue& epilogue, const View& y,
               void* workspace) {
    if (y.numel() == 0) return;
    begin(workspace);
    const View last = weight_view(weight_memory_, dtype_);
    copy_weight(weight, last);
    for (int64_t n = 0; n < shape_.batch; n += images_) {
      const int64_t count = std::min(images_, shape_.batch - n);
      multiply(false, true, columns_of(x, n, count), last, 0, output(y.data, count, n));
    }
    apply_epilogue(epilogue, y, channel_memory_);
  }

  void backward_input(const ConstView& dy, const ConstView& weight, const View& dx, void* workspace) {
    if (dx.numel() == 0) return;
    begin(workspace);
    const View last = weight_view(weight_memory_, dtype_);
    copy_weight(weight, last);
    for (int64_t n = 0; n < shape_.batch; n += images_) {
      const int64_t count = std::min(images_, shape_.batch - n);
      const View columns = shape_.is_product() ? input_matrix(dx.data, count, n) : columns_view(column_memory_, count);
      multiply(false, false, output(dy.data, count, n), last, 0, columns);
      if (!shape_.is_product()) columns_to_images(stream_, shape_, columns, images(dx.data, count, n));
    }
  }

  void backward_weight(const ConstView& dy, const ConstView& x, const View& dweight, void* workspace) {
    if (dweight.numel() == 0) return;
    if (is_empty()) return fill(stream_, 0, dweight);
    begin(workspace);
    const View sums = weight_view(weight_memory_, sum_type());
    for (int64_t n = 0; n < shape_.batch; n += images_) {
      const int64_t count = std::min(images_, shape_.batch - n);
      multiply(true, false, output(dy.data, count, n), columns_of(x, n, count), n == 0 ? 0 : 1, sums);
    }
    copy_weight(dweight, sums);
  }

  /// The type of a weight's gradient while it is summed, and the bytes of a weight of that type.
  DType sum_type() const { return is_low_precision(dtype_) ? DType::kFloat32 : dtype_; }
  int64_t weight_bytes() const { return aligned(shape_.out_channels * shape_.depth_of_sums() * size_of(sum_type())); }

  /// [group, channels of the group's output, kernel size * channels of its input].
  View weight_view(void* data, DType dtype) const {
    const int64_t depth = shape_.depth_of_sums();
    const int64_t sizes[] = {shape_.groups, shape_.group_out(), depth},
                  steps[] = {shape_.group_out() * depth, depth, 1};
    return View(data, dtype, 3, sizes, steps);
  }
  /// Copies a weight with its channels in front of the kernel to one with its channels last, or if it is not const the
  /// other way.
  template <class Weight>
  void copy_weight(const Weight& weight, const View& last) const {
    const int64_t size = shape_.kernel_size(), channels = shape_.group_in();
    const int64_t sizes[] = {shape_.out_channels, channels, size};
    const int64_t front[] = {channels * size, size, 1}, back[] = {channels * size, 1, channels};
    const View turned(last.data, last.dtype, 3, sizes, back);
    const Weight given(weight.data, weight.dtype, 3, sizes, front);
    if constexpr (std::is_same_v<Weight, ConstView>)
      copy(stream_, given, turned);
    else
      copy(stream_, turned, given);
  }

  /// The size of `channels` in apply_epilogue().
  int64_t channel_bytes() const { return aligned(3 * shape_.out_channels * size_of(sum_type())); }
  /// y = activation(y + bias + residual); a residual or an activation by the pass of batch norm with a mean of 0 and a
  /// scale of 1.
  void apply_epilogue(const ConvolutionEpilogue& epilogue, const View& y, void* channels) const {
    if (epilogue.continues())
      apply_by_norm(epilogue, y, channels);
    else if (epilogue.bias)
      add_bias(epilogue.bias, y);
  }

 private:
  static constexpr int64_t kAlign = 256;
  static constexpr int64_t kElements = 1 << 22;  // of the columns at a time

  static int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
  bool is_empty() const { return shape_.batch * shape_.out_pixels() * shape_.out_channels == 0; }
  int64_t columns_bytes() const {
    if (shape_.is_product()) return 0;
    return aligned(images_ * shape_.out_pixels() * shape_.groups * shape_.depth_of_sums() * size_of(dtype_));
  }
  /// The matrix of group g.
  template <class AnyView>
  static AnyView group(AnyView v, int64_t g) {
    v.data = v.data ? at(v.data, g * v.strides[0] * size_of(v.dtype)) : v.data;
    v.shape[0] = 1;
    return v;
  }
  /// c = op(a) op(b) + beta c for each group. One by one: cuBLASLt does not document results of a batch that lie within
  /// each other.
  void multiply(bool ta, bool tb, const ConstView& a, const ConstView& b, double beta, const View& c) const {
    for (int64_t g = 0; g < shape_.groups; ++g)
      gemm(stream_, ta, tb, 1, group(a, g), group(b, g), beta, group(c, g), product_memory_);
  }
  static void* at(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }
  static const void* at(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }
  void begin(void* workspace) {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    weight_memory_ = static_cast<char*>(workspace) + (kAlign - address % kAlign) % kAlign;
    channel_memory_ = weight_memory_ + weight_bytes();
    column_memory_ = channel_memory_ + channel_bytes();
    product_memory_ = column_memory_ + columns_bytes();
  }
  template <class Pointer>
  Pointer* at_image(Pointer* data, int64_t n, int64_t elements) const {
    return data ? at(data, n * elements * size_of(dtype_)) : data;
  }

  /// [group, pixels, channels of the group] of images n ... n + count - 1.
  template <class Pointer>
  BasicView<Pointer> output(Pointer* data, int64_t count, int64_t n = 0) const {
    const int64_t sizes[] = {shape_.groups, count * shape_.out_pixels(), shape_.group_out()};
    const int64_t steps[] = {shape_.group_out(), shape_.out_channels, 1};
    return {at_image(data, n, shape_.out_pixels() * shape_.out_channels), dtype_, 3, sizes, steps};
  }
  /// [group, pixels of the output, kernel size * channels of the group].
  View columns_view(void* data, int64_t count) const {
    const int64_t depth = shape_.depth_of_sums();
    const int64_t sizes[] = {shape_.groups, count * shape_.out_pixels(), depth};
    const int64_t steps[] = {depth, shape_.groups * depth, 1};
    return View(data, dtype_, 3, sizes, steps);
  }
  /// The input as columns, where both are the same.
  template <class Pointer>
  BasicView<Pointer> input_matrix(Pointer* data, int64_t count, int64_t n) const {
    const int64_t sizes[] = {1, count * shape_.in_pixels(), shape_.in_channels};
    const int64_t steps[] = {0, shape_.in_channels, 1};
    return {at_image(data, n, shape_.in_pixels() * shape_.in_channels), dtype_, 3, sizes, steps};
  }
  template <class Pointer>
  BasicView<Pointer> images(Pointer* data, int64_t count, int64_t n) const {
    const int64_t sizes[] = {count, shape_.in_pixels(), shape_.in_channels};
    const int64_t steps[] = {shape_.in_pixels() * shape_.in_channels, shape_.in_channels, 1};
    return {at_image(data, n, shape_.in_pixels() * shape_.in_channels), dtype_, 3, sizes, steps};
  }
  ConstView columns_of(const ConstView& x, int64_t n, int64_t count) const {
    if (shape_.is_product()) return input_matrix(x.data, count, n);
    const View columns = columns_view(column_memory_, count);
    images_to_columns(stream_, shape_, images(x.data, count, n), columns);
    return columns;
  }

  void add_bias(const ConstView& bias, const View& y) const {
    const int64_t sizes[] = {y.numel() / shape_.out_channels, shape_.out_channels};
    const int64_t rows[] = {shape_.out_channels, 1}, row[] = {0, 1};
    const View result(y.data, y.dtype, 2, sizes, rows);
    const ConstView inputs[] = {result, ConstView(bias.data, bias.dtype, 2, sizes, row)};
    const Add op;
    pointwise(stream_, make_call(op, {}, dtype_ == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32), inputs, 2,
              result);
  }
  void apply_by_norm(const ConvolutionEpilogue& epilogue, const View& y, void* memory) const {
    const DType wide = sum_type();
    const int64_t channels = shape_.out_channels, one[] = {1};
    const auto row = [&](int64_t i) { return View(at(memory, i * channels * size_of(wide)), wide, 1, &channels, one); };
    fill(stream_, 0, row(0));
    fill(stream_, 1, row(1));
    if (epilogue.bias) copy(stream_, ConstView(epilogue.bias.data, epilogue.bias.dtype, 1, &channels, one), row(2));
    const int64_t sizes[] = {y.numel() / channels, channels}, steps[] = {channels, 1};
    const View result(y.data, y.dtype, 2, sizes, steps);
    const ConstView residual =
        epilogue.residual ? ConstView(epilogue.residual.data, y.dtype, 2, sizes, steps) : ConstView();
    const BatchNormMap map{row(0), row(1), epilogue.bias ? ConstView(row(2)) : ConstView(), epilogue.activation};
    batch_norm_apply(stream_, result, map, residual, result);
  }

  const Stream stream_;
  const ConvolutionShape shape_;
  const DType dtype_;
  int64_t images_ = 1;  // at a time
  char *weight_memory_ = nullptr, *channel_memory_ = nullptr, *column_memory_ = nullptr, *product_memory_ = nullptr;
};

}  // namespace
}  // namespace of the device
