#pragma once
// Graphs as ONNX files.

#include <map>
#include <string>

#include "tern/core/graph/graph.h"

namespace tern::onnx {

struct SaveOptions {
  int64_t opset = 20;  // 17 to 23; from 20 Gelu is a node of its own, from 23 attention and RMS norm are too
  /// Weights of more bytes in all are written to PATH.data beside the model: a protobuf file ends at 2 GiB.
  int64_t most_bytes_inside = int64_t{1} << 30;
  std::map<std::string, std::string> metadata = {};
};

/// Writes a graph that trace() made: inputs, outputs and constants under their names, dynamic dimensions under those of
/// the symbols. The file is complete or not written at all. Errors: an op, or a form of one, that this opset does not
/// have and that is not made of others, by the name of the op and the shapes that it was called with; two values with
/// one name; a build without TERN_ONNX.
void save(const Graph& graph, const std::string& path, const SaveOptions& options = {});

}  // namespace tern::onnx
