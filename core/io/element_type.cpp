#include "tern/core/io/element_type.h"

#include <algorithm>
#include <cstring>

namespace tern::detail {
namespace {

constexpr ElementType kElements[] = {
    {"float64", "Double", "f8", 8, true, float64},
    {"float32", "Float", "f4", 4, true, float32},
    {"bfloat16", "BFloat16", nullptr, 2, true, bfloat16},
    {"float16", "Half", "f2", 2, true, float16},
    {"int64", "Long", "i8", 8, true, int64},
    {"int32", "Int", "i4", 4, true, int32},
    {"uint8", "Byte", "u1", 1, true, uint8},
    {"bool", "Bool", "b1", 1, true, boolean},
    {"int16", "Short", "i2", 2, true, int32},
    {"int8", "Char", "i1", 1, true, int32},
    {"uint16", nullptr, "u2", 2, true, int32},
    {"uint32", nullptr, "u4", 4, true, int64},
    {"uint64", nullptr, "u8", 8, false},
    {"complex64", "ComplexFloat", "c8", 8, false},
    {"complex128", "ComplexDouble", "c16", 16, false},
    {"complex32", "ComplexHalf", nullptr, 4, false},
    {"qint8", "QInt8", nullptr, 1, false},
    {"quint8", "QUInt8", nullptr, 1, false},
    {"qint32", "QInt32", nullptr, 4, false},
    {"float8_e4m3fn", nullptr, nullptr, 1, false},
    {"float8_e4m3fnuz", nullptr, nullptr, 1, false},
    {"float8_e5m2", nullptr, nullptr, 1, false},
    {"float8_e5m2fnuz", nullptr, nullptr, 1, false},
    {"float8_e8m0fnu", nullptr, nullptr, 1, false},
    {"float4_e2m1fn_x2", nullptr, nullptr, 1, false},
    {"quint4x2", "QUInt4x2", nullptr, 1, false},
    {"quint2x4", "QUInt2x4", nullptr, 1, false},
    {"bits1x8", nullptr, nullptr, 1, false},
    {"bits2x4", nullptr, nullptr, 1, false},
    {"bits4x2", nullptr, nullptr, 1, false},
    {"bits8", nullptr, nullptr, 1, false},
    {"bits16", nullptr, nullptr, 2, false},
    {"uint1", nullptr, nullptr, 1, false},
    {"uint2", nullptr, nullptr, 1, false},
    {"uint3", nullptr, nullptr, 1, false},
    {"uint4", nullptr, nullptr, 1, false},
    {"uint5", nullptr, nullptr, 1, false},
    {"uint6", nullptr, nullptr, 1, false},
    {"uint7", nullptr, nullptr, 1, false},
    {"int1", nullptr, nullptr, 1, false},
    {"int2", nullptr, nullptr, 1, false},
    {"int3", nullptr, nullptr, 1, false},
    {"int4", nullptr, nullptr, 1, false},
    {"int5", nullptr, nullptr, 1, false},
    {"int6", nullptr, nullptr, 1, false},
    {"int7", nullptr, nullptr, 1, false},
};

const ElementType* find_element(const char* ElementType::*member, std::string_view wanted) {
  for (const ElementType& element : kElements)
    if (element.*member && element.*member == wanted) return &element;
  return nullptr;
}

}  // namespace

const ElementType* element_by_name(std::string_view name) { return find_element(&ElementType::name, name); }
const ElementType* element_by_storage(std::string_view name) { return find_element(&ElementType::storage, name); }
const ElementType* element_by_numpy(std::string_view code) { return find_element(&ElementType::numpy, code); }

bool needs_conversion(const ElementType& element, bool swapped, std::string_view bytes) {
  const auto is_bool = [](char byte) { return byte == 0 || byte == 1; };
  return (swapped && element.bytes > 1) || element.widened() ||
         (element.dtype == boolean && !std::all_of(bytes.begin(), bytes.end(), is_bool));
}

std::shared_ptr<Storage> converted(const ElementType& element, bool swapped, std::string_view bytes) {
  const auto from = static_cast<size_t>(element.bytes), to = static_cast<size_t>(size_of(element.dtype));
  const size_t numel = bytes.size() / from;
  auto storage = std::make_shared<Storage>(static_cast<int64_t>(numel * to), cpu);
  const bool is_signed = std::string_view(element.name).starts_with("int");
  for (size_t i = 0; i < numel; ++i) {
    uint64_t value = 0;
    for (size_t k = 0; k < from; ++k)
      value = value << 8 | static_cast<uint8_t>(bytes[i * from + (swapped ? k : from - 1 - k)]);
    if (is_signed && (value >> (8 * from - 1)) != 0 && from < 8) value |= UINT64_MAX << (8 * from);
    if (element.dtype == boolean) value = value != 0;
    std::memcpy(static_cast<char*>(storage->data()) + i * to, &value, to);
  }
  return storage;
}

}  // namespace tern::detail
