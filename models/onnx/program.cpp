#include "tern/models/onnx/program.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tern/core/autograd/grad_mode.h"
#include "tern/kernels/base/check.h"

namespace tern::onnx {
namespace {

constexpr int kMostGraphs = 64;
constexpr int64_t kLowestOpset = 7, kHighestOpset = 28;

using UsesByName = std::unordered_map<std::string, std::vector<NodeInput>>;

class Compiler {
 public:
  Compiler(const ModelDef& model, const MakeSources& make_sources, std::vector<std::string>& unsupported)
      : model_(model), make_sources_(make_sources), unsupported_(unsupported) {
    note_uses(model.graph, 0);
  }

  /// The names of a graph, and the graph around it.
  struct Scope {
    Program& program;
    Scope* outer = nullptr;
    int depth = 0;
    std::unordered_map<std::string, int> places = {};
    std::unordered_map<std::string, int> captured = {};
  };

  std::unique_ptr<Program> graph(const GraphDef& graph, Scope* outer) {
    auto program = std::make_unique<Program>();
    Scope scope{*program, outer, outer == nullptr ? 0 : outer->depth + 1};
    TERN_CHECK(scope.depth <= kMostGraphs, "graphs are nested deeper than ", kMostGraphs);
    std::unordered_set<std::string> defaults;
    for (const auto& initializer : graph.initializers) {
      TERN_CHECK(!initializer->name.empty(), "an initializer has no name");
      source(*initializer, define(scope, initializer->name, "initializer"), scope);
      defaults.insert(initializer->name);
    }
    for (const ValueInfo& input : graph.inputs)
      if (!defaults.contains(input.name)) program->inputs.push_back(define(scope, input.name, "input"));
    for (const auto& node : graph.nodes) step(node, scope);
    for (const ValueInfo& output : graph.outputs) {
      const int place = find(scope, output.name);
      TERN_CHECK(place >= 0, "output '", output.name, "' is given by no node, input or initializer");
      program->outputs.push_back(place);
    }
    note_done(*program);
    return program;
  }

 private:
  void note_uses(const GraphDef& graph, int depth) {
    TERN_CHECK(depth <= kMostGraphs, "graphs are nested deeper than ", kMostGraphs);
    for (const auto& node : graph.nodes) {
      for (size_t i = 0; i < node->inputs.size(); ++i) uses_[node->inputs[i]].emplace_back(node.get(), i);
      for (const auto& [name, attribute] : node->attributes)
        if (attribute.graph) note_uses(*attribute.graph, depth + 1);
    }
  }

  static int define(Scope& scope, const std::string& name, const std::string& by) {
    const int place = scope.program.places++;
    TERN_CHECK(scope.places.emplace(name, place).second, "the name '", name, "' of ", by,
               " is taken: names of a graph are given once");
    return place;
  }

  /// The place of a name; of the graph outside it is captured. -1: there is none.
  int find(Scope& scope, const std::string& name) {
    if (const auto own = scope.places.find(name); own != scope.places.end()) return own->second;
    if (const auto had = scope.captured.find(name); had != scope.captured.end()) return had->second;
    if (scope.outer == nullptr) return -1;
    const int outside = find(*scope.outer, name);
    if (outside < 0) return -1;
    const int place = scope.program.places++;
    scope.program.captured.emplace_back(outside, place);
    scope.captured.emplace(name, place);
    return place;
  }

  void source(const TensorData& data, int place, Scope& scope) {
    static const std::vector<NodeInput> none;
    const auto uses = uses_.find(data.name);
    std::vector<SourceOfInputs> sources = make_sources_(data, uses == uses_.end() ? none : uses->second);
    for (size_t i = 0; i < sources.size(); ++i) {
      sources[i].source.place = i == 0 ? place : scope.program.places++;
      for (const NodeInput& input : sources[i].inputs) own_places_[input] = sources[i].source.place;
      scope.program.sources.push_back(std::move(sources[i].source));
    }
  }

