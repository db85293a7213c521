#pragma once
// ONNX's element types (TensorProto.DataType) and the dtypes that stand for them.

#include <cstdint>
#include <string>

#include "tern/kernels/types.h"

namespace tern::onnx {

/// Numbers of the specification.
enum Element : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBFloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUInt4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUInt2 = 25,
  kInt2 = 26
};

/// "float", "int8", ...; "type 99" of an unknown number.
std::string element_name(int32_t element);
/// The bits of an element in a file; 0 of strings and unknown types.
int element_bits(int32_t element);
/// Whether Tern has tensors that can stand for it.
bool is_supported(int32_t element);
/// The dtype of such tensors: integers that Tern does not have are stored in wider ones (uint64 in int64: smaller than
/// 2^63), floats of 8 and 4 bits in float32. Throws Error of one that is not supported.
DType storage_of(int32_t element);
/// The element type that a dtype has in ONNX.
int32_t element_of(DType dtype);
/// Whether its values are narrower than those of storage_of(): results must be brought into its range.
bool is_narrow(int32_t element);
/// The range of an integer type as stored, and whether it has a sign.
struct IntegerRange {
  int64_t low = 0, high = 0;
};
IntegerRange range_of(int32_t element);
bool is_integer(int32_t element);
/// Floats of 8 and 4 bits.
bool is_small_float(int32_t element);
/// The value of a small float's bits.
float small_float_value(int32_t element, uint32_t bits);

}  // namespace tern::onnx
