#pragma once
// Models in ONNX's format (https://github.com/onnx/onnx, docs/IR.md and docs/Operators.md): a file becomes a module
// whose weights are parameters under the names that they have in the file. The module runs the file's nodes one by one
// with Tern's ops, so that what holds for a module of Tern holds for it: autograd of any order, autocast, checkpoint(),
// DataParallel, captured steps.
//
// Opsets 7 to 28 of ONNX's own domain; functions of the file are inlined. Needs TERN_ONNX; without it the functions
// here throw an Error that names the option.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tern/nn/module.h"

namespace tern::onnx {

/// A dimension of an input or output: a size, or the name that the file gives to one that may vary ("batch"; empty
/// where it has none).
struct Dimension {
  int64_t size = -1;  // -1: may vary
  std::string name = {};
};

/// An input or output of a model.
struct ValueInfo {
  std::string name;
  /// ONNX's name of the element type ("float", "int64", "int8"), and the dtype of the tensor that stands for it: int8,
  /// int16, uint16 and smaller integers are int32, uint32 and uint64 are int64.
  std::string type = {};
  DType dtype = DType::kFloat32;
  bool has_shape = false;  // of unknown rank otherwise
  std::vector<Dimension> shape = {};
  bool is_tensor = true;     // false: a sequence or an optional value
  bool is_sequence = false;  // of tensors; also as an optional value
};

struct LoadOptions {
  Device device = {};
  Generator generator = default_generator();  // of dropout's masks
  /// Shell patterns of names of floating tensors that are to stay as they are: neither parameters nor buffers. Without
  /// a pattern, every floating initializer and constant with a dimension that a node uses as a weight is a parameter;
  /// numbers (tensors without dimensions) and arguments (bounds, scales, axes) are none.
  std::vector<std::string> constants = {};
  /// In training, nodes that were exported for inference behave as the layers they were: batch norm normalises by the
  /// batch and updates its statistics, dropout drops. Otherwise they do what the file says.
  bool train_inference_nodes = false;
  /// An output that a node Softmax, LogSoftmax or Sigmoid gives becomes what this node reads, for losses that take
  /// logits; so does one behind it by nodes that keep values (Identity, Cast, Reshape, Flatten, Squeeze, Unsqueeze,
  /// Dropout) or bound them (Clip).
  bool logits = false;
  /// Groups of nodes are replaced by fused ops of Tern (attention, layer norm, GELU, and in inference linear layers and
  /// convolutions with what follows them). Results may differ in rounding.
  bool fuse = true;
};

namespace detail {
struct ModelState;
}

/// Made by load(). Begins in evaluation mode; train() switches dropout and batch norm nodes that were exported for
/// training.
class Model final : public nn::Module {
 public:
  Model(const nn::Scope& scope, std::unique_ptr<detail::ModelState> state);
  ~Model() override;

  /// The graph's inputs that have no default value, and its outputs, in the file's order.
  const std::vector<ValueInfo>& inputs() const;
  const std::vector<ValueInfo>& outputs() const;

  /// Inputs in the order of inputs(), of their dtypes, on the model's device; an undefined tensor is an absent optional
  /// value. Results in the order of outputs(). Errors name the node that failed, its op and what was wrong; an input
  /// whose dtype, rank or fixed size is another than the file's.
  std::vector<Tensor> forward(const std::vector<Tensor>& inputs) const;
  std::vector<Tensor> forward(std::initializer_list<Tensor> inputs) const {
    return forward(std::vector<Tensor>(inputs));
  }
  /// By name. Error: an input is missing or unknown.
  std::map<std::string, Tensor> forward(const std::map<std::string, Tensor>& inputs) const;
  /// Of a model with one input; its first output.
  Tensor forward(const Tensor& x) const;
  /// With lists of tensors: entry i is what stands for inputs()[i] or outputs()[i], one tensor unless it is a sequence.
  std::vector<std::vector<Tensor>> forward_lists(const std::vector<std::vector<Tensor>>& inputs) const;

  /// Replaces the weight (and bias) of the last Gemm, MatMul or Conv before the first output by new ones for this
  /// number of classes, with the initial values of nn::Linear; returns the weight's name. Outputs of a fixed size
  /// change theirs. Error where there is no such node with a weight that is a parameter. Make optimizers afterwards.
  std::string replace_head(int64_t classes);

  /// Writes the file that was loaded with the weights of now. Nothing but the bytes of parameters and buffers changes;
  /// after replace_head(), and where weights are apart that the file has once, the graph is written anew with them.
  /// External data goes to PATH.data, by which name the graph refers to it; a model that is saved to its own path keeps
  /// the names of its data files. Each file is written completely or not at all; the path may be that of the source,
  /// which is kept open: it may have been removed or replaced meanwhile. Error: the source was written to since it was
  /// loaded.
  void save(const std::string& path) const;

  /// Metadata of the file: producer, version, and its own pairs of key and value.
  const std::map<std::string, std::string>& metadata() const;

 private:
  friend std::unique_ptr<Model> load(const std::string& path, const LoadOptions& options);
  std::unique_ptr<detail::ModelState> state_;
};

/// Reads a model. Weights are read or mapped in place, so that it takes memory for them once. Errors, which name the
/// file: it cannot be read, is no ONNX file, is damaged, of another version, has data outside of its folder, a cycle or
/// a missing value; or nodes that Tern cannot compute: one Error that lists each with its name, op, domain and opset.
std::unique_ptr<Model> load(const std::string& path, const LoadOptions& options = {});

/// What is in a file, for `tern info`; also where load() would fail because of a node.
struct Description {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets = {};  // by domain; that of ONNX itself is ""
  std::map<std::string, std::string> metadata = {};
  std::vector<ValueInfo> inputs = {}, outputs = {};
  std::map<std::string, int64_t> ops = {};    // how many nodes of each op, subgraphs and inlined functions included
  std::vector<std::string> unsupported = {};  // "node 'pool' (Foo of com.example, opset 1): the op is unknown"
  int64_t parameters = 0;                     // elements of floating weights
  int64_t bytes = 0;                          // of all initializers
  /// Floating-point operations of the matrix products and convolutions of one call with zeros, with 1 for dimensions
  /// that may vary; -1 where such a call fails.
  int64_t flops = -1;
};
Description describe(const std::string& path);

}  // namespace tern::onnx
