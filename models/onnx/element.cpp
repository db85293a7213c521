#include "tern/models/onnx/element.h"

#include <array>
#include <cmath>
#include <limits>

#include "tern/kernels/base/check.h"

namespace tern::onnx {
namespace {

struct ElementRow {
  const char* name;
  int bits;   // in a file
  int dtype;  // that stores it; -1: none
};

constexpr int stored(DType dtype) { return static_cast<int>(dtype); }

constexpr std::array kElements = {
    ElementRow{"undefined", 0, -1},
    ElementRow{"float", 32, stored(float32)},
    ElementRow{"uint8", 8, stored(uint8)},
    ElementRow{"int8", 8, stored(int32)},
    ElementRow{"uint16", 16, stored(int32)},
    ElementRow{"int16", 16, stored(int32)},
    ElementRow{"int32", 32, stored(int32)},
    ElementRow{"int64", 64, stored(int64)},
    ElementRow{"string", 0, -1},
    ElementRow{"bool", 8, stored(boolean)},
    ElementRow{"float16", 16, stored(float16)},
    ElementRow{"double", 64, stored(float64)},
    ElementRow{"uint32", 32, stored(int64)},
    ElementRow{"uint64", 64, stored(int64)},
    ElementRow{"complex64", 64, -1},
    ElementRow{"complex128", 128, -1},
    ElementRow{"bfloat16", 16, stored(bfloat16)},
    ElementRow{"float8e4m3fn", 8, stored(float32)},
    ElementRow{"float8e4m3fnuz", 8, stored(float32)},
    ElementRow{"float8e5m2", 8, stored(float32)},
    ElementRow{"float8e5m2fnuz", 8, stored(float32)},
    ElementRow{"uint4", 4, stored(int32)},
    ElementRow{"int4", 4, stored(int32)},
    ElementRow{"float4e2m1", 4, stored(float32)},
    ElementRow{"float8e8m0", 8, stored(float32)},
    ElementRow{"uint2", 2, stored(int32)},
    ElementRow{"int2", 2, stored(int32)},
};

bool is_known(int32_t element) { return element > 0 && element < static_cast<int32_t>(kElements.size()); }
const ElementRow& row_of(int32_t element) { return kElements[static_cast<size_t>(is_known(element) ? element : 0)]; }

}  // namespace

std::string element_name(int32_t element) {
  return is_known(element) ? row_of(element).name : "type " + std::to_string(element);
}

int element_bits(int32_t element) { return row_of(element).bits; }

bool is_supported(int32_t element) { return row_of(element).dtype >= 0; }

DType storage_of(int32_t element) {
  TERN_CHECK(is_supported(element), "elements of type ", element_name(element), " are not supported");
  return static_cast<DType>(row_of(element).dtype);
}

int32_t element_of(DType dtype) {
  constexpr int32_t elements[] = {kDouble, kFloat, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool};
  return elements[static_cast<int>(dtype)];
}

bool is_narrow(int32_t element) { return is_supported(element) && element_of(storage_of(element)) != element; }

bool is_integer(int32_t element) {
  switch (element) {
    case kUInt8:
    case kInt8:
    case kUInt16:
    case kInt16:
    case kInt32:
    case kInt64:
    case kUInt32:
    case kUInt64:
    case kUInt4:
    case kInt4:
    case kUInt2:
    case kInt2:
      return true;
    default:
      return false;
  }
}

bool is_small_float(int32_t element) {
  return (element >= kFloat8E4M3FN && element <= kFloat8E5M2FNUZ) || element == kFloat4E2M1 || element == kFloat8E8M0;
}

IntegerRange range_of(int32_t element) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  switch (element) {
    case kInt8:
    case kInt16:
    case kInt32:
    case kInt4:
    case kInt2: {
      const int64_t half = int64_t{1} << (element_bits(element) - 1);
      return {-half, half - 1};
    }
    case kUInt64:
      return {0, most};
    case kInt64:
      return {least, most};
    case kBool:
      return {0, 1};
    default:
      return {0, (int64_t{1} << element_bits(element)) - 1};
  }
}

float small_float_value(int32_t element, uint32_t bits) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  if (element == kFloat8E8M0) return bits == 255 ? nan : std::ldexp(1.0f, static_cast<int>(bits) - 127);
  struct Layout {
    int exponent, mantissa, bias;
  } layout{};
  switch (element) {
    case kFloat8E4M3FN:
      layout = {4, 3, 7};
      break;
    case kFloat8E4M3FNUZ:
      layout = {4, 3, 8};
      break;
    case kFloat8E5M2:
      layout = {5, 2, 15};
      break;
    case kFloat8E5M2FNUZ:
      layout = {5, 2, 16};
      break;
    default:
      layout = {2, 1, 1};
  }
  const int width = 1 + layout.exponent + layout.mantissa;
  const bool negative = ((bits >> (width - 1)) & 1u) != 0;
  const auto exponent = static_cast<int>((bits >> layout.mantissa) & ((1u << layout.exponent) - 1));
  const auto mantissa = static_cast<int>(bits & ((1u << layout.mantissa) - 1));
  const int top = (1 << layout.exponent) - 1;
  if (element == kFloat8E4M3FN && exponent == top && mantissa == 7) return nan;
  if (element == kFloat8E5M2 && exponent == top) return mantissa != 0 ? nan : negative ? -infinity : infinity;
  if ((element == kFloat8E4M3FNUZ || element == kFloat8E5M2FNUZ) && bits == 0x80) return nan;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - layout.bias - layout.mantissa)
                                        : std::ldexp(static_cast<float>(mantissa + (1 << layout.mantissa)),
                                                     exponent - layout.bias - layout.mantissa);
  return negative ? -magnitude : magnitude;
}

}  // namespace tern::onnx
