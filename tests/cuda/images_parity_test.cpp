// Ops on images on the CUDA device against the same op on the CPU, forwards and backwards, in both orders of memory.

#include "tern/tests/cuda/device_test.h"

namespace tern {
namespace {

class ImagesParity : public DeviceTest {
 protected:
  Tensor image(const Shape& shape, DType dtype) { return randn(shape, generator).to(dtype); }
};

const std::vector<DType> kFloats = {float64, float32, bfloat16, float16};

/// The op of the first tensor in both orders.
template <class Op>
void expect_parity_in_both_orders(const std::string& name, const Tensors& inputs, const Op& op) {
  expect_parity(name, inputs, 4, op);
  expect_parity(name + " with channels last", inputs, 4, [&](const Tensors& in) {
    Tensors ordered = in;
    ordered[0] = in[0].channels_last();
    return op(ordered);
  });
}

TEST_F(ImagesParity, Norms) {
  for (const DType dtype : kFloats)
    for (const DType affine : {dtype, float32}) {
      const Tensor weight = (rand({6}, generator) + 0.5).to(affine), bias = image({6}, affine);
      for (const int64_t groups : {1, 3, 6})
        expect_parity_in_both_orders("group_norm", {image({2, 6, 5, 3}, dtype), weight, bias},
                                     [&](const Tensors& in) { return group_norm(in[0], groups, in[1], in[2], 0.1); });
      expect_parity_in_both_orders("instance_norm", {image({2, 6, 7}, dtype), weight}, [](const Tensors& in) {
        return instance_norm(in[0], {}, {}, in[1], {}, {.eps = 0.1});
      });
    }
  expect_parity_in_both_orders("local_response_norm", {image({2, 5, 3, 4}, float32)},
                               [](const Tensors& in) { return local_response_norm(in[0], 3, {.alpha = 0.5}); });
}

TEST_F(ImagesParity, Interpolate) {
  using Mode = InterpolateMode;
  for (const DType dtype : kFloats) {
    for (const InterpolateOptions& options :
         {InterpolateOptions{.size = {7, 3}}, InterpolateOptions{.scale_factor = {1.5}, .mode = Mode::kNearestExact},
          InterpolateOptions{.size = {3, 9}, .mode = Mode::kLinear},
          InterpolateOptions{.size = {8, 9}, .mode = Mode::kCubic, .align_corners = true},
          InterpolateOptions{.size = {2, 3}, .mode = Mode::kCubic, .antialias = true},
          InterpolateOptions{.size = {2, 3}, .mode = Mode::kArea}})
      expect_parity_in_both_orders("interpolate", {image({2, 8, 5, 6}, dtype)},
                                   [&](const Tensors& in) { return interpolate(in[0], options); });
    expect_parity_in_both_orders("interpolate volumes", {image({1, 3, 4, 3, 2}, dtype)}, [](const Tensors& in) {
      return interpolate(in[0], {.scale_factor = {2, 1, 0.5}, .mode = Mode::kLinear});
    });
  }
}

TEST_F(ImagesParity, PixelsAndWindows) {
  for (const DType dtype : kFloats) {
    expect_parity_in_both_orders("unfold", {image({2, 3, 5, 6}, dtype)}, [](const Tensors& in) {
      return unfold(in[0], {2, 3}, {.padding = 1, .stride = 2});
    });
    expect_parity("fold", {image({2, 8, 20}, dtype)}, [](const Tensors& in) { return fold(in[0], {5, 6}, 2); });
    expect_parity_in_both_orders("pixel_shuffle", {image({2, 8, 3, 2}, dtype)},
                                 [](const Tensors& in) { return pixel_shuffle(in[0], 2); });
    expect_parity_in_both_orders("pixel_unshuffle", {image({2, 3, 4, 6}, dtype)},
                                 [](const Tensors& in) { return pixel_unshuffle(in[0], 2); });
    expect_parity_in_both_orders("channel_shuffle", {image({2, 6, 4, 3}, dtype)},
                                 [](const Tensors& in) { return channel_shuffle(in[0], 3); });
    expect_parity_in_both_orders("cat", {image({2, 6, 4, 3}, dtype), image({2, 3, 4, 3}, dtype)},
                                 [](const Tensors& in) {
                                   return cat({in[0], in[1]}, 1);
                                 });
    expect_parity_in_both_orders("pad", {image({2, 6, 4, 3}, dtype)}, [](const Tensors& in) {
      return pad(in[0], {1, 2, 0, 1}, PadMode::kReflect);
    });
  }
  expect_parity_in_both_orders("max_unpool2d", {image({2, 3, 6, 8}, float32)}, [](const Tensors& in) {
    const MaxPoolResult pooled = max_pool2d_with_indices(in[0], 2);
    return max_unpool2d(pooled.values, pooled.indices, 2);
  });
  expect_parity_in_both_orders("lp_pool2d", {image({2, 3, 6, 8}, float32)},
                               [](const Tensors& in) { return lp_pool2d(square(in[0]) + 0.1, 1.5, 2); });
}

TEST_F(ImagesParity, Sampling) {
  for (const DType dtype : {float64, float32})
    for (const GridPadding padding : {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection})
      for (const GridSampleMode mode : {GridSampleMode::kLinear, GridSampleMode::kCubic}) {
        const Tensor grid = (rand({2, 3, 4, 2}, generator) * 2.4 - 1.2).to(dtype);
        expect_parity_in_both_orders("grid_sample", {image({2, 3, 5, 6}, dtype), grid}, [&](const Tensors& in) {
          return grid_sample(in[0], in[1], {mode, padding});
        });
      }
  expect_parity("affine_grid", {image({2, 2, 3}, float32)}, [](const Tensors& in) {
    return affine_grid(in[0], Shape{2, 1, 3, 4});
  });
}

TEST_F(ImagesParity, DroppedBlocksAreTheSame) {
  expect_parity_in_both_orders("drop_block2d", {image({2, 3, 9, 8}, float32)}, [](const Tensors& in) {
    Generator drawn(5);
    return drop_block2d(in[0], 3, {.p = 0.3, .generator = &drawn});
  });
  expect_parity("stochastic_depth", {image({8, 3}, float32)}, [](const Tensors& in) {
    Generator drawn(6);
    return stochastic_depth(in[0], StochasticDepthMode::kRow, {.p = 0.5, .generator = &drawn});
  });
}

}  // namespace
}  // namespace tern
