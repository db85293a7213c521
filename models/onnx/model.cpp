#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/model_file.h"
#include "tern/models/onnx/state.h"

namespace tern::onnx {
namespace {

void collect_tensors(const GraphDef& graph, std::vector<TensorData*>& tensors) {
  for (const auto& initializer : graph.initializers) tensors.push_back(initializer.get());
  for (const auto& node : graph.nodes)
    for (const auto& [name, attribute] : node->attributes) {
      if (attribute.tensor) tensors.push_back(attribute.tensor.get());
      if (attribute.graph) collect_tensors(*attribute.graph, tensors);
    }
}

int32_t element_named(const std::string& name) {
  for (int32_t element = 1; element <= kInt2; ++element)
    if (element_name(element) == name) return element;
  return kUndefined;
}

/// The names between a weight's dots, each fit to name a member.
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string& part : parts)
    if (part.empty()) part = "_";
  if (parts.size() > 32) return {name.substr(name.rfind('.') + 1)};
  return parts;
}

/// A name that no member of the module has.
std::string free_name(const nn::Module& module, std::string name) {
  const auto taken = [&] {
    const auto& members = module.members();
    const auto& children = module.children();
    return std::any_of(members.begin(), members.end(), [&](const auto& m) { return m.name == name; }) ||
           std::any_of(children.begin(), children.end(), [&](const nn::Module* m) { return m->local_name() == name; });
  };
  while (taken()) name += "_";
  return name;
}

/// Gives the member's tensor these elements. Handles on it stay valid.
void seat(const Tensor& member, const Tensor& value) {
  tern::detail::TensorImpl& to = *member.impl();
  const tern::detail::TensorImpl& from = *value.impl();
  to.storage = from.storage;
  to.offset = from.offset;
  to.shape = from.shape;
  to.strides = from.strides;
  to.dtype = from.dtype;
  to.contiguous = from.contiguous;
}

/// Of LoadOptions::logits.
class BeforeActivations {
 public:
  explicit BeforeActivations(GraphDef& graph) : graph_(graph) {
    for (const auto& node : graph.nodes)
      if (!node->outputs.empty()) makers_[node->outputs[0]] = node.get();
  }

  std::map<std::string, detail::ModelState::Activation> run() {
    std::map<std::string, detail::ModelState::Activation> found;
    for (ValueInfo& output : graph_.outputs) {
      activation_ = {};
      const std::string before = name_before(output.name, kMostNodes);
      if (activation_.op.empty()) continue;
      output.name = before;
      found[before] = activation_;
    }
    return found;
  }

 private:
  static constexpr int kMostNodes = 16;

  /// The value without the activation in it: its own name where only nodes before it change.
  std::string name_before(const std::string& value, int most) {
    static const std::set<std::string> activations = {"Softmax", "LogSoftmax", "Sigmoid"};
    static const std::set<std::string> passed = {"Identity", "Cast",      "Reshape", "Flatten",
                                                 "Squeeze",  "Unsqueeze", "Dropout", "Clip"};
    const auto made = makers_.find(value);
    if (most == 0 || made == makers_.end()) return value;
    NodeDef& node = *made->second;
    if (!domain_of(node.domain).empty() || node.inputs.empty()) return value;
    if (activations.contains(node.op)) {
      activation_.op = node.op;
      activation_.nodes.push_back(value);
      return node.inputs[0];
    }
    if (!passed.contains(node.op)) return value;
    const std::string before = name_before(node.inputs[0], most - 1);
    if (activation_.op.empty()) return value;
    if (node.op == "Clip") {  // its bounds are those of probabilities
      activation_.nodes.push_back(value);
      return before;
    }
    node.inputs[0] = before;
    return value;
  }

  GraphDef& graph_;
  std::map<std::string, NodeDef*> makers_;
  detail::ModelState::Activation activation_;
};

}  // namespace

std::vector<ValueInfo> inputs_of(const GraphDef& graph) {
  std::set<std::string> defaults;
  for (const auto& initializer : graph.initializers) defaults.insert(initializer->name);
  std::vector<ValueInfo> inputs;
  for (const ValueInfo& input : graph.inputs)
    if (!defaults.contains(input.name)) inputs.push_back(input);
  return inputs;
}

