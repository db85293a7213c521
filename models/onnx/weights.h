#pragma once
// The bytes of weights, from a file to memory and back.

#include <functional>
#include <string>

#include "tern/models/onnx/graph.h"

namespace tern::onnx {

/// Reads those tensors whose bytes cannot be used where the file is mapped, because of their alignment, from the file
/// into memory of their own: at once, by several threads.
void read_tensors(const std::string& model, const std::vector<TensorData*>& tensors);

/// A weight to write.
struct SavedTensor {
  std::string name = {};
  std::string source = {};  // the file's tensor that it is, or comes from
  Place place = {};
  int32_t element = kUndefined;
  Tensor tensor = {};
  bool is_new = false;  // the file has it under another name, or has none
  /// Inputs of nodes that read it, each by the node's first output.
  std::vector<std::pair<std::string, size_t>> inputs = {};
};

/// A model's file, written to `target` with the bytes of these tensors in their places. A source is read where it is
/// mapped, so that it may have been removed meanwhile.
void patch_file_of(const MappedFile& source, const std::string& target, const std::vector<SavedTensor>& tensors);

/// Further changes of a file that is rewritten.
struct FileChanges {
  std::map<std::string, std::string> data_files = {};  // new names of files of external data
  std::vector<std::string> left_out = {};              // nodes that give what they read, by their first outputs
  std::map<std::string, std::string> metadata = {};    // entries that are added or replaced
  bool any() const { return !left_out.empty() || !metadata.empty() || !data_files.empty(); }
};

/// The same with a graph that is written anew: new tensors are added, and shapes are those of the tensors. Tensors of
/// external files stay there unless their size is another. Throws Error in a build without TERN_ONNX.
void rewrite_file(const MappedFile& source, const std::string& target, const std::vector<SavedTensor>& tensors,
                  const FileChanges& changes);

/// The files of external data (ModelDef::files) likewise, beside the target.
void patch_external_files(const std::map<std::string, std::shared_ptr<MappedFile>>& files, const std::string& target,
                          const std::vector<SavedTensor>& tensors, const FileChanges& changes);

/// A weight's elements as the file holds them: contiguous, on the host, of the element type.
Tensor tensor_as_saved(const SavedTensor& saved);

}  // namespace tern::onnx
