// Functions of a model put in place of the nodes that call them.

#include <set>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/program.h"

namespace tern::onnx {
namespace {

constexpr int64_t kMostNodes = 4'000'000;
constexpr int kMostCalls = 64;  // of functions within one another

using Names = std::map<std::string, std::string>;

std::string renamed(const Names& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

class Inliner {
 public:
  explicit Inliner(ModelDef& model) : model_(model) {
    for (const FunctionDef& function : model.functions)
      functions_[{function.domain, function.name, function.overload}] = &function;
  }

  void graph(GraphDef& graph, int depth) { expand(graph.nodes, depth); }

 private:
  void expand(std::vector<std::shared_ptr<NodeDef>>& nodes, int depth) {
    TERN_CHECK(depth <= kMostCalls, "functions or graphs are nested deeper than ", kMostCalls);
    std::vector<std::shared_ptr<NodeDef>> result;
    for (const auto& node : nodes) {
      TERN_CHECK(++count_ <= kMostNodes, "it has more than ", kMostNodes, " nodes");
      for (auto& [name, attribute] : node->attributes)
        if (attribute.graph) graph(*attribute.graph, depth + 1);
      const FunctionDef* function = called(*node);
      if (function == nullptr) {
        result.push_back(node);
        continue;
      }
      std::vector<std::shared_ptr<NodeDef>> body = body_of(*function, *node);
      expand(body, depth + 1);
      result.insert(result.end(), body.begin(), body.end());
    }
    nodes = std::move(result);
  }

  /// ONNX's own functions are computed as ops where there is one.
  const FunctionDef* called(const NodeDef& node) const {
    const auto found = functions_.find({node.domain, node.op, node.overload});
    if (found == functions_.end()) return nullptr;
    const auto opset = model_.opsets.find(node.domain);
    if (node.domain.empty() && opset != model_.opsets.end() && find_op("", node.op, opset->second)) return nullptr;
    return found->second;
  }

  std::vector<std::shared_ptr<NodeDef>> body_of(const FunctionDef& function, const NodeDef& call) {
    TERN_CHECK(call.inputs.size() <= function.inputs.size() && call.outputs.size() <= function.outputs.size(), "node '",
               call.name, "' (", call.op, ") has more inputs or outputs than its function");
    const std::string prefix = (call.name.empty() ? call.op : call.name) + "/" + std::to_string(calls_++) + "/";
    Names names;
    for (size_t i = 0; i < function.inputs.size(); ++i)
      names[function.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
    std::vector<std::shared_ptr<NodeDef>> after;
    for (size_t i = 0; i < function.outputs.size(); ++i) {
      const std::string& inner = function.outputs[i];
      const std::string outer = i < call.outputs.size() && !call.outputs[i].empty() ? call.outputs[i] : prefix + inner;
      if (names.emplace(inner, outer).second) continue;
      // An output that is an input of the function, or twice an output.
      after.push_back(std::make_shared<NodeDef>(
          NodeDef{.name = prefix + inner, .op = "Identity", .inputs = {names.at(inner)}, .outputs = {outer}}));
    }
    std::vector<std::shared_ptr<NodeDef>> result;
    for (const auto& node : function.nodes) {
      auto copy = std::make_shared<NodeDef>(copied(*node, function, call, names, prefix));
      const auto opset = function.opsets.find(copy->domain);
      if (opset != function.opsets.end()) copy->opset = opset->second;
      result.push_back(std::move(copy));
    }
    result.insert(result.end(), after.begin(), after.end());
    return result;
  }

  NodeDef copied(const NodeDef& node, const FunctionDef& function, const NodeDef& call, Names& names,
                 const std::string& prefix) {
    NodeDef copy = node;
    copy.name = prefix + node.name;
    for (std::string& input : copy.inputs) input = renamed(names, input);
    for (std::string& output : copy.outputs)
      if (!output.empty()) output = names.emplace(output, prefix + output).first->second;
    copy.attributes.clear();
    for (const auto& [name, attribute] : node.attributes) {
      const Attribute* value = &attribute;
      if (!attribute.reference.empty()) {
        const auto given = call.attributes.find(attribute.reference);
        const auto otherwise = function.defaults.find(attribute.reference);
        if (given != call.attributes.end())
          value = &given->second;
        else if (otherwise != function.defaults.end())
          value = &otherwise->second;
        else
          continue;  // the node's own default
      }
      Attribute& put = copy.attributes[name] = *value;
      if (put.graph) put.graph = std::make_shared<GraphDef>(copied(*put.graph, function, call, names, prefix));
    }
    return copy;
  }

  GraphDef copied(const GraphDef& graph, const FunctionDef& function, const NodeDef& call, const Names& outside,
                  const std::string& prefix) {
    GraphDef copy = graph;
    Names names = outside;
    const std::string inner = prefix + std::to_string(calls_++) + "/";
    for (ValueInfo& input : copy.inputs) input.name = names[input.name] = inner + input.name;
    for (auto& initializer : copy.initializers) {
      initializer = std::make_shared<TensorData>(*initializer);
      initializer->name = names[initializer->name] = inner + initializer->name;
    }
    for (auto& node : copy.nodes) {
      for (const std::string& output : node->outputs) names.erase(output);
      node = std::make_shared<NodeDef>(copied(*node, function, call, names, inner));
    }
    for (ValueInfo& output : copy.outputs) output.name = renamed(names, output.name);
    return copy;
  }

  ModelDef& model_;
  std::map<std::tuple<std::string, std::string, std::string>, const FunctionDef*> functions_;
  int64_t count_ = 0, calls_ = 0;
};

}  // namespace

void inline_functions(ModelDef& model) { Inliner(model).graph(model.graph, 0); }

}  // namespace tern::onnx