  /// The place of a node's input; -1 if it has none.
  int input_place(const NodeDef& node, size_t i, Scope& scope, int64_t opset) {
    if (node.inputs[i].empty()) return -1;
    if (const auto own = own_places_.find({&node, i}); own != own_places_.end() && scope.outer == nullptr)
      return own->second;
    const int place = find(scope, node.inputs[i]);
    TERN_CHECK(place >= 0, node.describe(opset), " reads '", node.inputs[i],
               "', which no earlier node, no input and no initializer gives: it is missing, or the nodes are in a "
               "cycle or not in order");
    return place;
  }

  void step(const std::shared_ptr<NodeDef>& node, Scope& scope) {
    const int64_t opset = opset_of(*node);
    if (node->domain.empty() && node->op == "Constant" && constant(*node, scope)) return;
    Step step{.node = node, .opset = opset, .op = find_op(node->domain, node->op, opset)};
    for (size_t i = 0; i < node->inputs.size(); ++i) step.inputs.push_back(input_place(*node, i, scope, opset));
    check(*node, opset, step.op);
    for (const auto& [name, attribute] : node->attributes)
      if (attribute.graph) step.bodies[name] = graph(*attribute.graph, &scope);
    for (const std::string& output : node->outputs)
      step.outputs.push_back(output.empty() ? -1 : define(scope, output, node->describe(opset)));
    scope.program.steps.push_back(std::move(step));
  }

  int64_t opset_of(const NodeDef& node) const {
    if (node.opset > 0) return node.opset;
    const auto found = model_.opsets.find(node.domain);
    return found == model_.opsets.end() ? 1 : found->second;
  }

  void check(const NodeDef& node, int64_t opset, const OpRow* op) {
    std::string problem;
    if (node.domain.empty() && (opset < kLowestOpset || opset > kHighestOpset))
      problem = "opsets " + std::to_string(kLowestOpset) + " to " + std::to_string(kHighestOpset) + " are supported";
    else if (op == nullptr)
      problem = knows_op(node.domain, node.op) ? "the op is not supported at this opset" : "the op is not supported";
    else if (op->refuse != nullptr)
      problem = op->refuse(node, opset);
    for (const auto& [name, attribute] : node.attributes)
      if (problem.empty() && attribute.kind == AttributeKind::kOther)
        problem = "attribute '" + name + "' is " + attribute.what + ", which is not supported";
    if (!problem.empty()) unsupported_.push_back(node.describe(opset) + ": " + problem);
  }

  /// A Constant node whose value is a tensor is a source like an initializer.
  bool constant(const NodeDef& node, Scope& scope) {
    const auto found = node.attributes.find("value");
    const auto sparse = node.attributes.find("sparse_value");
    const auto& used = found != node.attributes.end() ? found : sparse;
    if (used == node.attributes.end() || !used->second.tensor || node.outputs.size() != 1) return false;
    if (!is_supported(used->second.tensor->element)) return false;
    TensorData data = *used->second.tensor;
    data.name = node.outputs[0];
    source(data, define(scope, data.name, "a constant"), scope);
    return true;
  }

