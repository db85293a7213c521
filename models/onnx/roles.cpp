// What the tensors of a file are: parameters, buffers or constants.

#include <algorithm>
#include <cstring>
#include <set>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/state.h"

namespace tern::onnx {
namespace {

using Inputs = std::vector<NodeInput>;

/// Inputs of nodes that say how to compute, where a floating constant is no weight.
bool is_argument(const NodeDef& node, size_t input) {
  static const std::map<std::string, size_t> first = {{"Resize", 1},
                                                      {"Upsample", 1},
                                                      {"Clip", 1},
                                                      {"Range", 0},
                                                      {"QuantizeLinear", 1},
                                                      {"Pad", 1},
                                                      {"DequantizeLinear", 1},
                                                      {"Dropout", 1},
                                                      {"OneHot", 1},
                                                      {"CumSum", 1},
                                                      {"Reshape", 1},
                                                      {"Expand", 1},
                                                      {"Tile", 1},
                                                      {"Loop", 0},
                                                      {"If", 0},
                                                      {"Equal", 0},
                                                      {"Less", 0},
                                                      {"Greater", 0},
                                                      {"LessOrEqual", 0},
                                                      {"GreaterOrEqual", 0},
                                                      {"Attention", 3},
                                                      {"RotaryEmbedding", 1},
                                                      {"STFT", 1},
                                                      {"DFT", 1},
                                                      {"MelWeightMatrix", 0},
                                                      {"Where", 0},
                                                      {"QLinearConv", 0},
                                                      {"QLinearMatMul", 0},
                                                      {"NonMaxSuppression", 0}};
  const auto found = first.find(node.op);
  return found != first.end() && input >= found->second;
}

bool is_running_statistic(const NodeDef& node, size_t input) {
  return node.op == "BatchNormalization" && (input == 3 || input == 4);
}

bool is_real(int32_t element) {
  return element == kFloat || element == kDouble || element == kFloat16 || element == kBFloat16;
}

/// Weights of layers that PyTorch's exporter transposes or joins, so that they lose their names.
bool is_weight(const NodeDef& node, size_t input) {
  static const std::map<std::string, size_t> last = {{"MatMul", 1}, {"Gemm", 2}, {"Conv", 2}, {"ConvTranspose", 2},
                                                     {"LSTM", 3},   {"GRU", 3},  {"RNN", 3},  {"PRelu", 1}};
  const auto found = last.find(node.op);
  if (found == last.end()) return false;
  return input <= found->second && (input > 0 || node.op == "MatMul" || node.op == "Gemm");
}

enum class Role { kConstant, kParameter, kBuffer };

class Roles {
 public:
  Roles(const GraphDef& graph, const LoadOptions& options) : torch_names_(graph.torch_names), options_(options) {
    for (const auto& initializer : graph.initializers) taken_.insert(initializer->name);
  }

  Role of(const TensorData& data, const Inputs& inputs) const {
    if (!is_real(data.element) || data.numel() == 0 || inputs.empty()) return Role::kConstant;
    for (const std::string& pattern : options_.constants)
      if (nn::matches_pattern(data.name, pattern)) return Role::kConstant;
    const auto all = [&](auto test) {
      return std::all_of(inputs.begin(), inputs.end(),
                         [&](const NodeInput& input) { return test(*input.first, input.second); });
    };
    if (all(is_running_statistic)) return Role::kBuffer;
    if (const auto named = torch_names_.find(data.name); named != torch_names_.end())
      return named->second ? Role::kParameter : Role::kBuffer;
    if (all([](const NodeDef& node, size_t input) { return node.op == "PRelu" && input == 1; }))
      return Role::kParameter;
    if (data.dims.empty()) return Role::kConstant;
    // Where PyTorch names its parameters, others are constants of the graph, or weights that the exporter transposed.
    if (!torch_names_.empty()) return all(is_weight) ? Role::kParameter : Role::kConstant;
    return all(is_argument) ? Role::kConstant : Role::kParameter;
  }

  /// PyTorch's exporter stores equal tensors once, so that biases of a new model, which are all 0, become one. They are
  /// parameters of their own again: vectors of equal elements, and others that belong to modules of different names. A
  /// table of words that is also the last layer stays one. The inputs of each, the first for the tensor's own name.
  std::vector<Inputs> parts_of(const TensorData& data, const Inputs& inputs) const {
    const bool uniform = is_uniform(data);
    std::vector<Inputs> parts;
    std::map<std::string, size_t> by_module;
    for (const NodeInput& input : inputs) {
      const NodeDef& node = *input.first;
      const bool table = node.op == "Gather" || node.op == "Transpose";
      if (!uniform && (table || node.scope.empty() || torch_names_.empty())) return {inputs};
      const auto found = node.scope.empty() ? by_module.end() : by_module.find(node.scope);
      if (found != by_module.end()) {
        parts[found->second].push_back(input);
        continue;
      }
      if (!node.scope.empty()) by_module[node.scope] = parts.size();
      parts.push_back({input});
    }
    for (Inputs& part : parts)
      if (!part[0].first->scope.empty() && data.name.starts_with(part[0].first->scope + ".")) std::swap(part, parts[0]);
    return parts;
  }

