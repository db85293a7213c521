// Layers of images and recurrent layers in the shapes of ResNet-50, MobileNetV3 and an LSTM classifier, against float64
// on the CPU: as large_parity_test.cpp.

#include "tern/core/ops/convolution/convolution.h"
#include "tern/core/ops/image/interpolate.h"
#include "tern/core/ops/image/pool.h"
#include "tern/core/ops/norm/batch_norm.h"
#include "tern/core/ops/recurrent/recurrent.h"
#include "tern/tests/cuda/large_shapes.h"

namespace tern {
namespace {

/// The inputs of an op in float64 on the CPU and in the test's dtype on the device.
using Op = std::function<Tensor(const Tensors& inputs)>;

class LargeImages : public LargeParity {
 protected:
  /// Results and gradients for whole numbers, whose sums are exact in any order: they differ by their rounding alone.
  void expect_exact(const Op& op, const Tensors& inputs, const std::string& what) {
    const auto [expected, actual] =
        both(op, inputs, [&](const Shape& shape, DType dtype) { return integers(shape, 2, dtype); });
    for (size_t i = 0; i < expected.size(); ++i)
      expect_rounded(expected[i], zeros(expected[i].shape(), {.dtype = float64}), actual[i],
                     what + ", result " + std::to_string(i));
  }
  /// For arbitrary numbers, within `error` of the largest of a result.
  void expect_close(const Op& op, const Tensors& inputs, double error, const std::string& what) {
    const auto [expected, actual] =
        both(op, inputs, [&](const Shape& shape, DType dtype) { return normal(shape, dtype); });
    for (size_t i = 0; i < expected.size(); ++i)
      expect_rounded(expected[i], mul(ones_like(expected[i]), error * max(abs(expected[i])).item<double>()), actual[i],
                     what + ", result " + std::to_string(i));
  }

  /// ResNet-50's, with a quarter of the channels on the emulated device.
  Tensor image(int64_t batch, int64_t channels, int64_t side, DType dtype) {
    return integers(
               {kWhole ? batch : 2, kWhole ? channels : std::max<int64_t>(channels / 16, 3),
                kWhole ? side : std::min<int64_t>(side, whole_in(7, 12)), kWhole ? side : std::min<int64_t>(side, 8)},
               2, dtype)
        .channels_last();
  }

