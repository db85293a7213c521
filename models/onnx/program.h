#pragma once
// A graph made ready to run: names are places in a list of values, and each node has its function.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tern/models/onnx/registry.h"

namespace tern::onnx {

class Program;

struct Step {
  std::shared_ptr<const NodeDef> node;
  int64_t opset = 0;
  const OpRow* op = nullptr;
  std::vector<int> inputs = {}, outputs = {};  // places; -1: none
  std::vector<int> done = {};                  // places that no later step reads
  std::map<std::string, std::unique_ptr<Program>> bodies = {};
  std::shared_ptr<StepMemory> memory = {};  // of a layer, see ops/layers.h
};

/// What a program reads besides its inputs: a constant, or a handle on a parameter or buffer.
struct Source {
  int place = 0;
  Value constant = {};
  std::shared_ptr<Tensor> handle = {};
  bool is_buffer = false;
};

class Program {
 public:
  /// Results in the order of the graph's outputs. outer: the values of the graph around it.
  std::vector<Value> run(const Context& context, std::vector<Value> inputs,
                         const std::vector<Value>* outer = nullptr) const;

  std::vector<Step> steps;
  std::vector<Source> sources;
  std::vector<int> inputs, outputs;
  std::vector<std::pair<int, int>> captured;  // places outside and inside
  int places = 0;
};

/// Replaces the calls of the model's functions by their bodies, in subgraphs too. Error: a function calls itself, or
/// the nodes become more than 4 million.
void inline_functions(ModelDef& model);

/// An input of a node.
using NodeInput = std::pair<const NodeDef*, size_t>;

/// What an initializer or a constant node is read from. Of several sources the first is for all inputs that the others
/// do not list.
struct SourceOfInputs {
  Source source;
  std::vector<NodeInput> inputs = {};
};
using MakeSources =
    std::function<std::vector<SourceOfInputs>(const TensorData& data, const std::vector<NodeInput>& inputs)>;

/// Makes a graph ready. Errors: a node reads what no earlier node gives (a cycle, a missing initializer), a name is
/// given twice, or nodes are not supported: their descriptions are appended to `unsupported`, one for each.
std::unique_ptr<Program> compile(const ModelDef& model, const MakeSources& make_sources,
                                 std::vector<std::string>& unsupported);

/// Finds for each place the last step that reads it.
void note_done(Program& program);

/// Computes the steps that depend on constants alone, and makes their results constants. Results that would be large
/// are left.
void fold_constants(Program& program);

}  // namespace tern::onnx
