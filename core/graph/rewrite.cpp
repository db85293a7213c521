// Changes that need other ops than the graph has: its calls are made again, with others among them, and traced.

#include <algorithm>
#include <map>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/graph/arguments.h"
#include "tern/core/graph/graph.h"
#include "tern/core/ops/norm/batch_norm.h"
#include "tern/core/ops/pointwise/pointwise.h"

namespace tern {
namespace {

/// Inputs and names with which a graph is traced again.
struct Setting {
  std::vector<Tensor> inputs;
  TraceOptions options;
};

Setting setting_of(const Graph& graph) {
  Setting setting;
  std::vector<int64_t> symbols;
  for (size_t s = 0; s < graph.symbols().size(); ++s) symbols.push_back(2 + static_cast<int64_t>(s));
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Graph::Value& value = graph.values()[static_cast<size_t>(graph.inputs()[i])];
    std::vector<int64_t> shape;
    for (size_t d = 0; d < value.shape.size(); ++d) {
      shape.push_back(value.shape[d].at(symbols));
      if (const int s = value.shape[d].symbol_index(); s >= 0)
        setting.options.dynamic.push_back(
            {static_cast<int>(i), static_cast<int>(d), graph.symbols()[static_cast<size_t>(s)]});
    }
    setting.inputs.push_back(zeros(Shape(shape), {value.dtype, value.device}));
    setting.options.input_names.push_back(value.name);
  }
  for (const Graph::Value& value : graph.values())
    if (value.constant.defined()) setting.options.names.push_back({value.name, value.constant});
  for (const int output : graph.outputs())
    setting.options.output_names.push_back(graph.values()[static_cast<size_t>(output)].name);
  return setting;
}

}  // namespace

class GraphRewriter {
 public:
  explicit GraphRewriter(const Graph& graph) : graph_(graph) { find_pairs(); }

  Graph without_batch_norms() {
    if (norms_.empty()) return graph_;
    Setting setting = setting_of(graph_);
    for (const auto& [norm, folded] : norms_)
      for (const NamedTensor& named : folded.names) setting.options.names.push_back(named);
    return trace([&](const std::vector<Tensor>& in) { return run(in); }, setting.inputs, setting.options);
  }

 private:
  /// A batch norm whose scale and shift become those of the layer before it.
  struct Folded {
    size_t layer = 0;  // the node
    Tensor weight, bias;
    ImageActivation activation = ImageActivation::kNone;
    StateView names = {};
  };

  const Graph::Value& value(int v) const { return graph_.values_[static_cast<size_t>(v)]; }
  const Tensor& constant(int v) const {
    static const Tensor none;
    return v < 0 ? none : value(v).constant;
  }

  void find_pairs() {
    std::map<int, size_t> maker;
    std::vector<int> uses(graph_.values_.size(), 0);
    for (size_t n = 0; n < graph_.nodes_.size(); ++n) {
      for (const int v : graph_.nodes_[n].outputs)
        if (v >= 0) maker[v] = n;
      for (const int v : graph_.nodes_[n].inputs)
        if (v >= 0) ++uses[static_cast<size_t>(v)];
    }
    for (const int v : graph_.outputs_) ++uses[static_cast<size_t>(v)];
    for (size_t n = 0; n < graph_.nodes_.size(); ++n) {
      const Graph::Node& norm = graph_.nodes_[n];
      if (norm.op != "batch_norm" || norm.inputs[0] < 0 || !maker.contains(norm.inputs[0])) continue;
      const size_t before = maker.at(norm.inputs[0]);
      const Graph::Node& layer = graph_.nodes_[before];
      const bool has_kernel = layer.op == "convolution" || layer.op == "linear";
      if (!has_kernel || uses[static_cast<size_t>(norm.inputs[0])] != 1 || !constant(layer.inputs[1]).defined() ||
          (layer.inputs[2] >= 0 && !constant(layer.inputs[2]).defined()))
        continue;
      fold(n, before);
    }
  }