std::unique_ptr<detail::ModelState> read_state(const std::string& path, const LoadOptions& options,
                                               std::vector<std::string>& unsupported) {
  auto state = std::make_unique<detail::ModelState>();
  state->path = path;
  state->options = options;
  state->definition = read_model(path);
  try {
    ModelDef& model = state->definition;
    inline_functions(model);
    restore_biases(model.graph);
    if (options.logits) state->activations = BeforeActivations(model.graph).run();
    std::vector<TensorData*> tensors;
    collect_tensors(model.graph, tensors);
    read_tensors(path, tensors);
    const MakeSources make_sources = sources_of(model.graph, options, state->weights, unsupported);
    state->program = compile(model, make_sources, unsupported);
    if (unsupported.empty()) fold_constants(*state->program);
    state->inputs = inputs_of(model.graph);
    state->outputs = model.graph.outputs;
    for (const ValueInfo& input : state->inputs)
      if (!input.type.empty() && !is_supported(element_named(input.type)))
        unsupported.push_back("input '" + input.name + "' of type " + input.type + ", which is not supported");
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    fail("onnx: cannot load ", path, ": ", error.what());
  }
  return state;
}

void make_members(detail::ModelState& state, nn::Module& module, const SubScope& sub) {
  std::unordered_map<std::string, WeightGroup*> groups;  // by their full names
  std::unordered_map<Tensor*, std::shared_ptr<Tensor>> moved;
  for (auto& weight : state.weights) {
    std::vector<std::string> parts = parts_of(weight->name);
    std::string path;
    WeightGroup* group = nullptr;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      path += parts[i] + ".";
      WeightGroup*& found = groups[path];
      if (found == nullptr) {
        nn::Module& parent = group == nullptr ? module : *group;
        const std::string name = free_name(parent, parts[i]);
        auto made = std::make_unique<WeightGroup>(group == nullptr ? sub(name) : group->scope_of(name));
        found = made.get();
        (group == nullptr ? state.groups : group->groups).push_back(std::move(made));
      }
      group = found;
    }
    nn::Module& owner = group == nullptr ? module : *group;
    const std::string name = free_name(owner, parts.back());
    const Tensor value = weight->initial.to(module.device());
    weight->initial = {};
    Tensor* const before = weight->handle.get();
    if (weight->is_parameter) {
      auto parameter = std::make_unique<Parameter>(&owner, name, Shape{0});
      seat(parameter->tensor(), value);
      moved[before] = parameter->handle();
      state.parameters.push_back(std::move(parameter));
    } else {
      const auto handle = std::make_shared<Tensor>(value);
      owner.add_buffer(name, handle, true);
      moved[before] = handle;
    }
    weight->handle = moved[before];
  }
  const std::function<void(Program&)> reseat = [&](Program& program) {
    for (Source& source : program.sources)
      if (source.handle) source.handle = moved.at(source.handle.get());
    for (Step& step : program.steps)
      for (auto& [name, body] : step.bodies) reseat(*body);
  };
  reseat(*state.program);
}

Model::Model(const nn::Scope& scope, std::unique_ptr<detail::ModelState> state)
    : Module(scope), state_(std::move(state)) {
  make_members(*state_, *this, [this](const std::string& name) { return sub(name); });
  eval();
}

Model::~Model() = default;

const std::vector<ValueInfo>& Model::inputs() const { return state_->inputs; }
const std::vector<ValueInfo>& Model::outputs() const { return state_->outputs; }
const std::map<std::string, std::string>& Model::metadata() const { return state_->definition.metadata; }

namespace {

/// Throws Error unless the tensor fits the description.
void check_input(const ValueInfo& info, const Tensor& x) {
  const int32_t element = element_named(info.type);
  TERN_CHECK(element == kUndefined || x.dtype() == info.dtype, "onnx: input '", info.name, "' is ", info.type,
             ", for which a tensor of ", name_of(info.dtype), " is expected, got ", x.describe());
  if (!info.has_shape) return;
  bool fits = static_cast<size_t>(x.dim()) == info.shape.size();
  std::string wanted;
  for (size_t d = 0; d < info.shape.size(); ++d) {
    const Dimension& dimension = info.shape[d];
    fits = fits && (dimension.size < 0 || x.size(static_cast<int>(d)) == dimension.size);
    wanted += (d > 0 ? ", " : "") + (dimension.size >= 0      ? std::to_string(dimension.size)
                                     : dimension.name.empty() ? "?"
                                                              : dimension.name);
  }
  TERN_CHECK(fits, "onnx: input '", info.name, "' has the shape [", wanted, "], got ", x.shape());
}

Value value_of(const ValueInfo& info, const std::vector<Tensor>& tensors) {
  Value value;
  const int32_t element = element_named(info.type);
  for (const Tensor& x : tensors)
    if (x.defined())
      TERN_CHECK(element == kUndefined || x.dtype() == info.dtype, "onnx: input '", info.name, "' is ", info.type,
                 ", for which a tensor of ", name_of(info.dtype), " is expected, got ", x.describe());
  if (info.is_sequence && !(tensors.size() == 1 && !tensors[0].defined())) {
    std::vector<Value> list;
    for (const Tensor& x : tensors) list.push_back({x, element == kUndefined ? element_of(x.dtype()) : element});
    value.sequence = std::make_shared<const std::vector<Value>>(std::move(list));
    return value;
  }
  TERN_CHECK(tensors.size() == 1, "onnx: input '", info.name, "' is one tensor, but ", tensors.size(), " were given");
  const Tensor& x = tensors[0];
  if (!x.defined()) {
    TERN_CHECK(!info.is_tensor, "onnx: input '", info.name, "' is undefined");
    return value;
  }
  if (info.is_tensor) check_input(info, x);
  return {x, element == kUndefined ? element_of(x.dtype()) : element};
}

}  // namespace

