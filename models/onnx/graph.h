#pragma once
// What an ONNX file holds, without protobuf's types.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tern/core/io/mapped_file.h"
#include "tern/core/tensor.h"
#include "tern/models/onnx/element.h"
#include "tern/models/onnx/onnx.h"

namespace tern::onnx {

/// Where bytes of a tensor are in a file, so that they can be written back.
struct Place {
  std::string file = {};  // of external data, relative to the model's folder; empty: the model itself
  int64_t offset = -1;    // -1: the file has them in another form
  int64_t bytes = 0;
};

/// A tensor of the file. Its data is row-major and little-endian, as raw_data is, and checked against the dims.
struct TensorData {
  std::string name = {};
  int32_t element = kUndefined;
  std::vector<int64_t> dims = {};
  const char* data = nullptr;  // null while it is only in the file (read_tensors())
  int64_t bytes = 0;
  std::shared_ptr<const void> owner = {};  // of data
  std::vector<std::string> strings = {};
  Place place = {};
  bool is_restored = false;  // not in the file (restore_biases())

  int64_t numel() const;
  /// A tensor of storage_of(element): on the data itself where it is aligned and the types are equal. Throws Error of
  /// an element type that is not supported.
  Tensor tensor() const;
};

struct GraphDef;

enum class AttributeKind : uint8_t { kInt, kFloat, kString, kTensor, kGraph, kInts, kFloats, kStrings, kOther };

struct Attribute {
  AttributeKind kind = AttributeKind::kOther;
  int64_t i = 0;
  double f = 0;
  std::string s = {};
  std::vector<int64_t> ints = {};
  std::vector<double> floats = {};
  std::vector<std::string> strings = {};
  std::shared_ptr<TensorData> tensor = {};
  std::shared_ptr<GraphDef> graph = {};
  std::string reference = {};  // of a function's body: the attribute of the caller that it stands for
  const char* what = "";       // of kOther, for messages
};

struct NodeDef {
  int64_t opset = 0;  // of its domain; 0: the one that the model imports
  std::string name = {}, op = {}, domain = {}, overload = {};
  std::vector<std::string> inputs = {}, outputs = {};
  std::map<std::string, Attribute> attributes = {};
  std::string scope = {};  // PyTorch's name of the module that the node is of, where its exporter says so

  /// "node 'name' (Op of domain, opset 17)"; without a name its first output's.
  std::string describe(int64_t opset) const;
};

struct GraphDef {
  std::string name = {};
  std::vector<std::shared_ptr<NodeDef>> nodes = {};
  std::vector<std::shared_ptr<TensorData>> initializers = {};
  std::vector<ValueInfo> inputs = {}, outputs = {};
  /// Names of PyTorch's parameters and buffers, where its exporter says them.
  std::map<std::string, bool> torch_names = {};  // true: of a parameter
};

struct FunctionDef {
  std::string name = {}, domain = {}, overload = {};
  std::vector<std::string> inputs = {}, outputs = {};
  std::vector<std::string> attributes = {};
  std::map<std::string, Attribute> defaults = {};
  std::vector<std::shared_ptr<NodeDef>> nodes = {};
  std::map<std::string, int64_t> opsets = {};
};

struct ModelDef {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets = {};  // ONNX's own domain is ""
  std::map<std::string, std::string> metadata = {};
  std::vector<FunctionDef> functions = {};
  GraphDef graph = {};
  /// The file itself (under the name "") and those of its external data.
  std::map<std::string, std::shared_ptr<MappedFile>> files = {};
};

/// "ai.onnx" is the domain without a name.
inline std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

}  // namespace tern::onnx
