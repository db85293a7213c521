#include "tern/core/graph/graph.h"

#include <algorithm>
#include <ostream>
#include <sstream>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/graph/arguments.h"
#include "tern/core/graph/drop_unused.h"

namespace tern {
namespace {

std::string shape_text(const std::vector<SymbolicSize>& shape, const std::vector<std::string>& symbols) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + shape[d].str(symbols);
  return text + "]";
}

Shape shape_at(const Graph::Value& value, const std::vector<int64_t>& symbols) {
  std::vector<int64_t> sizes;
  for (const SymbolicSize& size : value.shape) sizes.push_back(size.at(symbols));
  return Shape(sizes);
}

/// For each value, how many nodes and outputs read it.
std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.values().size(), 0);
  for (const Graph::Node& node : graph.nodes())
    for (const int v : node.inputs)
      if (v >= 0) ++uses[static_cast<size_t>(v)];
  for (const int v : graph.outputs()) ++uses[static_cast<size_t>(v)];
  return uses;
}

std::string argument_text(const Graph& graph, const GraphArgument& a) {
  using Kind = GraphArgument::Kind;
  switch (a.kind) {
    case Kind::kTensor:
      return a.value < 0 ? "none" : "%" + graph.values()[static_cast<size_t>(a.value)].name;
    case Kind::kInteger:
    case Kind::kChoice:
      return a.size.str(graph.symbols());
    case Kind::kNumber:
      return a.text.empty() ? detail::concatenate(a.number) : a.text;
    case Kind::kText:
      return "\"" + a.text + "\"";
    case Kind::kDType:
      return detail::concatenate(a.dtype);
    case Kind::kDevice:
      return detail::concatenate(a.device);
    case Kind::kList:
      break;
  }
  std::string text;
  for (const GraphArgument& element : a.list) text += (text.empty() ? "" : ", ") + argument_text(graph, element);
  return "[" + text + "]";
}

}  // namespace

std::vector<int64_t> Graph::bind(const std::vector<Tensor>& inputs) const {
  TERN_CHECK(inputs.size() == inputs_.size(), "graph: expected ", inputs_.size(), " inputs, got ", inputs.size());
  std::vector<int64_t> symbols(symbols_.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& want = values_[static_cast<size_t>(inputs_[i])];
    const Tensor& x = inputs[i];
    const bool alike = x.defined() && x.dtype() == want.dtype && static_cast<size_t>(x.dim()) == want.shape.size();
    TERN_CHECK(alike, "graph: input '", want.name, "' is ", x.defined() ? x.describe() : "an undefined tensor",
               ", expected ", want.dtype, " ", shape_text(want.shape, symbols_), " on ", want.device);
    TERN_CHECK(x.device() == want.device, "graph: input '", want.name, "' is on ", x.device(), ", expected ",
               want.device, "; a graph runs on the device that it was traced on");
    for (int d = 0; d < x.dim(); ++d)
      if (const int s = want.shape[static_cast<size_t>(d)].symbol_index(); s >= 0) {
        int64_t& bound = symbols[static_cast<size_t>(s)];
        TERN_CHECK(bound < 0 || bound == x.size(d), "graph: '", symbols_[static_cast<size_t>(s)], "' is ", bound,
                   " in one input and ", x.size(d), " in '", want.name, "'");
        bound = x.size(d);
      }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& want = values_[static_cast<size_t>(inputs_[i])];
    TERN_CHECK(shape_at(want, symbols) == inputs[i].shape(), "graph: input '", want.name, "' is ", inputs[i].describe(),
               ", expected ", want.dtype, " ", shape_text(want.shape, symbols_),
               "; name a dimension whose size differs "
               "in TraceOptions::dynamic");
  }
  return symbols;
}

std::vector<Tensor> Graph::run_node(const Node& node, const std::vector<Tensor>& values,
                                    const std::vector<int64_t>& symbols) const {
  const std::unique_ptr<detail::OpCall> call = node.call->clone();
  std::vector<Tensor> tensors;
  for (const int v : node.inputs) tensors.push_back(v < 0 ? Tensor() : values[static_cast<size_t>(v)]);
  detail::set_tensors(*call, tensors);
  set_sizes(*call, node, symbols);
  return call->run();
}