  const ModelDef& model_;
  const MakeSources& make_sources_;
  std::vector<std::string>& unsupported_;
  UsesByName uses_;
  std::map<NodeInput, int> own_places_;
};

/// Runs a step; an Error begins with the node.
void run_step(const Step& step, const Context& context, std::vector<Value>& values) {
  std::vector<Value> inputs;
  inputs.reserve(step.inputs.size());
  for (const int place : step.inputs) inputs.push_back(place < 0 ? Value() : values[static_cast<size_t>(place)]);
  Call call(*step.node, step.opset, context, std::move(inputs));
  call.set_memory(step.memory.get());
  if (!step.bodies.empty())
    call.set_body([&](const std::string& name, std::vector<Value>& given) {
      const auto body = step.bodies.find(name);
      TERN_CHECK(body != step.bodies.end(), "the graph '", name, "' is missing");
      return body->second->run(context, std::move(given), &values);
    });
  try {
    step.op->run(call);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const DeviceError&) {
    throw;
  } catch (const Error& error) {
    const std::string node = step.node->describe(step.opset);
    if (std::string(error.what()).starts_with("onnx: ")) throw;
    fail("onnx: ", node, ": ", error.what());
  }
  std::vector<Value>& results = call.results();
  for (size_t i = 0; i < step.outputs.size(); ++i)
    if (step.outputs[i] >= 0) values[static_cast<size_t>(step.outputs[i])] = std::move(results[i]);
  for (const int place : step.done) values[static_cast<size_t>(place)] = {};
}

/// Ops that shapes and small constants are computed with. Others may give results much larger than their inputs, or
/// other ones in each run.
bool may_be_folded(const Step& step, const std::vector<const Value*>& inputs) {
  static const std::unordered_set<std::string> folded = {"Abs",
                                                         "Add",
                                                         "And",
                                                         "Cast",
                                                         "Ceil",
                                                         "Concat",
                                                         "Constant",
                                                         "ConstantOfShape",
                                                         "Cos",
                                                         "CumSum",
                                                         "Div",
                                                         "Equal",
                                                         "Exp",
                                                         "Expand",
                                                         "Flatten",
                                                         "Floor",
                                                         "Gather",
                                                         "GatherND",
                                                         "Greater",
                                                         "Identity",
                                                         "Less",
                                                         "LessOrEqual",
                                                         "GreaterOrEqual",
                                                         "Log",
                                                         "Max",
                                                         "Min",
                                                         "Mod",
                                                         "Mul",
                                                         "Neg",
                                                         "Not",
                                                         "Or",
                                                         "Pow",
                                                         "Range",
                                                         "Reshape",
                                                         "Round",
                                                         "Reciprocal",
                                                         "ReduceMax",
                                                         "ReduceMin",
                                                         "ReduceProd",
                                                         "ReduceSum",
                                                         "Shape",
                                                         "Sign",
                                                         "Sin",
                                                         "Size",
                                                         "Slice",
                                                         "Split",
                                                         "Sqrt",
                                                         "Squeeze",
                                                         "Sub",
                                                         "Sum",
                                                         "Transpose",
                                                         "Trilu",
                                                         "Unsqueeze",
                                                         "Where",
                                                         "Xor",
                                                         "DequantizeLinear"};
  constexpr int64_t most = 1 << 18;  // elements
  const std::string& op = step.node->op;
  if (!step.node->domain.empty() || !folded.contains(op)) return false;
  int64_t elements = 1;  // of a result that broadcasts all inputs
  for (const Value* input : inputs) {
    if (input == nullptr || !input->tensor.defined()) continue;
    if (input->tensor.numel() > (int64_t{16} << 20)) return false;
    elements = std::min(elements * std::max<int64_t>(1, input->tensor.numel()), int64_t{1} << 40);
  }
  const auto product = [&](size_t i) {
    int64_t count = 1;
    for (const int64_t size : inputs[i]->tensor.to_vector<int64_t>()) {
      if (size < 0 || size > most) return most + 1;
      count = std::min(count * std::max<int64_t>(size, 1), most + 1);
    }
    return count;
  };
  if (op == "ConstantOfShape") return inputs.size() == 1 && inputs[0] != nullptr && product(0) <= most;
  if (op == "Expand") {
    if (inputs.size() != 2 || inputs[0] == nullptr || inputs[1] == nullptr) return false;
    return product(1) <= most / std::max<int64_t>(1, inputs[0]->tensor.numel());
  }
  if (op == "Range") {
    double values[3] = {};
    for (size_t i = 0; i < 3; ++i) {
      if (inputs.size() != 3 || inputs[i] == nullptr || inputs[i]->tensor.numel() != 1) return false;
      values[i] = inputs[i]->tensor.item<double>();
    }
    return std::abs((values[1] - values[0]) / values[2]) <= static_cast<double>(most);
  }
  return inputs.size() < 2 || op == "Slice" || op == "Reshape" || elements <= (int64_t{1} << 22);
}

}  // namespace

std::vector<Value> Program::run(const Context& context, std::vector<Value> given,
                                const std::vector<Value>* outer) const {
  TERN_CHECK(given.size() == inputs.size(), "a graph with ", inputs.size(), " inputs was given ", given.size());
  std::vector<Value> values(static_cast<size_t>(places));
  for (const Source& source : sources) {
    Value& value = values[static_cast<size_t>(source.place)];
    value = source.constant;
    if (!source.handle) continue;
    value.tensor = *source.handle;
    value.element = element_of(value.tensor.dtype());
    value.is_buffer = source.is_buffer;
  }
  for (size_t i = 0; i < given.size(); ++i) values[static_cast<size_t>(inputs[i])] = std::move(given[i]);
  for (const auto& [outside, inside] : captured)
    values[static_cast<size_t>(inside)] = (*outer)[static_cast<size_t>(outside)];
  for (const Step& step : steps) run_step(step, context, values);
  std::vector<Value> results;
  for (const int place : outputs) results.push_back(values[static_cast<size_t>(place)]);
  return results;
}

void note_done(Program& program) {
  std::vector<int> last(static_cast<size_t>(program.places), -1);
  const auto use = [&](int place, size_t step) {
    if (place >= 0) last[static_cast<size_t>(place)] = static_cast<int>(step);
  };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step& step = program.steps[i];
    step.done.clear();
    for (const int place : step.outputs) use(place, i);
    for (const int place : step.inputs) use(place, i);
    for (const auto& [name, body] : step.bodies)
      for (const auto& [outside, inside] : body->captured) use(outside, i);
  }
  for (const int place : program.outputs) last[static_cast<size_t>(place)] = -1;
  for (size_t place = 0; place < last.size(); ++place)
    if (last[place] >= 0) program.steps[static_cast<size_t>(last[place])].done.push_back(static_cast<int>(place));
}

