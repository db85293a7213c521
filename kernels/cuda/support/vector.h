#pragma once
// Memory accesses of up to 16 bytes by one instruction each; the emulator checks their alignment and counts them.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda {

/// N contiguous values, aligned to their size up to 16 bytes. N is a power of two. Larger ones are only for registers.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector {
  static_assert(N > 0 && (N & (N - 1)) == 0, "Vector: the length must be a power of two");
  T v[N];
};

/// Number of elements of T in the widest access.
template <class T>
inline constexpr int vector_width = static_cast<int>(16 / sizeof(T));

/// True when the pointer is aligned for 16-byte accesses. The rows of a matrix also need a stride that is a multiple of
/// 16 bytes.
TERN_HD inline bool aligned16(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

#ifndef TERN_SIMT
namespace detail {
// A struct would be copied member by member in 4-byte accesses: only built-in vector types give a single access.
template <size_t kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<4> {
  using Type = unsigned int;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};
template <class V>
using WordOf = typename Word<sizeof(V)>::Type;
}  // namespace detail
#endif

/// p[0..N) in one access; p is aligned to N elements.
template <int N, class T>
__device__ inline Vector<T, N> load_vector(const T* p, [[maybe_unused]] CallSite where = CallSite::current()) {
  using V = Vector<T, N>;
  static_assert(sizeof(V) <= 16, "load_vector: 16 bytes at most");
#ifdef TERN_SIMT
  simt::check_access(p, sizeof(V), simt::Access::kLoad, where);
  V result;
  std::memcpy(static_cast<void*>(&result), p, sizeof(V));
  return result;
#else
  return std::bit_cast<V>(*reinterpret_cast<const detail::WordOf<V>*>(p));
#endif
}

/// Like load_vector, for global memory that is constant while the kernel runs (ld.global.nc).
template <int N, class T>
__device__ inline Vector<T, N> load_readonly(const T* p, [[maybe_unused]] CallSite where = CallSite::current()) {
  using V = Vector<T, N>;
  static_assert(sizeof(V) <= 16, "load_readonly: 16 bytes at most");
#ifdef TERN_SIMT
  return load_vector<N>(p, where);
#else
  return std::bit_cast<V>(__ldg(reinterpret_cast<const detail::WordOf<V>*>(p)));
#endif
}

/// Writes p[0..N) in one access; p is aligned to N elements.
template <class T, int N>
__device__ inline void store_vector(T* p, Vector<T, N> value, [[maybe_unused]] CallSite where = CallSite::current()) {
  using V = Vector<T, N>;
  static_assert(sizeof(V) <= 16, "store_vector: 16 bytes at most");
#ifdef TERN_SIMT
  simt::check_access(p, sizeof(V), simt::Access::kStore, where);
  std::memcpy(static_cast<void*>(p), &value, sizeof(V));
#else
  // The optimiser splits wide stores written in C++. It knows the kind of memory, so no branch remains.
  using Word = detail::WordOf<V>;
  const Word word = std::bit_cast<Word>(value);
  if constexpr (sizeof(V) == 16) {
    if (__isGlobal(p))
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(word.x),
                   "r"(word.y), "r"(word.z), "r"(word.w)
                   : "memory");
    else
      asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                   : "memory");
  } else if constexpr (sizeof(V) == 8) {
    if (__isGlobal(p))
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(word.x), "r"(word.y)
                   : "memory");
    else
      asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(word.x), "r"(word.y) : "memory");
  } else {
    *reinterpret_cast<Word*>(p) = word;
  }
#endif
}

}  // namespace tern::kernels::cuda
