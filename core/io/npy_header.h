#pragma once
// The header of NumPy's .npy: six bytes of magic, two of version, a length and a Python dict of the array's type, order
// and shape. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. Internal to core/io.

#include <string>
#include <string_view>

#include "tern/core/io/element_type.h"
#include "tern/core/tensor.h"

namespace tern::detail {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyHeader {
  const ElementType* element = nullptr;  // null: `problem` says why
  bool swapped = false;                  // big-endian
  bool fortran_order = false;            // the first index changes fastest
  Shape shape;
  uint64_t begin = 0;   // of the elements in the file
  std::string problem;  // why Tern cannot read the array: "complex64 [2]: Tern has no complex64; ..."
};

/// Reads the header of `file`, an array with its header; nothing is evaluated. Errors, which begin with `where`: no
/// such header, a version other than 1.0, 2.0 and 3.0, a length beyond the file, anything but a dict of exactly descr,
/// fortran_order and shape, sizes that do not fit 64 bits.
NpyHeader read_npy_header(const std::string& where, std::string_view file);
/// The array of a file, whose header was read: on the bytes of the file, which `owner` keeps, or on a copy where they
/// are not aligned or needs_conversion(). Errors: bytes that are missing, or too many.
Tensor npy_tensor(const std::string& where, const NpyHeader& header, std::string_view file,
                  const std::shared_ptr<const void>& owner);
/// What NumPy writes in front of a row-major array of this shape; version 1.0, a multiple of 64 bytes.
std::string npy_header(const Shape& shape, DType dtype);

}  // namespace tern::detail