void Graph::set_sizes(detail::OpCall& call, const Node& node, const std::vector<int64_t>& symbols) const {
  if (!node.sizes.empty()) {
    std::vector<int64_t> integers;
    for (const SymbolicSize& size : node.sizes) integers.push_back(size.at(symbols));
    detail::set_integers(call, integers);
  }
  if (!node.numbers.empty()) {
    std::vector<double> numbers;
    for (const SymbolicNumber& number : node.numbers) numbers.push_back(number.at(symbols));
    detail::set_numbers(call, numbers);
  }
}

std::vector<Tensor> Graph::run(const std::vector<Tensor>& inputs) const {
  const std::vector<int64_t> symbols = bind(inputs);
  std::vector<Tensor> values(values_.size());
  std::vector<int> uses = count_uses(*this);
  for (size_t v = 0; v < values.size(); ++v) values[v] = values_[v].constant;
  for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(inputs_[i])] = inputs[i].contiguous();
  for (const Node& node : nodes_) {
    const std::vector<Tensor> results = run_node(node, values, symbols);
    TERN_CHECK(results.size() == node.outputs.size(), "graph: ", node.op, " gave ", results.size(),
               " tensors, expected ", node.outputs.size());
    for (size_t i = 0; i < results.size(); ++i)
      if (node.outputs[i] >= 0 && uses[static_cast<size_t>(node.outputs[i])] > 0)
        values[static_cast<size_t>(node.outputs[i])] = results[i];
    for (const int v : node.inputs)
      if (v >= 0 && --uses[static_cast<size_t>(v)] == 0) values[static_cast<size_t>(v)] = Tensor();
  }
  std::vector<Tensor> outputs;
  for (const int v : outputs_) outputs.push_back(values[static_cast<size_t>(v)]);
  return outputs;
}

std::string Graph::str() const {
  std::ostringstream text;
  text << "graph(";
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Value& value = values_[static_cast<size_t>(inputs_[i])];
    text << (i == 0 ? "" : ", ") << "%" << value.name << ": " << value.dtype << " "
         << shape_text(value.shape, symbols_);
  }
  text << ")\n";
  for (const Node& node : nodes_) {
    text << "  ";
    for (size_t i = 0; i < node.outputs.size(); ++i)
      text << (i == 0 ? "" : ", ")
           << (node.outputs[i] < 0 ? "none" : "%" + values_[static_cast<size_t>(node.outputs[i])].name);
    text << " = " << node.op << "(";
    const std::vector<GraphArgument> all = arguments(node);
    for (size_t i = 0; i < all.size(); ++i) text << (i == 0 ? "" : ", ") << argument_text(*this, all[i]);
    text << ") :";
    for (const int v : node.outputs)
      if (v >= 0)
        text << " " << values_[static_cast<size_t>(v)].dtype << " "
             << shape_text(values_[static_cast<size_t>(v)].shape, symbols_);
    text << "\n";
  }
  text << "  return";
  for (size_t i = 0; i < outputs_.size(); ++i)
    text << (i == 0 ? " %" : ", %") << values_[static_cast<size_t>(outputs_[i])].name;
  text << "\n";
  return text.str();
}

std::ostream& operator<<(std::ostream& out, const Graph& graph) { return out << graph.str(); }

