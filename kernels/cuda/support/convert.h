#pragma once
// Conversion between storage types and compute types, rounding to nearest even; by hardware instructions on the device.

#include "tern/kernels/cuda/support/vector.h"
#include "tern/kernels/types.h"

namespace tern::kernels::cuda {

template <class T>
__device__ inline ComputeType<T> to_compute(T value) {
  return static_cast<ComputeType<T>>(value);
}
template <class T>
__device__ inline T from_compute(ComputeType<T> value) {
  return static_cast<T>(value);
}

/// Two values in one register, `low` in the lower half, as in mma fragments. T is Float16 or BFloat16.
template <class T>
__device__ inline uint32_t pack2(float low, float high) {
  static_assert(std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, "pack2: a 16-bit floating type");
#ifdef TERN_SIMT
  return T(low).bits | static_cast<uint32_t>(T(high).bits) << 16;
#else
  uint32_t packed;
  if constexpr (std::is_same_v<T, Float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#endif
}

/// Conversion of whole vectors. 16-bit storage is rounded two values per instruction.
template <class T, int N>
__device__ inline Vector<ComputeType<T>, N> to_compute(Vector<T, N> values) {
  Vector<ComputeType<T>, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result.v[i] = to_compute(values.v[i]);
  return result;
}
template <class T, int N>
__device__ inline Vector<T, N> from_compute(Vector<ComputeType<T>, N> values) {
  if constexpr (sizeof(T) == 2 && std::is_same_v<ComputeType<T>, float> && N % 2 == 0) {
    Vector<uint32_t, N / 2> packed;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) packed.v[i] = pack2<T>(values.v[2 * i], values.v[2 * i + 1]);
    return std::bit_cast<Vector<T, N>>(packed);
  } else {
    Vector<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result.v[i] = from_compute<T>(values.v[i]);
    return result;
  }
}

}  // namespace tern::kernels::cuda
