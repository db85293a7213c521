#pragma once
// Reading of ONNX files.

#include <string>

#include "tern/models/onnx/graph.h"

namespace tern::onnx {

/// The model of a file. The bytes of its tensors are those of the mapped file, or of mapped external files, unless
/// read_tensors() replaces them. Errors: onnx.h. Throws Error in a build without TERN_ONNX.
ModelDef read_model(const std::string& path);

}  // namespace tern::onnx