 private:
  /// The result and the gradients of all inputs, on the CPU and on the device.
  template <class Draw>
  std::pair<Tensors, Tensors> both(const Op& op, const Tensors& inputs, const Draw& draw) {
    Tensors wide, own, expected, actual;
    for (const Tensor& x : inputs) {
      wide.push_back(x.to(float64).set_requires_grad(true));
      own.push_back(leaf(x));
    }
    const Tensor y = op(own), reference = op(wide), dy = draw(y.shape(), y.dtype());
    y.backward(dy.to(kCuda));
    reference.backward(dy.to(float64));
    expected.push_back(reference.detach());
    actual.push_back(y);
    for (size_t i = 0; i < inputs.size(); ++i) {
      expected.push_back(wide[i].grad());
      actual.push_back(own[i].grad());
    }
    return {expected, actual};
  }
};

struct Layer {
  const char* name;
  int64_t batch, in, out, side, kernel, stride, groups;
};

TEST_F(LargeImages, Convolutions) {
  const std::vector<Layer> layers = {{"first", 8, 3, 64, 224, 7, 2, 1},
                                     {"3 x 3 at 56", 16, 64, 64, 56, 3, 1, 1},
                                     {"3 x 3 at 14", 32, 256, 256, 14, 3, 1, 1},
                                     {"3 x 3 with stride", 16, 128, 128, 56, 3, 2, 1},
                                     {"1 x 1", 16, 256, 64, 56, 1, 1, 1},
                                     {"1 x 1 with stride", 8, 512, 1024, 28, 1, 2, 1},
                                     {"groups of ResNeXt", 8, 128, 128, 56, 3, 1, 32}};
  for (const Layer& l : layers)
    for (const DType dtype : {float32, bfloat16, float16}) {
      const Tensor x = image(l.batch, l.in, l.side, dtype);
      const int64_t groups = kWhole ? l.groups : l.groups > 1 ? 2 : 1, in = x.size(1), out = kWhole ? l.out : 6;
      const Tensor weight = integers({out, in / groups, l.kernel, l.kernel}, 2, dtype),
                   bias = integers({out}, 2, dtype);
      expect_exact(
          [&](const Tensors& t) {
            return conv2d(t[0], t[1], t[2], {.stride = l.stride, .padding = l.kernel / 2, .groups = groups});
          },
          {x, weight, bias}, l.name);
    }
}

TEST_F(LargeImages, DepthwiseConvolutions) {
  for (const Layer& l : std::vector<Layer>{{"3 x 3", 32, 64, 64, 56, 3, 2, 64}, {"5 x 5", 32, 240, 240, 14, 5, 1, 240}})
    for (const DType dtype : {float32, bfloat16, float16}) {
      const Tensor x = image(l.batch, l.in, l.side, dtype),
                   weight = integers({x.size(1), 1, l.kernel, l.kernel}, 2, dtype);
      expect_exact(
          [&](const Tensors& t) {
            return conv2d(t[0], t[1], {}, {.stride = l.stride, .padding = l.kernel / 2, .groups = x.size(1)});
          },
          {x, weight}, l.name);
    }
}

TEST_F(LargeImages, TransposedConvolution) {
  const Tensor x = image(8, 128, 28, bfloat16), weight = integers({x.size(1), kWhole ? 64 : 5, 4, 4}, 2, bfloat16);
  expect_exact([](const Tensors& t) { return conv_transpose2d(t[0], t[1], {}, {.stride = 2, .padding = 1}); },
               {x, weight}, "4 x 4");
}

TEST_F(LargeImages, Pooling) {
  for (const DType dtype : {float32, bfloat16}) {
    const Tensor x = image(16, 64, 112, dtype);
    expect_exact([](const Tensors& t) { return max_pool2d(t[0], 3, {.stride = 2, .padding = 1}); }, {x}, "maxima");
    expect_exact([](const Tensors& t) { return avg_pool2d(t[0], 2); }, {x}, "means");
    const Tensor last = normal(image(32, 2048, 7, dtype).shape(), dtype).channels_last();
    expect_close([](const Tensors& t) { return adaptive_avg_pool2d(t[0], 1); }, {last}, 1e-5, "mean of an image");
  }
}

TEST_F(LargeImages, BatchNorm) {
  for (const DType dtype : {float32, bfloat16, float16})
    for (const ImageActivation activation : {ImageActivation::kNone, ImageActivation::kSilu}) {
      const Tensor x = normal(image(32, 256, 56, dtype).shape(), dtype).channels_last();
      const Tensor weight = normal({x.size(1)}, float32), bias = normal({x.size(1)}, float32);
      const Op op = [&](const Tensors& t) {
        const DType own = t[1].dtype();
        const Tensor mean = zeros({x.size(1)}, {.dtype = own, .device = t[0].device()}), variance = ones_like(mean);
        return batch_norm(t[0], mean, variance, t[1], t[2], {.training = true, .activation = activation});
      };
      // Gradients of weight and bias are sums of both signs over all pixels; that before an activation is stored.
      const double stored = activation == ImageActivation::kNone ? 0 : unit_of(dtype);
      expect_close(op, {x, weight, bias}, 2e-4 + stored, "batch norm");
    }
}

TEST_F(LargeImages, Interpolation) {
  for (const DType dtype : {float32, bfloat16})
    for (const InterpolateMode mode : {InterpolateMode::kNearest, InterpolateMode::kLinear, InterpolateMode::kCubic}) {
      const Tensor x = normal(image(8, 64, 32, dtype).shape(), dtype).channels_last();
      expect_close([&](const Tensors& t) { return interpolate(t[0], {.scale_factor = {1.75}, .mode = mode}); }, {x},
                   2e-5, "interpolation");
    }
}

/// 100 steps of a layer of 256, sequences of different lengths.
TEST_F(LargeImages, RecurrentLayers) {
  const int64_t in = size(256, 5, 9), hidden = size(256, 4, 8), batch = size(32, 3, 5), longest = size(100, 6, 9);
  std::vector<int64_t> lengths;
  int64_t rows = 0;
  for (int64_t i = 0; i < batch; ++i) lengths.push_back(i == 0 ? longest : whole_in(1, longest));
  for (const int64_t length : lengths) rows += length;
  for (const RecurrentKind kind : {RecurrentKind::kLstm, RecurrentKind::kGru}) {
    const int64_t width = kernels::gates_of(kind) * hidden;
    const double scale = 1 / std::sqrt(static_cast<double>(hidden));
    const Tensors inputs = {normal({rows, in}, float32), mul(normal({width, in}, float32), scale),
                            mul(normal({width, hidden}, float32), scale), normal({width}, float32)};
    const Op op = [&](const Tensors& t) {
      return recurrent(kind, t[0], RecurrentLayout::packed(lengths, t[0].device()), {t[1], t[2], t[3]}).output;
    };
    expect_close(op, inputs, 1e-4, kind == RecurrentKind::kLstm ? "LSTM" : "GRU");
  }
}

}  // namespace
}  // namespace tern