std::vector<std::vector<Tensor>> run_lists(const detail::ModelState& state, const nn::Module& owner,
                                           const std::vector<std::vector<Tensor>>& inputs) {
  TERN_CHECK(inputs.size() == state.inputs.size(), "onnx: the model has ", state.inputs.size(), " inputs, but ",
             inputs.size(), " were given");
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(value_of(state.inputs[i], inputs[i]));
  const Context context{owner.device(), owner.is_training(), state.options.train_inference_nodes, &owner.generator()};
  const std::vector<Value> results = state.program->run(context, std::move(values));
  std::vector<std::vector<Tensor>> outputs;
  for (const Value& result : results) {
    std::vector<Tensor>& list = outputs.emplace_back();
    if (!result.sequence) {
      list.push_back(result.tensor);
      continue;
    }
    for (const Value& item : *result.sequence) list.push_back(item.tensor);
  }
  return outputs;
}

std::vector<Tensor> run(const detail::ModelState& state, const nn::Module& owner, const std::vector<Tensor>& inputs) {
  std::vector<std::vector<Tensor>> lists;
  for (const Tensor& input : inputs) lists.push_back({input});
  std::vector<Tensor> outputs;
  for (std::vector<Tensor>& list : run_lists(state, owner, lists)) {
    TERN_CHECK(list.size() == 1, "onnx: output '", state.outputs[outputs.size()].name,
               "' is a sequence; forward_lists() returns it");
    outputs.push_back(std::move(list[0]));
  }
  return outputs;
}

std::vector<std::vector<Tensor>> Model::forward_lists(const std::vector<std::vector<Tensor>>& inputs) const {
  return run_lists(*state_, *this, inputs);
}

std::vector<Tensor> Model::forward(const std::vector<Tensor>& inputs) const { return run(*state_, *this, inputs); }

std::map<std::string, Tensor> Model::forward(const std::map<std::string, Tensor>& inputs) const {
  std::vector<Tensor> list;
  for (const ValueInfo& info : state_->inputs) {
    const auto found = inputs.find(info.name);
    TERN_CHECK(found != inputs.end(), "onnx: input '", info.name, "' is missing");
    list.push_back(found->second);
  }
  for (const auto& [name, tensor] : inputs)
    TERN_CHECK(std::any_of(state_->inputs.begin(), state_->inputs.end(),
                           [&, &key = name](const ValueInfo& info) { return info.name == key; }),
               "onnx: the model has no input '", name, "'");
  const std::vector<Tensor> outputs = forward(list);
  std::map<std::string, Tensor> result;
  for (size_t i = 0; i < outputs.size(); ++i) result[state_->outputs[i].name] = outputs[i];
  return result;
}

Tensor Model::forward(const Tensor& x) const {
  TERN_CHECK(state_->inputs.size() == 1 && !state_->outputs.empty(), "onnx: the model has ", state_->inputs.size(),
             " inputs, which are given as a list");
  return forward(std::vector<Tensor>{x})[0];
}

std::unique_ptr<detail::ModelState> load_state(const std::string& path, const LoadOptions& options) {
  std::vector<std::string> unsupported;
  std::unique_ptr<detail::ModelState> state = read_state(path, options, unsupported);
  if (!unsupported.empty()) {
    std::string list;
    for (size_t i = 0; i < unsupported.size() && i < 20; ++i) list += (i > 0 ? "; " : "") + unsupported[i];
    if (unsupported.size() > 20) list += "; and " + std::to_string(unsupported.size() - 20) + " more";
    fail("onnx: cannot load ", path, ": ", list);
  }
  if (options.fuse) {
    fuse_steps(*state->program);
    fuse_layers(*state->program);
  }
  return state;
}

std::unique_ptr<Model> load(const std::string& path, const LoadOptions& options) {
  return std::make_unique<Model>(nn::Scope({.device = options.device, .generator = options.generator}),
                                 load_state(path, options));
}

}  // namespace tern::onnx
