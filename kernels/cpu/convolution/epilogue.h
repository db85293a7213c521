#pragma once
// What follows the sums of a convolution, on a piece of the result that is in cache. Included only by
// kernels/cpu.

#include <algorithm>

#include "tern/kernels/convolution/convolution.h"
#include "tern/kernels/cpu/rows.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// fp32 [channels] of a bias of any type; zeros without one.
inline const float* wide_bias(const ConstView& bias, int64_t channels, float* memory) {
  if (!bias) return std::fill_n(memory, channels, 0.0f), memory;
  return dispatch_float(bias.dtype, [&]<class T>() -> const float* {
    if constexpr (std::is_same_v<T, float>) return bias.as<float>();
    for (int64_t i = 0; i < bias.numel(); ++i) memory[i] = static_cast<float>(bias.as<T>()[i]);
    return memory;
  });
}

/// ReLU of bfloat16 without conversions: what is not negative, and NaN, keeps its bits.
inline void relu_bits(uint16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] < 0x8000 || y[i] > 0xff80 ? y[i] : uint16_t{0};
}

/// y = activation(y + residual) for n elements; residual may be null.
template <class T>
[[gnu::noinline]] void add_and_activate(ImageActivation activation, const T* residual, T* y, int64_t n) {
  using F = ComputeType<T>;
  if constexpr (std::is_same_v<T, BFloat16>)
    if (activation == ImageActivation::kRelu && !residual) return relu_bits(reinterpret_cast<uint16_t*>(y), n);
  with_image_activation(activation, [&](const auto& act) {
    if (residual)
      map_row<F>(
          y, n, [&](F z, F r) { return act.forward(z + r); }, y, residual);
    else
      map_row<F>(
          y, n, [&](F z) { return act.forward(z); }, y);
  });
}

/// What follows the bias, for elements [first, first + n) of y, fp32 or bfloat16. oneDNN's ReLU makes 0 of NaN, so this
/// is no part of its primitives.
inline void apply_epilogue(const ConvolutionEpilogue& epilogue, const View& y, int64_t first, int64_t n) {
  if (!epilogue.continues()) return;
  const auto apply = [&]<class T>() {
    const T* const residual = epilogue.residual ? epilogue.residual.as<T>() + first : nullptr;
    add_and_activate<T>(epilogue.activation, residual, y.as<T>() + first, n);
  };
  y.dtype == DType::kFloat32 ? apply.operator()<float>() : apply.operator()<BFloat16>();
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
