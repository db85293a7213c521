#pragma once
// The nodes of ONNX for those of a graph.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tern/core/graph/graph.h"
#include "tern/models/onnx/graph.h"

namespace tern::onnx {

using Attributes = std::map<std::string, Attribute>;
Attribute attribute(int64_t value);
Attribute attribute(double value);
Attribute attribute(const std::string& value);
Attribute attribute(const std::vector<int64_t>& values);

class Exporter {
 public:
  Exporter(const Graph& graph, int64_t opset);
  ModelDef run();

  // For the functions of ops.

  int64_t opset() const { return opset_; }
  const Graph::Value& info(int value) const { return graph_.values()[static_cast<size_t>(value)]; }
  /// The name of a value in the file; "" of -1.
  std::string name(int value);
  /// Says under which name a value is in the file.
  void set(int value, const std::string& name) { names_[value] = name; }
  /// Adds a node; the names of its results.
  std::string node(const std::string& op, const std::vector<std::string>& inputs, const Attributes& attributes = {});
  std::vector<std::string> nodes(const std::string& op, const std::vector<std::string>& inputs, size_t outputs,
                                 const Attributes& attributes = {});
  /// Names of new constants.
  std::string constant(const Tensor& tensor);
  std::string integers(const std::vector<int64_t>& values);
  std::string scalar(double value, DType dtype);
  std::string cast(const std::string& x, DType from, DType to);
  /// A vector of sizes. of_reshape: -1 may stand for one of them.
  std::string sizes(const std::vector<SymbolicSize>& values, bool of_reshape = false);
  std::string reshape(const std::string& x, const std::vector<SymbolicSize>& shape);
  std::string transpose(const std::string& x, const std::vector<int64_t>& order);
  std::string reduce(const std::string& op, const std::string& x, const std::vector<int64_t>& axes, bool keepdims);
  /// Throws Error for the node that is being written.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  std::string fresh(const std::string& stem);
  std::string size(const SymbolicSize& value);
  std::string symbol(int index);
  ValueInfo value_info(int value);
  void name_outputs();
  void drop_unused();

  const Graph& graph_;
  const int64_t opset_;
  const Graph::Node* current_ = nullptr;
  ModelDef model_;
  std::map<int, std::string> names_;
  std::set<std::string> used_;
  std::map<std::string, std::string> constants_;  // by their bytes
  std::map<int, std::string> symbols_;
  int64_t next_ = 0;
};

using ExportFunction = void (*)(Exporter&, const Graph::Node&, const std::vector<GraphArgument>&);
/// The functions of ops by the ops' names.
using ExportTable = std::map<std::string, ExportFunction>;
void add_pointwise(ExportTable& table);
void add_structured(ExportTable& table);
void add_networks(ExportTable& table);
void add_images(ExportTable& table);

/// Writes a model whose tensors have data. Throws Error in a build without TERN_ONNX.
void write_model(const ModelDef& model, const std::string& path, int64_t most_bytes_inside);

}  // namespace tern::onnx
