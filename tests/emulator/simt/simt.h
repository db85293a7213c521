#pragma once
// The part of CUDA C++ that kernels may use, as plain C++: the emulated build includes this file before every .cu file
// (g++ -x c++ -include simt.h). Semantics follow the CUDA C++ Programming Guide. Undefined behaviour is an error where
// it can be detected, and otherwise gives recognisably wrong values. There are no float atomics: results must not
// depend on an order.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tern/tests/emulator/simt/launch.h"

#ifdef SIMT_WITH_CUDA_HEADERS
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#endif
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace simt {
struct Index {
  unsigned x, y, z;
};
}  // namespace simt

extern thread_local constinit simt::Index threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

#define SIMT_WHERE simt::Location where = simt::Location::current()

// --- barriers ---
inline void __syncthreads(SIMT_WHERE) { simt::block_barrier(simt::BarrierKind::kPlain, false, where); }
inline int __syncthreads_count(int predicate, SIMT_WHERE) {
  return simt::block_barrier(simt::BarrierKind::kCount, predicate != 0, where);
}
inline int __syncthreads_and(int predicate, SIMT_WHERE) {
  return simt::block_barrier(simt::BarrierKind::kAnd, predicate != 0, where);
}
inline int __syncthreads_or(int predicate, SIMT_WHERE) {
  return simt::block_barrier(simt::BarrierKind::kOr, predicate != 0, where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_WHERE) { simt::warp_barrier(mask, where); }
inline unsigned __activemask() { return simt::alive_lanes(); }
inline void __nanosleep(unsigned) { simt::yield(); }
// The atomics around a fence, which are sequentially consistent here, order the threads.
inline void __threadfence() {}
inline void __threadfence_block() {}

// --- shuffles and votes ---
namespace simt {
template <class T>
T shuffle_value(unsigned mask, T value, unsigned source, Location where) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "shuffles move up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, source, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
/// First lane of the calling lane's group of `width` lanes.
inline unsigned group_start(int width, Location where) {
  require(width >= 1 && width <= 32 && std::has_single_bit(static_cast<unsigned>(width)),
          "shuffle: the width must be a power of two up to 32", where);
  return lane() & ~static_cast<unsigned>(width - 1);
}
}  // namespace simt

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_WHERE) {
  const unsigned start = simt::group_start(width, where);
  return simt::shuffle_value(mask, value, start | (static_cast<unsigned>(source) & (width - 1)), where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_WHERE) {
  const unsigned lane = simt::lane(), start = simt::group_start(width, where);
  return simt::shuffle_value(mask, value, lane - start < delta ? lane : lane - delta, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_WHERE) {
  const unsigned lane = simt::lane(), end = simt::group_start(width, where) + width;
  return simt::shuffle_value(mask, value, end - lane <= delta ? lane : lane + delta, where);
}
/// May read from earlier groups, but not from later ones.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SIMT_WHERE) {
  const unsigned lane = simt::lane(), source = lane ^ static_cast<unsigned>(lane_mask);
  const unsigned end = simt::group_start(width, where) + width;
  return simt::shuffle_value(mask, value, source >= end ? lane : source, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, predicate != 0, simt::Vote::kBallot, where));
}
inline int __any_sync(unsigned mask, int predicate, SIMT_WHERE) {
  return simt::vote(mask, predicate != 0, simt::Vote::kBallot, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SIMT_WHERE) {
  return simt::vote(mask, predicate == 0, simt::Vote::kBallot, where) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, SIMT_WHERE) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "match: 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return static_cast<unsigned>(simt::vote(mask, bits, simt::Vote::kMatch, where));
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, value, simt::Vote::kAdd, where));
}
inline int __reduce_add_sync(unsigned mask, int value, SIMT_WHERE) {
  return static_cast<int>(simt::vote(mask, static_cast<unsigned>(value), simt::Vote::kAdd, where));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, value, simt::Vote::kUnsignedMin, where));
}
inline int __reduce_min_sync(unsigned mask, int value, SIMT_WHERE) {
  return static_cast<int>(simt::vote(mask, static_cast<uint64_t>(int64_t{value}), simt::Vote::kMin, where));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, value, simt::Vote::kUnsignedMax, where));
}
inline int __reduce_max_sync(unsigned mask, int value, SIMT_WHERE) {
  return static_cast<int>(simt::vote(mask, static_cast<uint64_t>(int64_t{value}), simt::Vote::kMax, where));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, value, simt::Vote::kAnd, where));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, value, simt::Vote::kOr, where));
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, SIMT_WHERE) {
  return static_cast<unsigned>(simt::vote(mask, value, simt::Vote::kXor, where));
}

// --- atomics on integers of 4 and 8 bytes ---
namespace simt {
template <class T, class F>
T atomic_update(T* address, F update) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "atomics: integers of 4 or 8 bytes");
  std::atomic_ref<T> value(*address);
  T old = value.load();
  while (!value.compare_exchange_weak(old, update(old))) {
  }
  return old;
}
}  // namespace simt

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  using U = std::make_unsigned_t<T>;  // wraps, as on the device
  return simt::atomic_update(address,
                             [=](T old) { return static_cast<T>(static_cast<U>(old) + static_cast<U>(value)); });
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  using U = std::make_unsigned_t<T>;
  return simt::atomic_update(address,
                             [=](T old) { return static_cast<T>(static_cast<U>(old) - static_cast<U>(value)); });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return simt::atomic_update(address, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return simt::atomic_update(address, [=](T old) { return std::min(old, value); });
}
template <class T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return simt::atomic_update(address, [=](T old) { return static_cast<T>(old & value); });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return simt::atomic_update(address, [=](T old) { return static_cast<T>(old | value); });
}
template <class T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return simt::atomic_update(address, [=](T old) { return static_cast<T>(old ^ value); });
}
/// Returns the old value and increments, from `limit` to 0.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return simt::atomic_update(address, [=](unsigned old) { return old >= limit ? 0u : old + 1; });
}
// Callers of these two may be waiting in a loop for another thread, so other threads run first.
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T old = simt::atomic_update(address, [=](T) { return value; });
  simt::yield();
  return old;
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = simt::atomic_update(address, [=](T current) { return current == expected ? value : current; });
  simt::yield();
  return old;
}

// --- loads and stores with a cache hint ---
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value) {
  *p = value;
}

// --- numbers and bits ---
using std::max;
using std::min;
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
