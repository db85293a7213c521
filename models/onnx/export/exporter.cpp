#include "tern/models/onnx/export/exporter.h"

#include <algorithm>
#include <sstream>

#include "tern/core/autograd/grad_mode.h"
#include "tern/models/onnx/export.h"

namespace tern::onnx {

Attribute attribute(int64_t value) { return {.kind = AttributeKind::kInt, .i = value}; }
Attribute attribute(double value) { return {.kind = AttributeKind::kFloat, .f = value}; }
Attribute attribute(const std::string& value) { return {.kind = AttributeKind::kString, .s = value}; }
Attribute attribute(const std::vector<int64_t>& values) { return {.kind = AttributeKind::kInts, .ints = values}; }

namespace {

const ExportTable& export_table() {
  static const ExportTable table = [] {
    ExportTable all;
    add_pointwise(all);
    add_structured(all);
    add_networks(all);
    add_images(all);
    return all;
  }();
  return table;
}

TensorData data_of(const Tensor& tensor, const std::string& name) {
  const NoGrad off;
  const auto kept = std::make_shared<Tensor>(tensor.detach().to(cpu).contiguous());
  return {.name = name,
          .element = element_of(kept->dtype()),
          .dims = kept->shape().vec(),
          .data = static_cast<const char*>(kept->raw_data()),
          .bytes = kept->nbytes(),
          .owner = kept};
}

}  // namespace

Exporter::Exporter(const Graph& graph, int64_t opset) : graph_(graph), opset_(opset) {
  TERN_CHECK(opset >= 17 && opset <= 23, "onnx: opset ", opset, " cannot be written, expected 17 to 23");
}

ModelDef Exporter::run() {
  model_.ir_version = opset_ >= 23 ? 11 : opset_ >= 20 ? 9 : 8;
  model_.opsets = {{"", opset_}};
  model_.graph.name = "tern";
  for (const int v : graph_.inputs()) {
    model_.graph.inputs.push_back(value_info(v));
    TERN_CHECK(used_.insert(info(v).name).second, "onnx: two inputs have the name '", info(v).name, "'");
    names_[v] = info(v).name;
  }
  for (const int v : graph_.outputs())
    TERN_CHECK(used_.insert(info(v).name).second || names_.contains(v), "onnx: two outputs have the name '",
               info(v).name, "'");
  for (const Graph::Node& node : graph_.nodes()) {
    current_ = &node;
    const auto found = export_table().find(node.op);
    if (found == export_table().end()) refuse("it has no counterpart among ONNX's nodes that this exporter knows");
    found->second(*this, node, graph_.arguments(node));
    for (const int v : node.outputs)
      if (v >= 0 && !names_.contains(v)) names_[v] = "";  // read by nothing that is written
  }
  name_outputs();
  drop_unused();
  return std::move(model_);
}

/// Nodes and constants that nothing reads: an attention's offsets, say, which ONNX's attention does not need.
void Exporter::drop_unused() {
  std::set<std::string> needed;
  for (const ValueInfo& output : model_.graph.outputs) needed.insert(output.name);
  std::vector<std::shared_ptr<NodeDef>> kept;
  for (auto node = model_.graph.nodes.rbegin(); node != model_.graph.nodes.rend(); ++node) {
    const auto is_needed = [&](const std::string& name) { return needed.contains(name); };
    if (std::none_of((*node)->outputs.begin(), (*node)->outputs.end(), is_needed)) continue;
    needed.insert((*node)->inputs.begin(), (*node)->inputs.end());
    kept.push_back(*node);
  }
  model_.graph.nodes.assign(kept.rbegin(), kept.rend());
  std::erase_if(model_.graph.initializers, [&](const auto& tensor) { return !needed.contains(tensor->name); });
}

void Exporter::refuse(const std::string& why) const {
  std::string shapes;
  for (const int v : current_->inputs) {
    if (v < 0) continue;
    std::string shape;
    for (const SymbolicSize& size : info(v).shape) shape += (shape.empty() ? "" : ", ") + size.str(graph_.symbols());
    shapes += (shapes.empty() ? "" : ", ") + tern::detail::concatenate(info(v).dtype) + " [" + shape + "]";
  }
  fail("onnx: ", current_->op, " of ", shapes, " cannot be written with opset ", opset_, ": ", why);
}

std::string Exporter::name(int value) {
  if (value < 0) return "";
  const auto found = names_.find(value);
  if (found != names_.end() && !found->second.empty()) return found->second;
  const Graph::Value& what = info(value);
  if (!what.constant.defined()) refuse("it reads a result that is not among ONNX's nodes");
  // A parameter keeps its name; a number that trace() gave is no name.
  const bool named = !what.name.empty() && (what.name[0] < '0' || what.name[0] > '9');
  if (!named) return names_[value] = constant(what.constant);
  const std::string given = used_.insert(what.name).second ? what.name : fresh(what.name);
  model_.graph.initializers.push_back(std::make_shared<TensorData>(data_of(what.constant, given)));
  return names_[value] = given;
}

std::string Exporter::fresh(const std::string& stem) {
  std::string text;
  do text = stem + "_" + std::to_string(next_++);
  while (!used_.insert(text).second);
  return text;
}

std::vector<std::string> Exporter::nodes(const std::string& op, const std::vector<std::string>& inputs, size_t outputs,
                                         const Attributes& attributes) {
  NodeDef made{.op = op, .inputs = inputs, .attributes = attributes};
  while (!made.inputs.empty() && made.inputs.back().empty()) made.inputs.pop_back();
  for (size_t i = 0; i < outputs; ++i) made.outputs.push_back(fresh(op));
  made.name = made.outputs[0];
  std::vector<std::string> results = made.outputs;
  model_.graph.nodes.push_back(std::make_shared<NodeDef>(std::move(made)));
  return results;
}

std::string Exporter::node(const std::string& op, const std::vector<std::string>& inputs,
                           const Attributes& attributes) {
  return nodes(op, inputs, 1, attributes)[0];
}

std::string Exporter::constant(const Tensor& tensor) {
  const TensorData data = data_of(tensor, "");
  std::string key;
  if (data.bytes <= 4096) {
    key = std::to_string(data.element);
    for (const int64_t d : data.dims) key += "," + std::to_string(d);
    key += ":" + std::string(data.data, static_cast<size_t>(data.bytes));
    if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  }
  TensorData named = data;
  named.name = fresh("constant");
  model_.graph.initializers.push_back(std::make_shared<TensorData>(named));
  if (!key.empty()) constants_[key] = named.name;
  return named.name;
}

std::string Exporter::integers(const std::vector<int64_t>& values) {
  return constant(from_vector(values, {static_cast<int64_t>(values.size())}));
}
std::string Exporter::scalar(double value, DType dtype) { return constant(full({}, value, {.dtype = dtype})); }

std::string Exporter::cast(const std::string& x, DType from, DType to) {
  if (from == to) return x;
  return node("Cast", {x}, {{"to", attribute(int64_t{element_of(to)})}});
}

/// A vector of one element: the size of an input's dimension.
std::string Exporter::symbol(int index) {
  std::string& known = symbols_[index];
  if (!known.empty()) return known;
  for (const int v : graph_.inputs())
    for (size_t d = 0; d < info(v).shape.size(); ++d)
      if (info(v).shape[d].symbol_index() == index)
        return known = node(
                   "Shape", {name(v)},
                   {{"start", attribute(static_cast<int64_t>(d))}, {"end", attribute(static_cast<int64_t>(d) + 1)}});
  refuse("no input has the size '" + graph_.symbols()[static_cast<size_t>(index)] + "'");
}

std::string Exporter::size(const SymbolicSize& value) {
  if (value.is_constant()) return integers({value.constant()});
  std::string sum;
  for (const SymbolicSize::Term& term : value.terms()) {
    std::string product;
    for (size_t s = 0; s < term.powers.size(); ++s)
      for (int p = 0; p < term.powers[s]; ++p) {
        const std::string factor = symbol(static_cast<int>(s));
        product = product.empty() ? factor : node("Mul", {product, factor});
      }
    if (product.empty())
      product = integers({term.factor});
    else if (term.factor != 1)
      product = node("Mul", {product, integers({term.factor})});
    sum = sum.empty() ? product : node("Add", {sum, product});
  }
  return value.divisor() == 1 ? sum : node("Div", {sum, integers({value.divisor()})});
}

std::string Exporter::sizes(const std::vector<SymbolicSize>& values, bool of_reshape) {
  std::vector<SymbolicSize> left = values;
  const bool has_zero =
      std::any_of(left.begin(), left.end(), [](const SymbolicSize& s) { return s.is_constant() && s.constant() == 0; });
  if (of_reshape && !has_zero) {
    const auto open = std::find_if(left.begin(), left.end(), [](const SymbolicSize& s) { return !s.is_constant(); });
    if (open != left.end()) *open = SymbolicSize(-1);
  }
  if (std::all_of(left.begin(), left.end(), [](const SymbolicSize& s) { return s.is_constant(); })) {
    std::vector<int64_t> known;
    for (const SymbolicSize& s : left) known.push_back(s.constant());
    return integers(known);
  }
  std::vector<std::string> parts;
  for (const SymbolicSize& s : left) parts.push_back(size(s));
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", attribute(int64_t{0})}});
}

std::string Exporter::reshape(const std::string& x, const std::vector<SymbolicSize>& shape) {
  return node("Reshape", {x, sizes(shape, true)});
}

std::string Exporter::transpose(const std::string& x, const std::vector<int64_t>& order) {
  return node("Transpose", {x}, {{"perm", attribute(order)}});
}

std::string Exporter::reduce(const std::string& op, const std::string& x, const std::vector<int64_t>& axes,
                             bool keepdims) {
  const Attribute keep = attribute(int64_t{keepdims});
  if (op == "ReduceSum" || opset_ >= 18) return node(op, {x, integers(axes)}, {{"keepdims", keep}});
  return node(op, {x}, {{"axes", attribute(axes)}, {"keepdims", keep}});
}

ValueInfo Exporter::value_info(int value) {
  const Graph::Value& what = info(value);
  ValueInfo result{.name = what.name, .dtype = what.dtype, .has_shape = true};
  result.type = element_name(element_of(what.dtype));
  for (const SymbolicSize& size : what.shape) {
    if (size.is_constant())
      result.shape.push_back({.size = size.constant()});
    else
      result.shape.push_back({.size = -1, .name = size.str(graph_.symbols())});
  }
  return result;
}

void Exporter::name_outputs() {
  std::map<std::string, std::string> renamed;
  for (const int v : graph_.outputs()) {
    const std::string now = name(v), wanted = info(v).name;
    model_.graph.outputs.push_back(value_info(v));
    if (now == wanted) continue;
    const bool is_result = std::any_of(model_.graph.nodes.begin(), model_.graph.nodes.end(), [&](const auto& n) {
      return std::find(n->outputs.begin(), n->outputs.end(), now) != n->outputs.end();
    });
    if (is_result && !renamed.contains(now)) {
      renamed[now] = wanted;
      continue;
    }
    NodeDef copy{.name = wanted, .op = "Identity", .inputs = {now}, .outputs = {wanted}};
    model_.graph.nodes.push_back(std::make_shared<NodeDef>(copy));
  }
  for (const auto& n : model_.graph.nodes)
    for (std::vector<std::string>* list : {&n->inputs, &n->outputs})
      for (std::string& text : *list)
        if (const auto found = renamed.find(text); found != renamed.end()) text = found->second;
}

void save(const Graph& graph, const std::string& path, const SaveOptions& options) {
  ModelDef model = Exporter(graph, options.opset).run();
  model.metadata = options.metadata;
  write_model(model, path, options.most_bytes_inside);
}

}  // namespace tern::onnx
