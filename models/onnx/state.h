#pragma once
// What a loaded model consists of.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tern/core/autograd/parameter.h"
#include "tern/models/onnx/program.h"
#include "tern/models/onnx/weights.h"
#include "tern/nn/module.h"

namespace tern::onnx {

/// A part of a weight's name between dots: a module without forward().
class WeightGroup final : public nn::Module {
 public:
  explicit WeightGroup(const nn::Scope& scope) : Module(scope) {}
  nn::Scope scope_of(const std::string& name) { return sub(name); }

  std::vector<std::unique_ptr<WeightGroup>> groups;
};

/// A parameter or buffer.
struct Weight {
  std::string name = {};                                    // in the file, or one made for it
  std::string source = {};                                  // the file's tensor that it comes from
  std::vector<std::pair<std::string, size_t>> inputs = {};  // that read it, each by its node's first output
  Place place = {};
  int32_t element = kUndefined;
  bool is_parameter = false;
  bool is_restored = false;  // not in the file, where it is 0
  bool is_split = false;     // from a tensor of the file that other weights come from too
  Tensor initial = {};       // until it is a member
  std::shared_ptr<Tensor> handle = {};
};

namespace detail {

struct ModelState {
  std::string path;
  LoadOptions options;
  ModelDef definition;
  std::unique_ptr<Program> program;
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<std::unique_ptr<nn::Buffer>> buffers;
  std::vector<std::unique_ptr<WeightGroup>> groups;
  std::vector<ValueInfo> inputs, outputs;
  struct Activation {
    std::string op;                  // "Softmax"
    std::vector<std::string> nodes;  // it, and bounds behind it, by their first outputs
  };
  std::map<std::string, Activation> activations;  // what LoadOptions::logits left out, by the outputs of now
  std::vector<std::string> left_out;              // nodes that save() leaves out as well
  bool has_new_head = false;
};

}  // namespace detail

/// Reads the file and makes its program; the weights are not members of a module yet. Descriptions of nodes that are
/// not supported are appended to `unsupported`.
std::unique_ptr<detail::ModelState> read_state(const std::string& path, const LoadOptions& options,
                                               std::vector<std::string>& unsupported);

/// The inputs that have no default value.
std::vector<ValueInfo> inputs_of(const GraphDef& graph);

/// Gives back biases of 0 that PyTorch's exporter left out of Gemm and Conv nodes, whose modules have them.
void restore_biases(GraphDef& graph);

/// Decides what the tensors of a file are (roles.cpp): the weights among them are appended to the list.
MakeSources sources_of(const GraphDef& graph, const LoadOptions& options, std::vector<std::unique_ptr<Weight>>& weights,
                       std::vector<std::string>& unsupported);

/// What load() does, up to a module: an Error that lists the nodes that are not supported.
std::unique_ptr<detail::ModelState> load_state(const std::string& path, const LoadOptions& options);

using SubScope = std::function<nn::Scope(const std::string& name)>;
/// Makes the weights parameters and buffers of a module, whose sub() is given.
void make_members(detail::ModelState& state, nn::Module& owner, const SubScope& sub);

/// Model::forward_lists() and forward() of a state whose weights are members of a module.
std::vector<std::vector<Tensor>> run_lists(const detail::ModelState& state, const nn::Module& owner,
                                           const std::vector<std::vector<Tensor>>& inputs);
std::vector<Tensor> run(const detail::ModelState& state, const nn::Module& owner, const std::vector<Tensor>& inputs);

/// Model::replace_head(), before the output of that number, and save().
std::string replace_head(detail::ModelState& state, int64_t classes, Generator& generator, size_t output = 0);
/// metadata: entries that are added or replaced.
void save(const detail::ModelState& state, const std::string& path, const std::map<std::string, std::string>& metadata);

/// Replaces groups of steps by fused ops.
void fuse_steps(Program& program);
/// The same for convolutions and linear layers with what follows them. After fuse_steps().
void fuse_layers(Program& program);

}  // namespace tern::onnx