  void fold(size_t n, size_t before) {
    const Graph::Node &norm = graph_.nodes_[n], &layer = graph_.nodes_[before];
    // x, weight, bias, residual, running mean, running variance; training, momentum, eps, activation
    const std::vector<GraphArgument> arguments = graph_.arguments(norm);
    const auto is_constant = [&](int v) { return v < 0 || constant(v).defined(); };
    const bool fixed = !arguments.at(6).size.constant() && constant(norm.inputs[4]).defined() &&
                       constant(norm.inputs[5]).defined() && is_constant(norm.inputs[1]) && is_constant(norm.inputs[2]);
    if (!fixed || (layer.op == "linear" && graph_.arguments(layer).at(3).size.constant() != 0)) return;
    const NoGrad off;
    const Tensor weight = constant(layer.inputs[1]).to(float64);
    Tensor scale = rsqrt(constant(norm.inputs[5]).to(float64) + arguments.at(8).number);
    if (norm.inputs[1] >= 0) scale = scale * constant(norm.inputs[1]).to(float64);
    Tensor bias = -constant(norm.inputs[4]).to(float64);
    if (layer.inputs[2] >= 0) bias = bias + constant(layer.inputs[2]).to(float64);
    bias = bias * scale;
    if (norm.inputs[2] >= 0) bias = bias + constant(norm.inputs[2]).to(float64);
    std::vector<int64_t> column(static_cast<size_t>(weight.dim()), 1);
    column[0] = scale.numel();
    const DType dtype = constant(layer.inputs[1]).dtype();
    Folded folded{.layer = before,
                  .weight = (weight * scale.reshape(column)).to(dtype),
                  .bias = bias.to(dtype),
                  .activation = static_cast<ImageActivation>(arguments.at(9).size.constant())};
    folded.names = {{value(layer.inputs[1]).name, folded.weight}};
    folded.names.push_back({layer.inputs[2] >= 0  ? value(layer.inputs[2]).name
                            : norm.inputs[2] >= 0 ? value(norm.inputs[2]).name
                                                  : value(layer.inputs[1]).name + ".bias",
                            folded.bias});
    layers_[before] = n;
    norms_.emplace(n, std::move(folded));
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const {
    const std::vector<int64_t> symbols = graph_.bind(inputs);
    std::vector<Tensor> values(graph_.values_.size());
    for (size_t v = 0; v < values.size(); ++v) values[v] = graph_.values_[v].constant;
    for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(graph_.inputs_[i])] = inputs[i];
    for (size_t n = 0; n < graph_.nodes_.size(); ++n) {
      const Graph::Node& node = graph_.nodes_[n];
      std::vector<Tensor> results;
      if (const auto norm = norms_.find(n); norm != norms_.end()) {
        Tensor y = values[static_cast<size_t>(node.inputs[0])];
        if (node.inputs[3] >= 0) y = y + values[static_cast<size_t>(node.inputs[3])];
        results = {activate(y, norm->second.activation)};
      } else if (const auto layer = layers_.find(n); layer != layers_.end()) {
        const Folded& folded = norms_.at(layer->second);
        const std::unique_ptr<detail::OpCall> call = node.call->clone();
        detail::set_tensors(*call, {values[static_cast<size_t>(node.inputs[0])], folded.weight, folded.bias});
        graph_.set_sizes(*call, node, symbols);
        results = call->run();
      } else {
        results = graph_.run_node(node, values, symbols);
      }
      for (size_t i = 0; i < results.size(); ++i)
        if (node.outputs[i] >= 0) values[static_cast<size_t>(node.outputs[i])] = results[i];
    }
    std::vector<Tensor> outputs;
    for (const int v : graph_.outputs_) outputs.push_back(values[static_cast<size_t>(v)]);
    return outputs;
  }

  const Graph& graph_;
  std::map<size_t, Folded> norms_;   // by the norm's node
  std::map<size_t, size_t> layers_;  // the layer's node: the norm's
};

int64_t Graph::fold_batch_norms() {
  const auto before = static_cast<int64_t>(nodes_.size());
  Graph without = GraphRewriter(*this).without_batch_norms();
  *this = std::move(without);
  return before - static_cast<int64_t>(nodes_.size());
}

Graph differentiate(const Graph& graph, const std::vector<std::string>& by) {
  Setting setting = setting_of(graph);
  struct Wanted {
    int input = -1;
    Tensor constant;
  };
  std::vector<Wanted> wanted;
  for (const std::string& name : by) {
    Wanted found;
    for (size_t i = 0; i < graph.inputs().size(); ++i)
      if (setting.options.input_names[i] == name) found.input = static_cast<int>(i);
    for (const Graph::Value& value : graph.values())
      if (value.constant.defined() && value.name == name) found.constant = value.constant;
    TERN_CHECK(found.input >= 0 || found.constant.defined(), "differentiate: there is no input or constant '", name,
               "'");
    Tensor& x = found.input >= 0 ? setting.inputs[static_cast<size_t>(found.input)] : found.constant;
    TERN_CHECK(is_floating(x.dtype()), "differentiate: '", name, "' is ", x.dtype(), ", which has no gradient");
    TERN_CHECK(found.input >= 0 || x.requires_grad(), "differentiate: '", name, "' does not require a gradient");
    x.set_requires_grad(true);
    wanted.push_back(found);
    setting.options.output_names.push_back("d_" + name);
  }
  TERN_CHECK(!wanted.empty(), "differentiate: no names were given");
  const auto fn = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> outputs = graph.run(in), leaves;
    for (const Wanted& w : wanted) leaves.push_back(w.input >= 0 ? in[static_cast<size_t>(w.input)] : w.constant);
    TERN_CHECK(outputs[0].requires_grad(), "differentiate: the first output does not depend on the named values");
    const std::vector<Tensor> gradients =
        grad({outputs[0]}, leaves, {.gradients = {ones_like(outputs[0])}, .create_graph = true, .allow_unused = true});
    for (size_t i = 0; i < gradients.size(); ++i)
      outputs.push_back(gradients[i].defined() ? gradients[i] : zeros_like(leaves[i]));
    return outputs;
  };
  return trace(fn, setting.inputs, setting.options);
}

}  // namespace tern