  /// A name for another part of the tensor: PyTorch's, if the node's module has a parameter of that kind.
  std::string name_of_part(const TensorData& data, const Inputs& part) {
    const std::string kind = data.name.substr(data.name.rfind('.') + 1);
    std::string name = part[0].first->scope + "." + kind;
    if (!torch_names_.contains(name) || taken_.contains(name)) name = data.name;
    for (int i = 2; !taken_.insert(name).second; ++i) name = data.name + "_" + std::to_string(i);
    return name;
  }

 private:
  static bool is_uniform(const TensorData& data) {
    if (data.dims.size() != 1 || data.bytes == 0) return false;
    const int64_t size = data.bytes / data.dims[0];
    for (int64_t i = size; i < data.bytes; i += size)
      if (std::memcmp(data.data, data.data + i, static_cast<size_t>(size)) != 0) return false;
    return true;
  }

  const std::map<std::string, bool>& torch_names_;
  const LoadOptions& options_;
  std::set<std::string> taken_;
};

}  // namespace

void restore_biases(GraphDef& graph) {
  if (graph.torch_names.empty()) return;
  std::map<std::string, const TensorData*> initializers;
  for (const auto& initializer : graph.initializers) initializers[initializer->name] = initializer.get();
  for (const auto& node : graph.nodes) {
    const bool gemm = node->op == "Gemm";
    if ((!gemm && node->op != "Conv") || node->inputs.size() != 2 || node->scope.empty()) continue;
    const auto weight = initializers.find(node->inputs[1]);
    auto bias = graph.torch_names.end();
    if (node->inputs[1].ends_with(".weight"))
      bias = graph.torch_names.find(node->inputs[1].substr(0, node->inputs[1].rfind('.')) + ".bias");
    if (bias == graph.torch_names.end()) bias = graph.torch_names.find(node->scope + ".bias");
    if (weight == initializers.end() || bias == graph.torch_names.end() || !bias->second ||
        initializers.contains(bias->first) || weight->second->dims.size() < 2)
      continue;
    const auto transposed = node->attributes.find("transB");
    const bool rows = !gemm || (transposed != node->attributes.end() && transposed->second.i != 0);
    const int64_t size = weight->second->dims[rows ? 0 : 1];
    const int64_t bytes = size * element_bits(weight->second->element) / 8;
    if (!is_real(weight->second->element)) continue;
    const auto memory = std::make_shared<std::string>(static_cast<size_t>(bytes), '\0');
    auto restored = std::make_shared<TensorData>(TensorData{.name = bias->first,
                                                            .element = weight->second->element,
                                                            .dims = {size},
                                                            .data = memory->data(),
                                                            .bytes = bytes,
                                                            .owner = memory,
                                                            .is_restored = true});
    initializers[restored->name] = restored.get();
    graph.initializers.push_back(restored);
    node->inputs.push_back(restored->name);
  }
}

MakeSources sources_of(const GraphDef& graph, const LoadOptions& options, std::vector<std::unique_ptr<Weight>>& weights,
                       std::vector<std::string>& unsupported) {
  const auto roles = std::make_shared<Roles>(graph, options);
  return [&weights, &unsupported, roles](const TensorData& data, const Inputs& inputs) {
    std::vector<SourceOfInputs> sources(1);
    if (!is_supported(data.element)) {
      if (!inputs.empty())
        unsupported.push_back("initializer '" + data.name + "': elements of type " + element_name(data.element) +
                              " are not supported");
      return sources;
    }
    const Role role = roles->of(data, inputs);
    if (role == Role::kConstant) {
      sources[0].source.constant = {
          .tensor = data.tensor(), .element = data.element, .copies = std::make_shared<std::map<int, Tensor>>()};
      return sources;
    }
    const std::vector<Inputs> parts =
        role == Role::kParameter ? roles->parts_of(data, inputs) : std::vector<Inputs>{inputs};
    sources.resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      auto weight = std::make_unique<Weight>(Weight{.name = i == 0 ? data.name : roles->name_of_part(data, parts[i]),
                                                    .source = data.name,
                                                    .place = data.place,
                                                    .element = data.element,
                                                    .is_parameter = role == Role::kParameter,
                                                    .is_restored = data.is_restored,
                                                    .is_split = parts.size() > 1,
                                                    .initial = i == 0 ? data.tensor() : data.tensor().clone()});
      for (const auto& [node, input] : parts[i])
        if (!node->outputs.empty()) weight->inputs.emplace_back(node->outputs[0], input);
      sources[i].source.is_buffer = role == Role::kBuffer;
      sources[i].source.handle = weight->handle = std::make_shared<Tensor>(weight->initial);
      if (i > 0) sources[i].inputs = parts[i];
      weights.push_back(std::move(weight));
    }
    return sources;
  };
}

}  // namespace tern::onnx
