#pragma once
// The rows of op_table_rows.h for ops on images.

#include "tern/tests/cuda/op_table_rows.h"

namespace tern::test {

inline void image_rows(OpRows& t) {
  const auto kernel = [](const Tensor& x, int dims) {
    std::vector<int64_t> sizes(static_cast<size_t>(dims) + 2, 1);
    sizes[0] = sizes[1] = 2;
    return x.flatten().slice(0, 0, 4).reshape(sizes);
  };
  for (int dims = 1; dims <= 3; ++dims) {
    const auto spatial = [=](const Tensor& x) {
      std::vector<int64_t> sizes(static_cast<size_t>(dims) + 2, 1);
      sizes[1] = 2;
      sizes.back() = 8;
      return x.reshape(sizes);
    };
    const std::string name = std::to_string(dims) + "d";
    using Convolve = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvolutionOptions&);
    const Convolve convolve = dims == 1 ? conv1d : dims == 2 ? conv2d : conv3d;
    t.op(
        "conv" + name, [=](const Tensor& x) { return convolve(spatial(x), kernel(x, dims), {}, {}); }, "F.conv" + name);
    using Transposed = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const TransposedConvolutionOptions&);
    const Transposed transposed = dims == 1 ? conv_transpose1d : dims == 2 ? conv_transpose2d : conv_transpose3d;
    t.op(
        "conv_transpose" + name, [=](const Tensor& x) { return transposed(spatial(x), kernel(x, dims), {}, {}); },
        "F.conv_transpose" + name);
    using Pool = Tensor (*)(const Tensor&, const SpatialSizes&);
    const auto pool = [&](const std::string& kind, Pool fn) {
      t.op(
          kind + name, [=](const Tensor& x) { return fn(spatial(x), 1); }, "F." + kind + name);
    };
    const auto max = dims == 1 ? max_pool1d : dims == 2 ? max_pool2d : max_pool3d;
    const auto mean = dims == 1 ? avg_pool1d : dims == 2 ? avg_pool2d : avg_pool3d;
    t.op(
        "max_pool" + name, [=](const Tensor& x) { return max(spatial(x), 1, {}); }, "F.max_pool" + name);
    t.op(
        "avg_pool" + name, [=](const Tensor& x) { return mean(spatial(x), 1, {}); }, "F.avg_pool" + name);
    const auto both = dims == 1   ? max_pool1d_with_indices
                      : dims == 2 ? max_pool2d_with_indices
                                  : max_pool3d_with_indices;
    t.op(
        "max_pool" + name + "_with_indices", [=](const Tensor& x) { return both(spatial(x), 1, {}).values; },
        "F.max_pool" + name + "_with_indices");
    pool("adaptive_avg_pool", dims == 1 ? adaptive_avg_pool1d : dims == 2 ? adaptive_avg_pool2d : adaptive_avg_pool3d);
    pool("adaptive_max_pool", dims == 1 ? adaptive_max_pool1d : dims == 2 ? adaptive_max_pool2d : adaptive_max_pool3d);
  }
  t.op(
      "batch_norm",
      [](const Tensor& x) {
        return batch_norm(x.reshape({2, 2, 4}), {}, {});
      },
      "F.batch_norm");
  t.op(
      "channels_last",
      [](const Tensor& x) {
        return x.reshape({1, 2, 2, 4}).channels_last();
      },
      "x.to(memory_format=torch.channels_last)");
}

}  // namespace tern::test
