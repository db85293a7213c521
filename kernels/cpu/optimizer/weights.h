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

/// Updates `size` <= kTile elements of a tensor at `at`: update(weights) gets them in compute type.
template <class F, class W, class Update>
void update_stored(const OptimizerTensor& tensor, int64_t at, int64_t size, const Update& update) {
  W* stored = static_cast<W*>(tensor.weight) + at;
  if constexpr (std::is_same_v<W, F>) {
    update(stored);
  } else if (tensor.master) {
    F* master = static_cast<F*>(tensor.master) + at;
    update(master);
    narrow(master, stored, size);
  } else {
    F values[kTile];
    if constexpr (std::is_same_v<W, BFloat16>) {
      if (tensor.compensation) {
        BFloat16* compensation = static_cast<BFloat16*>(tensor.compensation) + at;
        load_compensated(stored, compensation, values, size);
        update(values);
        return store_compensated(values, stored, compensation, size);
      }
    }
    for (int64_t i = 0; i < size; ++i) values[i] = static_cast<F>(stored[i]);
    update(values);
    narrow(values, stored, size);
  }
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
