#pragma once
// The epilogue of a linear layer's product: bias, activation, conversion.

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/pointwise/activation.h"

namespace tern::kernels::TERN_CPU {

template <Activation kActivation, class F>
inline F activated(F x) {
  if constexpr (kActivation == Activation::kGelu) return Gelu().forward(x);
  if constexpr (kActivation == Activation::kRelu) return Relu().forward(x);
  return x;
}

/// Calls f.template operator()<activation>().
template <class Function>
void with_activation(Activation activation, const Function& f) {
  if (activation == Activation::kGelu) return f.template operator()<Activation::kGelu>();
  if (activation == Activation::kRelu) return f.template operator()<Activation::kRelu>();
  f.template operator()<Activation::kNone>();
}

/// pre = result + bias, y = activation(result + bias) for n elements. bias and pre may be null, result may be pre or y.
template <Activation kActivation, class F>
void finish(const F* result, const F* bias, int64_t n, F* pre, F* y) {
  // One loop per case: GCC does not vectorise all cases of a single loop.
  const auto loop = [&]<bool kBias, bool kPre>() {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const F sum = kBias ? result[i] + bias[i] : result[i];
      if constexpr (kPre) pre[i] = sum;
      y[i] = activated<kActivation>(sum);
    }
  };
  if (bias && pre) return loop.template operator()<true, true>();
  if (bias) return loop.template operator()<true, false>();
  if (pre) return loop.template operator()<false, true>();
  loop.template operator()<false, false>();
}

/// Like finish, for `rows` rows of results `stride` apart; pre and y are stored as T.
template <class T, class F>
void finish_rows(int64_t rows, int64_t cols, const F* result, int64_t stride, const F* bias, Activation activation,
                 T* pre, T* y) {
  with_activation(activation, [&]<Activation kActivation>() {
    for (int64_t r = 0; r < rows; ++r, result += stride, y += cols, pre += pre ? cols : 0) {
      if constexpr (std::is_same_v<T, F>) {
        finish<kActivation>(result, bias, cols, pre, y);
      } else {
        F sums[kTile], values[kTile];
        for (int64_t j = 0; j < cols; j += kTile) {
          const int64_t n = std::min(kTile, cols - j);
          finish<kActivation, F>(result + j, bias ? bias + j : nullptr, n, pre ? sums : nullptr, values);
          if (pre) narrow(sums, pre + j, n);
          narrow(values, y + j, n);
        }
      }
    }
  });
}

/// The bias in the compute type: unchanged, or converted into `buffer`; null if absent.
template <class F>
const F* wide_bias(const ConstView& bias, F* buffer) {
  if (!bias) return nullptr;
  return dispatch_float(bias.dtype, [&]<class B>() { return widen<F>(bias.as<B>(), buffer, bias.numel()); });
}

/// Packed products always add a bias, so that each shape needs one product: `bias`, or n zeros in `buffer` if it is
/// null.
inline const float* or_zeros(const float* bias, int64_t n, float* buffer) {
  return bias ? bias : std::fill_n(buffer, n, 0.0f) - n;
}

/// Calls function.template operator()<T>() for the dtypes that RowBlocks supports.
template <class Function>
void dispatch_blocks(DType dtype, const Function& function) {
  if (dtype == DType::kBFloat16) return function.template operator()<BFloat16>();
  function.template operator()<float>();
}

}  // namespace tern::kernels::TERN_CPU
