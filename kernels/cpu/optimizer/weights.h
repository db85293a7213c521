#pragma once
// Weights in the type of the arithmetic, as optimizer updates read and write them. Included only by kernels/cpu.

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/optimizer/optimizer.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// values = weight + compensation, and back: the rounded weight, and the rounding error.
inline void load_compensated(const BFloat16* weight, const BFloat16* compensation, float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(weight[i]) + static_cast<float>(compensation[i]);
}
inline void store_compensated(const float* values, BFloat16* weight, BFloat16* compensation, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    weight[i] = BFloat16(values[i]);
    compensation[i] = BFloat16(values[i] - static_cast<float>(weight[i]));
  }
}

/// n <= kTile weights at `at` in the compute type F: the stored ones or their fp32 copy where one of them has that
/// type, else `tile`, which is filled. One function for all types of weights: what uses the values is compiled once for
/// each F.
template <class F>
F* load_weights(const OptimizerTensor& tensor, int64_t at, int64_t n, F* tile) {
  if (tensor.master) return static_cast<F*>(tensor.master) + at;
  F* values = tile;
  dispatch_float(tensor.weight_dtype, [&]<class W>() {
    W* stored = static_cast<W*>(tensor.weight) + at;
    if constexpr (std::is_same_v<W, F>) {
      values = stored;
    } else if constexpr (std::is_same_v<ComputeType<W>, F>) {
      if constexpr (std::is_same_v<W, BFloat16>) {
        if (tensor.compensation)
          return load_compensated(stored, static_cast<const BFloat16*>(tensor.compensation) + at, tile, n);
      }
      for (int64_t i = 0; i < n; ++i) tile[i] = static_cast<F>(stored[i]);
    }
  });
  return values;
}

/// Stores what load_weights() gave and the caller changed.
template <class F>
void store_weights(const OptimizerTensor& tensor, int64_t at, int64_t n, const F* values) {
  dispatch_float(tensor.weight_dtype, [&]<class W>() {
    W* stored = static_cast<W*>(tensor.weight) + at;
    if constexpr (!std::is_same_v<W, F> && std::is_same_v<ComputeType<W>, F>) {
      if constexpr (std::is_same_v<W, BFloat16>) {
        if (tensor.compensation && !tensor.master)
          return store_compensated(values, stored, static_cast<BFloat16*>(tensor.compensation) + at, n);
      }
      narrow(values, stored, n);
    }
  });
}

/// n <= kTile gradients at `at`, times `factor`.
template <class F>
void load_gradients(const OptimizerTensor& tensor, int64_t at, int64_t n, F factor, F* gradients) {
  dispatch_float(tensor.gradient_dtype, [&]<class G>() {
    const G* from = static_cast<const G*>(tensor.gradient) + at;
    for (int64_t i = 0; i < n; ++i) gradients[i] = factor * static_cast<F>(static_cast<ComputeType<G>>(from[i]));
  });
}

/// Updates n <= kTile elements of a tensor at `at`: update(weights) gets them in the compute type.
template <class F, class Update>
void update_stored(const OptimizerTensor& tensor, int64_t at, int64_t n, const Update& update) {
  alignas(64) F tile[kTile];
  F* weights = load_weights(tensor, at, n, tile);
  update(weights);
  store_weights(tensor, at, n, weights);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
