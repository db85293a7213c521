#pragma once
// The bytes of weights, from a file to memory and back.

#include <functional>
#include <string>

#include "tern/models/onnx/graph.h"

namespace tern::onnx {

/// Reads those tensors whose bytes cannot be used where the file is mapped, because of their alignment, from the file
/// into memory of their own: at once, by several threads.
void read_tensors(const std::string& model, const std::vector<TensorData*>& tensors);

/// A tensor and the place in the model's files where its bytes belong.
struct PlacedTensor {
  std::string name;
  Place place;
  int32_t element = kUndefined;
  Tensor tensor;
};
/// Copies the files of the model at `source` to `target`, with the bytes of these tensors.
void write_tensors(const std::string& source, const std::string& target, const std::vector<PlacedTensor>& tensors);

}  // namespace tern::onnx
