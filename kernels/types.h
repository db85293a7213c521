#pragma once
// Element types: the eight storage types, the two 16-bit floating-point formats, and their compute types.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__CUDACC__) || defined(TERN_SIMT)
#define TERN_HD __host__ __device__
#else
#define TERN_HD
#endif

namespace tern {

enum class DType : uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool };

inline constexpr DType float64 = DType::kFloat64;
inline constexpr DType float32 = DType::kFloat32;
inline constexpr DType bfloat16 = DType::kBFloat16;
inline constexpr DType float16 = DType::kFloat16;
inline constexpr DType int64 = DType::kInt64;
inline constexpr DType int32 = DType::kInt32;
inline constexpr DType uint8 = DType::kUInt8;
inline constexpr DType boolean = DType::kBool;

/// 8 exponent bits and 7 mantissa bits: the upper half of a float. Conversion rounds to nearest even and keeps NaN.
/// CUDA converts by an instruction with the same values, except that every NaN becomes the canonical one.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  TERN_HD explicit BFloat16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    bits = static_cast<uint16_t>((value != value ? u | 0x400000u : rounded) >> 16);  // a NaN becomes quiet
#endif
  }
  TERN_HD explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16. Conversion rounds to nearest even, overflows to infinity and keeps subnormals and NaN.
/// The conversions are branch-free so that loops over them vectorise at every CPU level.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  TERN_HD explicit Float16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    // Normal result: rebias the exponent from 127 to 15 and round the 13 dropped bits to nearest even.
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal result: adding 0.5 aligns the mantissa so that the hardware's rounding is correct.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - 0x3f000000u;
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    bits = static_cast<uint16_t>(sign | result);
#endif
  }
  TERN_HD explicit operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    // Multiplying by 2^112 rebiases the exponent and normalises subnormals; infinity and NaN keep a full exponent.
    const float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled) | special);
#endif
  }
};

/// Size of one element in bytes.
constexpr int64_t size_of(DType dtype) {
  constexpr int64_t sizes[] = {8, 4, 2, 2, 8, 4, 1, 1};
  return sizes[static_cast<int>(dtype)];
}
/// "float32", "bfloat16", ... (PyTorch's names without the prefix).
constexpr const char* name_of(DType dtype) {
  constexpr const char* names[] = {"float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool"};
  return names[static_cast<int>(dtype)];
}
constexpr bool is_floating(DType dtype) { return dtype <= DType::kFloat16; }
constexpr bool is_low_precision(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

/// The DType of a C++ type.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::kFloat64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::kBFloat16;
  else if constexpr (std::is_same_v<T, Float16>)
    return DType::kFloat16;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::kInt64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::kInt32;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::kUInt8;
  else {
    static_assert(std::is_same_v<T, bool>, "no DType stores this type");
    return DType::kBool;
  }
}

/// The type in which values of T are computed: float for 16-bit storage, otherwise T.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

/// Calls f.template operator()<T>() with T the C++ type of a floating dtype. The only switch over floating dtypes.
/// The caller has checked that dtype is floating.
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kBFloat16:
      return f.template operator()<BFloat16>();
    case DType::kFloat16:
      return f.template operator()<Float16>();
    default:
      return f.template operator()<float>();
  }
}

/// Like dispatch_float, for every storage type.
template <class F>
decltype(auto) dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt64:
      return f.template operator()<int64_t>();
    case DType::kInt32:
      return f.template operator()<int32_t>();
    case DType::kUInt8:
      return f.template operator()<uint8_t>();
    case DType::kBool:
      return f.template operator()<bool>();
    default:
      return dispatch_float(dtype, static_cast<F&&>(f));
  }
}

}  // namespace tern
