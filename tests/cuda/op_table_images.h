#pragma once
// The rows of op_table_rows.h for ops on images.

#include "tern/tests/cuda/op_table_rows.h"

namespace tern::test {

inline void image_norm_rows(OpRows& t) {
  t.op(
      "group_norm",
      [](const Tensor& x) {
        return group_norm(x.reshape({1, 4, 2, 2}), 2);
      },
      "F.group_norm");
  t.op(
      "instance_norm",
      [](const Tensor& x) {
        return instance_norm(x.reshape({2, 2, 4}));
      },
      "F.instance_norm");
  t.op(
      "local_response_norm",
      [](const Tensor& x) {
        return local_response_norm(x.reshape({1, 4, 4}), 2);
      },
      "F.local_response_norm");
}

inline void patch_rows(OpRows& t) {
  const auto image = [](const Tensor& x) { return x.reshape({1, 4, 2, 2}); };
  t.op(
      "unfold", [=](const Tensor& x) { return unfold(image(x), 2); }, "F.unfold");
  t.op(
      "fold",
      [](const Tensor& x) {
        return fold(x.reshape({1, 4, 4}), 3, 2);
      },
      "F.fold");
  t.op(
      "pixel_shuffle", [=](const Tensor& x) { return pixel_shuffle(image(x), 2); }, "F.pixel_shuffle");
  t.op(
      "pixel_unshuffle", [=](const Tensor& x) { return pixel_unshuffle(image(x), 2); }, "F.pixel_unshuffle");
  t.op(
      "channel_shuffle", [=](const Tensor& x) { return channel_shuffle(image(x), 2); }, "F.channel_shuffle");
  t.op(
      "grid_sample",
      [=](const Tensor& x) {
        return grid_sample(image(x), zeros({1, 1, 1, 2}, {is_floating(x.dtype()) ? x.dtype() : float32, x.device()}));
      },
      "F.grid_sample");
  t.op(
      "affine_grid",
      [](const Tensor& x) {
        return affine_grid(x.flatten().slice(0, 0, 6).reshape({1, 2, 3}), Shape{1, 1, 2, 2});
      },
      "F.affine_grid");
  t.op(
      "drop_block2d", [=](const Tensor& x) { return drop_block2d(image(x), 1, {.p = 0.5}); },
      "torchvision.ops.drop_block2d");
  t.op(
      "drop_block3d", [=](const Tensor& x) { return drop_block3d(image(x).unsqueeze(2), 1, {.p = 0.5}); },
      "torchvision.ops.drop_block3d");
  t.op(
      "stochastic_depth", [](const Tensor& x) { return stochastic_depth(x, StochasticDepthMode::kRow, {.p = 0.5}); },
      "torchvision.ops.stochastic_depth");
}

inline void image_rows(OpRows& t) {
  patch_rows(t);
  image_norm_rows(t);
  t.op(
      "interpolate",
      [](const Tensor& x) {
        return interpolate(x.reshape({1, 1, 4, 4}), {.size = {3, 6}, .mode = InterpolateMode::kLinear});
      },
      "F.interpolate");
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
    const auto powers = dims == 1 ? lp_pool1d : dims == 2 ? lp_pool2d : lp_pool3d;
    t.op(
        "lp_pool" + name, [=](const Tensor& x) { return powers(spatial(x), 2, 1, {}); }, "F.lp_pool" + name);
    const auto unpool = dims == 1 ? max_unpool1d : dims == 2 ? max_unpool2d : max_unpool3d;
    t.op(
        "max_unpool" + name,
        [=](const Tensor& x) {
          const Tensor image = spatial(x);
          const Tensor indices = arange(0, 8, 1, {int64, x.device()});
          return unpool(image, indices.expand(image.shape()).contiguous(), 1, {});
        },
        "F.max_unpool" + name);
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
      "activate", [](const Tensor& x) { return activate(x, ImageActivation::kSilu); },
      "F.relu, F.relu6, F.silu, F.hardswish or F.gelu");
  t.op(
      "channels_last",
      [](const Tensor& x) {
        return x.reshape({1, 2, 2, 4}).channels_last();
      },
      "x.to(memory_format=torch.channels_last)");
}

}  // namespace tern::test
