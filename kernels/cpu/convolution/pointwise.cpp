// Convolutions of 1 x 1 pixels with few channels in fp32: so few products for each number of an image that reading and
// writing it takes as long. oneDNN writes an image once for some channels at a time; here a pixel's channels follow one
// another, and what comes after the sums is done while they are in the L1 cache.

#include <algorithm>

#include "tern/kernels/cpu/convolution/column_products.h"
#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/prefetch.h"
#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kPixels = 4;  // with three vectors of channels at a time: twelve sums in registers
constexpr int64_t kStrip = 32;  // pixels that are finished together
constexpr int64_t kTaskPixels = 2048;
constexpr int64_t kMaxIn = 32;         // channels: with more, the products take longer than memory
constexpr int64_t kMaxWeights = 4096;  // they share the L1 cache with a strip
constexpr int64_t kMinPixels = 1024;   // of all images: the weight is transposed in every call

/// y of kCount pixels and kVectors vectors of channels. x: [kCount, in]; weight: [in, out].
template <int kCount, int kVectors>
[[gnu::always_inline]] inline void multiply(const float* x, int64_t in, const float* weight, int64_t out,
                                            const float* bias, float* y) {
  RegisterTile<kCount, kVectors> tile;
  tile.load([&](int) { return bias; });
  tile.multiply(in, LeftRows<float>{x, in}, weight, out);
  tile.store([&](int p) { return y + p * out; });
}

/// y of kCount pixels with all channels.
template <int kCount>
[[gnu::noinline]] void multiply_pixels(const float* x, int64_t in, const float* weight, int64_t out, const float* bias,
                                       float* y) {
  int64_t c = 0;
  for (; c + 3 * kLanes <= out; c += 3 * kLanes) multiply<kCount, 3>(x, in, weight + c, out, bias + c, y + c);
  if (c + 2 * kLanes <= out) {
    multiply<kCount, 2>(x, in, weight + c, out, bias + c, y + c);
    c += 2 * kLanes;
  }
  for (; c < out; c += kLanes) {
    const int64_t from = std::min<int64_t>(c, out - kLanes);  // the last ones again, so that all vectors are full
    multiply<kCount, 1>(x, in, weight + from, out, bias + from, y + from);
  }
}

/// y = x weight + bias for `pixels` pixels; finish(first, count) follows those of a strip. weight: [in, out].
template <class Finish>
void multiply_images(const float* x, int64_t in, const float* weight, int64_t out, const float* bias, float* y,
                     int64_t pixels, const Finish& finish) {
  parallel_for(pixels, kTaskPixels, [&](int64_t begin, int64_t stop) {
    for (int64_t strip = begin; strip < stop; strip += kStrip) {
      const int64_t last = std::min(strip + kStrip, stop);
      const float* from = x + strip * in;
      float* to = y + strip * out;
      int64_t p = strip;
      for (; p + kPixels <= last; p += kPixels, from += kPixels * in, to += kPixels * out) {
        if (p + kPixels + kStrip <= stop) {
          prefetch<1>(to + kStrip * out, kPixels * out);
          prefetch<0>(from + kStrip * in, kPixels * in);
        }
        multiply_pixels<kPixels>(from, in, weight, out, bias, to);
      }
      for (; p < last; ++p, from += in, to += out) multiply_pixels<1>(from, in, weight, out, bias, to);
      finish(strip, last - strip);
    }
  });
}

ConvolutionPlan make(const ConvolutionCase& c) {
  const int64_t in = c.shape.in_channels, out = c.shape.out_channels, pixels = c.shape.batch * c.shape.out_pixels();
  const auto forward = [=](ConstView x, ConstView weight, const ConvolutionEpilogue& epilogue, View y, char* memory) {
    auto *const weights = reinterpret_cast<float*>(memory), *const wide = weights + in * out;
    for (int64_t c = 0; c < out; ++c)
      for (int64_t k = 0; k < in; ++k) weights[k * out + c] = weight.as<float>()[c * in + k];
    multiply_images(x.as<float>(), in, weights, out, wide_bias(epilogue.bias, out, wide), y.as<float>(), pixels,
                    [&](int64_t first, int64_t count) { apply_epilogue(epilogue, y, first * out, count * out); });
  };
  const auto backward_input = [=](ConstView dy, ConstView weight, const ConvolutionEpilogue&, View dx, char* memory) {
    auto* const zeros = reinterpret_cast<float*>(memory);
    std::fill_n(zeros, in, 0.0f);
    multiply_images(dy.as<float>(), out, weight.as<float>(), in, zeros, dx.as<float>(), pixels,
                    [](int64_t, int64_t) {});
  };
  if (c.is(ConvolutionPass::kForward)) return {.run = forward, .memory_bytes = (in + 1) * out * 4};
  if (c.is(ConvolutionPass::kBackwardInput)) return {.run = backward_input, .memory_bytes = in * 4};
  const FewColumnProducts products(out, in, pixels);
  const auto backward_weight = [=](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight, char* memory) {
    products.run(dy.as<float>(), dweight.as<float>(), memory,
                 [&](int64_t first, int64_t, float*) { return x.as<float>() + first * in; });
  };
  return {.run = backward_weight, .memory_bytes = products.bytes()};
}

bool can(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  const bool of_pass = c.is(ConvolutionPass::kForward)         ? s.out_channels >= kChannelStep
                       : c.is(ConvolutionPass::kBackwardInput) ? s.in_channels >= kChannelStep
                                                               : s.in_channels % kChannelStep == 0;
  return of_pass && c.dtype == DType::kFloat32 && s.is_product() && !c.is_empty();
}

bool pays(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  if (!kOwnIsFaster) return false;
  if (c.is(ConvolutionPass::kBackwardWeight)) return FewColumnProducts::suits(s.out_channels, s.in_channels);
  const bool reads_little = s.in_channels <= kMaxIn && s.batch * s.out_pixels() >= kMinPixels;
  return s.in_channels * s.out_channels <= kMaxWeights && (c.is(ConvolutionPass::kBackwardInput) || reads_little);
}

}  // namespace

const ConvolutionMethod kPointwise = {"pointwise", can, pays, make};

}  // namespace tern::kernels::TERN_CPU
