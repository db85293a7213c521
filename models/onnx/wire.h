#pragma once
// The parts of protobuf's encoding that are read without protobuf: an ONNX file is scanned for the bytes of its
// tensors, which then are neither parsed nor copied.

#include <cstdint>
#include <string>
#include <string_view>

namespace tern::onnx {

/// A file's message without the bytes of tensors (raw_data, and packed float_data and double_data), whose place in
/// `file` each such TensorProto has in the fields place_offset and place_bytes instead. Error: the bytes are no
/// message, or its graphs are nested deeper than 64. The result is little longer than what remains of the file.
std::string without_tensor_bytes(std::string_view file);

}  // namespace tern::onnx