std::unique_ptr<Program> compile(const ModelDef& model, const MakeSources& make_sources,
                                 std::vector<std::string>& unsupported) {
  return Compiler(model, make_sources, unsupported).graph(model.graph, nullptr);
}

void fold_constants(Program& program) {
  NoGrad off;
  Context context;
  std::vector<Value> values(static_cast<size_t>(program.places));
  std::vector<bool> known(static_cast<size_t>(program.places));
  for (const Source& source : program.sources) {
    if (source.handle) continue;
    values[static_cast<size_t>(source.place)] = source.constant;
    known[static_cast<size_t>(source.place)] = true;
  }
  std::vector<Step> rest;
  for (Step& step : program.steps) {
    for (auto& [name, body] : step.bodies) fold_constants(*body);
    bool constant = true;
    std::vector<const Value*> inputs;
    for (const int place : step.inputs) {
      constant = constant && (place < 0 || known[static_cast<size_t>(place)]);
      inputs.push_back(place < 0 ? nullptr : &values[static_cast<size_t>(place)]);
    }
    if (!constant || !may_be_folded(step, inputs)) {
      rest.push_back(std::move(step));
      continue;
    }
    Step keep;
    std::swap(keep.done, step.done);
    try {
      run_step(step, context, values);
    } catch (const Error&) {  // it is thrown when the model runs, if it comes to that
      std::swap(keep.done, step.done);
      rest.push_back(std::move(step));
      continue;
    }
    for (const int place : step.outputs) {
      if (place < 0) continue;
      known[static_cast<size_t>(place)] = true;
      Value value = values[static_cast<size_t>(place)];
      value.copies = std::make_shared<std::map<int, Tensor>>();
      program.sources.push_back({.place = place, .constant = std::move(value)});
    }
  }
  program.steps = std::move(rest);
  std::vector<bool> read(static_cast<size_t>(program.places));
  const auto note = [&](int place) {
    if (place >= 0) read[static_cast<size_t>(place)] = true;
  };
  for (const int place : program.outputs) note(place);
  for (const Step& step : program.steps) {
    for (const int place : step.inputs) note(place);
    for (const auto& [name, body] : step.bodies)
      for (const auto& [outside, inside] : body->captured) note(outside);
  }
  note_done(program);
  std::erase_if(program.sources, [&](const Source& source) { return !read[static_cast<size_t>(source.place)]; });
}

}  // namespace tern::onnx
