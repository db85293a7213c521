#pragma once
// One evaluation of a node: what the functions of the table of ops are given.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/ops/ops.h"
#include "tern/models/onnx/graph.h"

namespace tern::onnx {

using Numbers = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

/// A value of a graph: a tensor, a sequence, or nothing (an absent optional value).
struct Value {
  Tensor tensor = {};
  int32_t element = kUndefined;                             // ONNX's type of the tensor's elements
  std::shared_ptr<const std::vector<Value>> sequence = {};  // of a sequence
  std::shared_ptr<std::map<int, Tensor>> copies = {};       // of a constant: on other devices
  bool is_buffer = false;                                   // of the module, which may be written to

  bool defined() const { return tensor.defined() || sequence; }
};

/// What all nodes of a run share.
struct Context {
  Device device = {};
  bool training = false;         // the module's mode
  bool train_inference = false;  // LoadOptions
  Generator* generator = nullptr;
};

struct StepMemory;

class Call {
 public:
  Call(const NodeDef& node, int64_t opset, const Context& context, std::vector<Value> inputs)
      : node_(node), opset_(opset), context_(context), inputs_(std::move(inputs)), outputs_(node.outputs.size()) {
    choose_device();
  }

  const NodeDef& node() const { return node_; }
  int64_t opset() const { return opset_; }
  const Context& context() const { return context_; }
  /// Where the node is computed: on the host if all its inputs are there, which shapes always are.
  Device device() const { return device_; }

  // Inputs. The functions for one throw Error when it is missing.
  size_t inputs() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i].defined(); }
  const Value& value(size_t i) const;
  int32_t element(size_t i) const { return value(i).element; }
  /// On device().
  Tensor in(size_t i) const;
  Tensor in_or_none(size_t i) const { return has(i) ? in(i) : Tensor(); }
  /// All that are there.
  Tensors all() const;
  /// Numbers (axes, sizes) that the host needs.
  template <class T = int64_t>
  std::vector<T> list(size_t i) const {
    const std::vector<int64_t> values = tensor(i).to_vector<int64_t>();
    return std::vector<T>(values.begin(), values.end());
  }
  double scalar(size_t i) const { return number_of(tensor(i)).item<double>(); }
  int64_t whole(size_t i) const { return number_of(tensor(i)).item<int64_t>(); }
  const std::vector<Value>& sequence(size_t i) const;
  /// Throws Error unless the inputs from `first` on are of one type. Floats may be of several, as in an autocast
  /// region.
  void check_types(size_t first = 0) const;

  // Attributes.
  const Attribute* attribute(const std::string& name) const;
  bool has_attribute(const std::string& name) const { return attribute(name) != nullptr; }
  int64_t integer(const std::string& name, int64_t otherwise) const;
  bool flag(const std::string& name, bool otherwise = false) const { return integer(name, otherwise) != 0; }
  double number(const std::string& name, double otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;
  Numbers numbers(const std::string& name, const Numbers& otherwise = {}) const;
  std::vector<double> reals(const std::string& name, const std::vector<double>& otherwise = {}) const;
  /// The attribute axis.
  int axis(int64_t otherwise) const { return dim_of(integer("axis", otherwise)); }
  static int dim_of(int64_t axis);

  // Outputs.
  size_t outputs() const { return node_.outputs.size(); }
  /// Whether the output has a name, that is, is used.
  bool wants(size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }
  /// Sets an output. Without an element type it is that of the first input if their dtypes are equal, else that of
  /// the dtype. Integers of a narrow type wrap around as that type does.
  void set(size_t i, const Tensor& tensor, int32_t element = kUndefined);
  void set(const Tensor& tensor) { set(0, tensor); }
  void set_value(size_t i, Value value) {
    if (i < outputs_.size()) outputs_[i] = std::move(value);
  }
  std::vector<Value>& results() { return outputs_; }

  /// Of a step that replaces several nodes; it has one from fuse_layers() on.
  StepMemory& memory() const { return *memory_; }
  void set_memory(StepMemory* memory) { memory_ = memory; }

  /// Runs the subgraph of an attribute. Throws Error if the node has none of that name.
  std::vector<Value> run_body(const std::string& name, std::vector<Value> inputs) const {
    TERN_CHECK(body_, "the graph '", name, "' is missing");
    return body_(name, inputs);
  }
  using Body = std::function<std::vector<Value>(const std::string& name, std::vector<Value>& inputs)>;
  void set_body(Body body) { body_ = std::move(body); }

 private:
  void choose_device();
  const Tensor& tensor(size_t i) const;
  Tensor number_of(const Tensor& x) const;

  const NodeDef& node_;
  int64_t opset_;
  const Context& context_;
  std::vector<Value> inputs_, outputs_;
  Device device_;
  Body body_;
  StepMemory* memory_ = nullptr;
};

/// The tensor with its integers brought into the range of a narrow type, as two's complement does; others unchanged.
Tensor wrapped_to(const Tensor& x, int32_t element);
/// Floats rounded to the nearest value of a small float type, ties to even; what lies beyond its largest becomes that
/// with `saturate`, otherwise infinity or NaN.
Tensor rounded_to(const Tensor& x, int32_t element, bool saturate, const std::string& rounding = "up");

/// dim from the front. Throws Error when there is no such dimension.
int wrapped(int64_t dim, int dims);
std::vector<int> wrapped(const Numbers& axes, int dims);

}  // namespace tern::onnx
