// Rotary embeddings: the sines of a token are computed once for all heads.

#include "tern/kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tern/kernels/cpu/simd/tile.h"
#include "tern/kernels/math/math.h"
#include "tern/kernels/math/near.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 16384;  // elements per parallel block

/// Angles are in [-pi, pi]: there the functions of Near, whose loops vectorise, are right.
template <class F>
using Angle = std::conditional_t<std::is_same_v<F, float>, math::Near, F>;

template <class F>
struct Rotation {
  int64_t pairs;
  F cosines[RotaryParams::kMaxPairs], sines[RotaryParams::kMaxPairs];

  Rotation(const RotaryParams& params, int64_t position) : pairs(params.pairs) {
    const F sign = params.inverse ? F(-1) : F(1);
    F angles[RotaryParams::kMaxPairs];
    for (int64_t i = 0; i < pairs; ++i) {
      const double turns = static_cast<double>(position) * params.turns[i];
      angles[i] = static_cast<F>(2 * std::numbers::pi * (turns - std::nearbyint(turns)));
    }
    for (int64_t i = 0; i < pairs; ++i) {
      cosines[i] = static_cast<F>(math::cos(Angle<F>(angles[i])));
      sines[i] = sign * static_cast<F>(math::sin(Angle<F>(angles[i])));
    }
  }

  /// Rotates all pairs: pair i is elements i * kStep and i * kStep + distance.
  template <int64_t kStep>
  void rotate(F* __restrict x, int64_t distance) const {
#pragma GCC ivdep
    for (int64_t i = 0; i < pairs; ++i) {
      const F x0 = x[i * kStep], x1 = x[i * kStep + distance];
      x[i * kStep] = x0 * cosines[i] - x1 * sines[i];
      x[i * kStep + distance] = x0 * sines[i] + x1 * cosines[i];
    }
  }
};

template <class T>
void rotate_token(const RotaryParams& params, const T* x, int64_t head_stride, int64_t heads, int64_t head_dim,
                  int64_t position, T* y) {
  using F = ComputeType<T>;
  constexpr int64_t kMax = 2 * RotaryParams::kMaxPairs;
  const Rotation<F> rotation(params, position);
  const int64_t rotated = 2 * params.pairs;
  F row[kMax];
  for (int64_t h = 0; h < heads; ++h) {
    const T* from = x + h * head_stride;
    T* to = y + h * head_dim;
    convert_strided<T, F>(from, 1, row, 1, rotated);
    if (params.interleaved)
      rotation.template rotate<2>(row, 1);
    else
      rotation.template rotate<1>(row, params.pairs);
    convert_strided<F, T>(row, 1, to, 1, rotated);
    std::copy(from + rotated, from + head_dim, to + rotated);
  }
}

}  // namespace

void rotary(Stream, const RotaryParams& params, ConstView x, ConstView positions, View y, IndexFault* fault) {
  const int64_t tokens = x.shape[0], heads = x.shape[1], head_dim = x.shape[2], size = heads * head_dim;
  if (size == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    parallel_for(tokens, std::max<int64_t>(1, kBlock / size), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t position =
            positions.dtype == DType::kInt32 ? positions.as<int32_t>()[t] : positions.as<int64_t>()[t];
        T* to = y.as<T>() + t * size;
        if (position >= 0) {
          rotate_token(params, x.as<T>() + t * x.strides[0], x.strides[1], heads, head_dim, position, to);
        } else {
          std::fill_n(to, size, T(0.0f));
          fault->report(t);
        }
      }
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
