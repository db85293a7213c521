#include <bit>
#include <cstring>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/graph.h"

namespace tern::onnx {
namespace {

/// Numbers of a type that Tern does not have, as those of a wider one.
template <class From, class To>
void widen(const TensorData& from, Tensor& to) {
  To* out = to.data<To>();
  for (int64_t i = 0; i < to.numel(); ++i) {
    From value;
    std::memcpy(&value, from.data + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    if constexpr (std::is_same_v<From, uint64_t>)
      TERN_CHECK(value >> 63 == 0, "a uint64 of 2^63 or more, ", value, ", is not supported");
    out[i] = static_cast<To>(value);
  }
}

/// Elements of less than a byte: the first in the lowest bits.
uint32_t bits_at(const TensorData& from, int64_t i, int bits) {
  const int64_t per_byte = 8 / bits;
  const auto byte = static_cast<uint8_t>(from.data[i / per_byte]);
  return (byte >> (i % per_byte * bits)) & ((1u << bits) - 1);
}

void widen_bits(const TensorData& from, Tensor& to) {
  const int bits = element_bits(from.element);
  const bool is_signed = range_of(from.element).low < 0;
  for (int64_t i = 0; i < to.numel(); ++i) {
    const uint32_t value = bits_at(from, i, bits);
    if (is_small_float(from.element)) {
      to.data<float>()[i] = small_float_value(from.element, value);
    } else {
      const bool negative = is_signed && (value >> (bits - 1)) != 0;
      to.data<int32_t>()[i] = static_cast<int32_t>(value) - (negative ? 1 << bits : 0);
    }
  }
}

}  // namespace

int64_t TensorData::numel() const {
  int64_t count = 1;
  for (const int64_t size : dims) count *= size;
  return count;
}

Tensor TensorData::tensor() const {
  const DType dtype = storage_of(element);
  const Shape shape(dims);
  const bool direct = !is_narrow(element);
  TERN_CHECK(data != nullptr || bytes == 0, "tensor '", name, "' has no data");
  if (direct && bytes > 0 && owner && element != kBool &&
      reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_of(dtype)) == 0)
    return from_blob(const_cast<char*>(data), shape, dtype, [keep = owner] {});  // NOLINT: private or own memory
  Tensor result = empty(shape, {.dtype = dtype});
  if (bytes == 0) return result;
  switch (element) {
    case kInt8:
      widen<int8_t, int32_t>(*this, result);
      break;
    case kInt16:
      widen<int16_t, int32_t>(*this, result);
      break;
    case kUInt16:
      widen<uint16_t, int32_t>(*this, result);
      break;
    case kUInt32:
      widen<uint32_t, int64_t>(*this, result);
      break;
    case kUInt64:
      widen<uint64_t, int64_t>(*this, result);
      break;
    case kBool:
      for (int64_t i = 0; i < result.numel(); ++i) result.data<bool>()[i] = data[i] != 0;
      break;
    default:
      if (direct)
        std::memcpy(result.raw_data(), data, static_cast<size_t>(bytes));
      else
        widen_bits(*this, result);
  }
  return result;
}

std::string NodeDef::describe(int64_t opset) const {
  std::string label = name;
  for (size_t i = 0; label.empty() && i < outputs.size(); ++i) label = outputs[i];
  return "node '" + label + "' (" + op + " of " + (domain.empty() ? "ai.onnx" : domain) + ", opset " +
         std::to_string(opset) + ")";
}

}  // namespace tern::onnx