std::string Graph::difference(const Graph& direct, const std::vector<int64_t>& symbols) const {
  if (direct.nodes_.size() != nodes_.size() || direct.values_.size() != values_.size()) return "the number of calls";
  for (size_t v = 0; v < values_.size(); ++v) {
    std::vector<int64_t> there;
    for (const SymbolicSize& size : direct.values_[v].shape) there.push_back(size.constant());
    try {
      if (shape_at(values_[v], symbols) == Shape(there)) continue;
    } catch (const Error&) {  // no whole number
    }
    return detail::concatenate("the shape of %", values_[v].name, ", ", shape_text(values_[v].shape, symbols_), " but ",
                               Shape(there), " for other sizes,");
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const std::vector<int64_t> there = detail::integers_of(*direct.nodes_[n].call->clone());
    std::vector<int64_t> here = detail::integers_of(*nodes_[n].call->clone());
    const std::vector<double> numbers_there = detail::numbers_of(*direct.nodes_[n].call->clone());
    std::vector<double> numbers = detail::numbers_of(*nodes_[n].call->clone());
    try {
      for (size_t i = 0; i < nodes_[n].sizes.size(); ++i) here[i] = nodes_[n].sizes[i].at(symbols);
      for (size_t i = 0; i < nodes_[n].numbers.size(); ++i) numbers[i] = nodes_[n].numbers[i].at(symbols);
      const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
      if (here == there && std::equal(numbers.begin(), numbers.end(), numbers_there.begin(), same)) continue;
    } catch (const Error&) {
    }
    return "an argument of " + nodes_[n].op;
  }
  return "";
}

void Graph::check(const std::vector<int64_t>& symbols) const {
  TERN_CHECK(symbols.size() == symbols_.size(), "graph: expected the sizes of ", symbols_.size(), " symbols, got ",
             symbols.size());
  std::vector<bool> made(values_.size(), false);
  const auto in_range = [&](int v) { return v >= 0 && static_cast<size_t>(v) < values_.size(); };
  for (size_t v = 0; v < values_.size(); ++v) made[v] = values_[v].constant.defined();
  for (const int v : inputs_) {
    TERN_CHECK(in_range(v) && !made[static_cast<size_t>(v)], "graph: input ", v, " is no value, or made twice");
    made[static_cast<size_t>(v)] = true;
  }
  for (const Node& node : nodes_) {
    for (const int v : node.inputs)
      TERN_CHECK(v == -1 || (in_range(v) && made[static_cast<size_t>(v)]), "graph: ", node.op, " reads ",
                 in_range(v) ? "%" + values_[static_cast<size_t>(v)].name : std::to_string(v),
                 ", which is not made before it");
    for (const int v : node.outputs) {
      if (v == -1) continue;
      TERN_CHECK(in_range(v) && !made[static_cast<size_t>(v)], "graph: ", node.op, " makes ",
                 in_range(v) ? "%" + values_[static_cast<size_t>(v)].name : std::to_string(v),
                 ", which is made before");
      made[static_cast<size_t>(v)] = true;
    }
  }
  for (const int v : outputs_)
    TERN_CHECK(in_range(v) && made[static_cast<size_t>(v)], "graph: output ", v, " is not made");

  const NoGrad off;
  std::vector<Tensor> values(values_.size());
  for (size_t v = 0; v < values.size(); ++v) values[v] = values_[v].constant;
  for (const int v : inputs_) {
    const Value& value = values_[static_cast<size_t>(v)];
    values[static_cast<size_t>(v)] = zeros(shape_at(value, symbols), {value.dtype, value.device});
  }
  for (const Node& node : nodes_) {
    const std::vector<Tensor> results = run_node(node, values, symbols);
    TERN_CHECK(results.size() == node.outputs.size(), "graph: ", node.op, " gave ", results.size(),
               " tensors, expected ", node.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i] < 0) continue;
      const Value& want = values_[static_cast<size_t>(node.outputs[i])];
      TERN_CHECK(results[i].dtype() == want.dtype && results[i].shape() == shape_at(want, symbols), "graph: ", node.op,
                 " gave ", results[i].describe(), ", and %", want.name, " is ", want.dtype, " ",
                 shape_at(want, symbols));
      values[static_cast<size_t>(node.outputs[i])] = results[i];
    }
  }
}

int64_t Graph::remove_unused() {
  const size_t before = nodes_.size();
  detail::drop_unused(values_, nodes_, inputs_, outputs_);
  return static_cast<int64_t>(before - nodes_.size());
}

int64_t Graph::fold_constants() {
  const NoGrad off;
  const size_t before = nodes_.size();
  std::vector<Node> kept;
  for (Node& node : nodes_) {
    const bool constant =
        node.sizes.empty() && node.numbers.empty() && std::all_of(node.inputs.begin(), node.inputs.end(), [&](int v) {
          if (v < 0) return true;
          const Tensor& tensor = values_[static_cast<size_t>(v)].constant;
          return tensor.defined() && !tensor.requires_grad();
        });
    if (!constant) {
      kept.push_back(std::move(node));
      continue;
    }
    std::vector<Tensor> values(values_.size());
    for (const int v : node.inputs)
      if (v >= 0) values[static_cast<size_t>(v)] = values_[static_cast<size_t>(v)].constant;
    const std::vector<Tensor> results = run_node(node, values, {});
    for (size_t i = 0; i < results.size(); ++i)
      if (node.outputs[i] >= 0) values_[static_cast<size_t>(node.outputs[i])].constant = results[i];
  }
  nodes_ = std::move(kept);
  const auto folded = static_cast<int64_t>(before - nodes_.size());
  return folded + remove_unused();
}

MemoryPlan Graph::plan(const std::vector<int64_t>& symbols) const {
  TERN_CHECK(symbols.size() == symbols_.size(), "graph: expected the sizes of ", symbols_.size(), " symbols, got ",
             symbols.size());
  constexpr int64_t kAlignment = 64;
  const auto root_of = [&](int v) {
    while (values_[static_cast<size_t>(v)].view_of >= 0) v = values_[static_cast<size_t>(v)].view_of;
    return v;
  };
  MemoryPlan plan;
  std::vector<int> buffer_of(values_.size(), -1);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    for (const int v : nodes_[n].outputs) {
      if (v < 0 || root_of(v) != v) continue;
      const Value& value = values_[static_cast<size_t>(v)];
      const int64_t bytes = shape_at(value, symbols).numel() * static_cast<int64_t>(size_of(value.dtype));
      buffer_of[static_cast<size_t>(v)] = static_cast<int>(plan.buffers.size());
      plan.buffers.push_back({.value = v,
                              .first = static_cast<int>(n),
                              .last = static_cast<int>(n),
                              .bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment});
    }
    for (const int v : nodes_[n].inputs)
      if (v >= 0 && buffer_of[static_cast<size_t>(root_of(v))] >= 0)
        plan.buffers[static_cast<size_t>(buffer_of[static_cast<size_t>(root_of(v))])].last = static_cast<int>(n);
  }
  for (const int v : outputs_)
    if (buffer_of[static_cast<size_t>(root_of(v))] >= 0)
      plan.buffers[static_cast<size_t>(buffer_of[static_cast<size_t>(root_of(v))])].last =
          static_cast<int>(nodes_.size());
  for (size_t n = 0; n < nodes_.size(); ++n) {
    int64_t live = 0;
    for (const MemoryPlan::Buffer& b : plan.buffers)
      if (b.first <= static_cast<int>(n) && static_cast<int>(n) <= b.last) live += b.bytes;
    plan.peak_bytes = std::max(plan.peak_bytes, live);
  }
  // The largest first, each at the lowest offset where it meets no buffer that lives at the same time.
  std::vector<MemoryPlan::Buffer*> order;
  for (MemoryPlan::Buffer& b : plan.buffers) order.push_back(&b);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  std::vector<MemoryPlan::Buffer*> placed;
  for (MemoryPlan::Buffer* b : order) {
    std::vector<const MemoryPlan::Buffer*> others;
    for (const MemoryPlan::Buffer* other : placed)
      if (other->first <= b->last && b->first <= other->last) others.push_back(other);
    std::sort(others.begin(), others.end(), [](const auto* x, const auto* y) { return x->offset < y->offset; });
    int64_t offset = 0;
    for (const MemoryPlan::Buffer* other : others) {
      if (offset + b->bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    b->offset = offset;
    placed.push_back(b);
    plan.total_bytes += b->bytes;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + b->bytes);
  }
  return plan;
}

}  // namespace tern
