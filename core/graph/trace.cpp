// trace(): one or several recordings of a function, joined to a graph.

#include <algorithm>
#include <unordered_map>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/place.h"
#include "tern/core/graph/arguments.h"
#include "tern/core/graph/drop_unused.h"
#include "tern/core/graph/graph.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/tensor/tensor_impl.h"

namespace tern {
namespace {

/// Takes the tensors out of a call.
class TensorTaker final : public detail::QuietVisitor {
 public:
  explicit TensorTaker(const char* op) : op_(op) {}
  void tensor(Tensor& x) override { tensors.push_back(std::exchange(x, Tensor())); }
  void opaque(const char* what) override {
    fail("trace: ", op_, " has an argument that is ", what, ", so that its call cannot be repeated later");
  }
  std::vector<Tensor> tensors;

 private:
  const char* op_;
};

/// One recording: a value for each tensor, without symbols.
struct Recording {
  struct Value {
    Tensor tensor;
    bool constant = false, derived = false;  // derived: depends on an input
    int view_of = -1;
  };
  struct Node {
    std::unique_ptr<detail::OpCall> call;
    std::vector<int> inputs, outputs;
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<int> inputs, outputs;
};

class Recorder final : public detail::TraceSink {
 public:
  Recording run(const TracedFunction& fn, const std::vector<Tensor>& inputs) {
    for (const Tensor& x : inputs) {
      const int value = add(x, false);
      recording_.values[static_cast<size_t>(value)].derived = true;
      recording_.inputs.push_back(value);
    }
    std::vector<Tensor> outputs;
    {
      const detail::TraceScope scope(this);
      outputs = fn(inputs);
    }
    TERN_CHECK(!outputs.empty(), "trace: the function returned no tensors");
    for (const Tensor& y : outputs) {
      TERN_CHECK(y.defined(), "trace: output ", recording_.outputs.size(), " of the function is an undefined tensor");
      recording_.outputs.push_back(value_of(y, "an output"));
    }
    // Calls that no output depends on may differ from size to size.
    detail::drop_unused(recording_.values, recording_.nodes, recording_.inputs, recording_.outputs);
    return std::move(recording_);
  }

  void record(std::unique_ptr<detail::OpCall> call, const std::vector<Tensor>& results) override {
    if (std::all_of(results.begin(), results.end(), [&](const Tensor& y) { return known_.contains(y.impl()); })) return;
    TensorTaker taker(call->name());
    call->visit(taker);
    Recording::Node node;
    bool derived = false;
    for (const Tensor& x : taker.tensors) {
      node.inputs.push_back(x.defined() ? value_of(x, call->name()) : -1);
      derived = derived || (x.defined() && at(node.inputs.back()).derived);
    }
    for (const Tensor& y : results) {
      TERN_CHECK(!y.defined() || !known_.contains(y.impl()), "trace: ", call->name(),
                 " returned one of its inputs as one of several results");
      node.outputs.push_back(y.defined() ? add(y, derived) : -1);
    }
    node.call = std::move(call);
    recording_.nodes.push_back(std::move(node));
  }

  void made(const Tensor& x) override { made_.emplace(x.impl(), x); }

  void constant(const Tensor& x) override {
    made_.erase(x.impl());
    if (known_.contains(x.impl())) return;
    at(add(x, false)).constant = true;
  }

  void read(const Tensor& x, const char* how) override {
    const auto found = known_.find(x.impl());
    const int value = found != known_.end() ? found->second : value_at_memory(x);
    const bool derived = value >= 0 ? at(value).derived : made_.contains(x.impl());
    if (!derived) return;
    const detail::TraceScope off(nullptr);
    const auto place = detail::current_place();
    fail("trace: ", how, "() reads ", x.describe(),
         ", which depends on an input, so that what follows could differ from run to run; write it with ops (where, "
         "index_select), or leave it outside of the traced function",
         detail::describe_place(place.get()));
  }

  void changed(const Tensor& x, const Tensor& result) override {
    const auto found = known_.find(x.impl());
    if (found != known_.end()) {
      const int before = found->second;
      TERN_CHECK(!at(before).constant && before >= static_cast<int>(recording_.inputs.size()), "trace: ", x.describe(),
                 ", an input or a tensor from outside of the function, is changed in place; use the op that returns a "
                 "new tensor");
      TERN_CHECK(at(before).view_of < 0, "trace: a view, ", x.describe(),
                 ", is changed in place; use the op that returns a new tensor");
    }
    made_.erase(x.impl());
    const int value = value_of(result, "an op in place");
    known_[x.impl()] = value;
    current_.insert_or_assign(x.impl(), x);
    versions_[x.impl()] = x.version();
  }

 private:
  Recording::Value& at(int value) { return recording_.values[static_cast<size_t>(value)]; }

  int add(const Tensor& x, bool derived) {
    const auto value = static_cast<int>(recording_.values.size());
    Recording::Value entry{.tensor = x, .derived = derived};
    std::vector<int>& sharing = at_storage_[x.storage().get()];
    if (!sharing.empty()) entry.view_of = sharing[0];
    sharing.push_back(value);
    recording_.values.push_back(std::move(entry));
    known_[x.impl()] = value;
    versions_[x.impl()] = x.version();
    return value;
  }

  int value_of(const Tensor& x, const char* user) {
    const auto found = known_.find(x.impl());
    if (found == known_.end()) {
      if (const int value = value_at_memory(x); value >= 0) return value;
      TERN_CHECK(!made_.contains(x.impl()), "trace: ", user, " reads ", x.describe(),
                 ", which an op made that trace does not record; compute it before, and let the function capture it");
      const int value = add(x, false);
      at(value).constant = true;
      return value;
    }
    const int value = found->second;
    const bool follows = at(value).constant || versions_.at(x.impl()) == x.version();
    TERN_CHECK(follows, "trace: ", user, " reads ", x.describe(),
               ", whose memory was changed in place through another tensor; use ops that return new tensors");
    return value;
  }

  /// The value that is another handle on the elements of x, as autograd makes them for what it saves; -1: there is
  /// none.
  int value_at_memory(const Tensor& x) const {
    const auto found = at_storage_.find(x.storage().get());
    if (found == at_storage_.end()) return -1;
    bool derived = false;
    for (auto v = found->second.rbegin(); v != found->second.rend(); ++v) {
      const Recording::Value& value = recording_.values[static_cast<size_t>(*v)];
      const Tensor& t = value.tensor;
      derived = derived || !value.constant;
      if (t.storage_offset() == x.storage_offset() && t.shape() == x.shape() && t.strides() == x.strides() &&
          t.dtype() == x.dtype() && (value.constant || versions_.at(t.impl()) == x.version()))
        return *v;
    }
    TERN_CHECK(!derived, "trace: ", x.describe(),
               " is a view of a traced tensor's memory that was made by no op, or the memory was changed in place; use "
               "ops that return new tensors");
    return -1;
  }

  Recording recording_;
  std::unordered_map<const Storage*, std::vector<int>> at_storage_;
  std::unordered_map<const detail::TensorImpl*, int> known_;
  std::unordered_map<const detail::TensorImpl*, uint32_t> versions_;
  std::unordered_map<const detail::TensorImpl*, Tensor> made_, current_;
};

/// What tells one call from another, besides tensors and integers.
class Description final : public detail::QuietVisitor {
 public:
  void integer(int64_t&) override { text_ += "i,"; }
  void number(double&) override { text_ += "n,"; }
  void choice(int64_t value) override { text_ += detail::concatenate("c", value, ","); }
  void text(const std::string& value) override { text_ += "t" + value + ","; }
  void dtype(DType value) override { text_ += detail::concatenate(value, ","); }
  void tensor(Tensor&) override { text_ += "x,"; }
  void begin_list(size_t size) override { text_ += detail::concatenate("[", size, ","); }
  static std::string of(detail::OpCall& call) {
    Description description;
    call.visit(description);
    return detail::concatenate(call.name(), "(", description.text_, ")");
  }

 private:
  std::string text_;
};

bool equal_elements(const Tensor& a, const Tensor& b) {
  const NoGrad off;
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.to_vector<double>() == b.to_vector<double>();
}

}  // namespace

/// Makes a graph of recordings of one function at several sizes.
class GraphBuilder {
 public:
  GraphBuilder(std::vector<Recording> recordings, std::vector<std::string> symbols, const SymbolicFit* fit)
      : all_(std::move(recordings)), fit_(fit) {
    graph_.symbols_ = std::move(symbols);
  }

  Graph build(const TraceOptions& options) {
    const Recording& first = all_[0];
    for (const Recording& other : all_) compare(first, other);
    std::unordered_map<const detail::TensorImpl*, std::string> names;
    for (const NamedTensor& named : options.names) names.emplace(named.tensor.impl(), named.name);
    for (size_t v = 0; v < first.values.size(); ++v) add_value(v, names);
    for (size_t n = 0; n < first.nodes.size(); ++n) add_node(n);
    graph_.inputs_ = first.inputs;
    graph_.outputs_ = first.outputs;
    for (size_t i = 0; i < first.inputs.size(); ++i)
      name_of(first.inputs[i]) =
          i < options.input_names.size() ? options.input_names[i] : detail::concatenate("input", i);
    for (size_t i = 0; i < first.outputs.size(); ++i) {
      const auto output = static_cast<size_t>(first.outputs[i]);
      const bool made = std::find(first.inputs.begin(), first.inputs.end(), first.outputs[i]) == first.inputs.end() &&
                        !first.values[output].constant;
      if (i < options.output_names.size())
        name_of(first.outputs[i]) = options.output_names[i];
      else if (made)
        name_of(first.outputs[i]) = detail::concatenate("output", i);
    }
    graph_.remove_unused();
    return std::move(graph_);
  }

 private:
  static void compare(const Recording& a, const Recording& b) {
    constexpr const char* kHint =
        " for another size of a dynamic dimension; what the function calls must not depend on it";
    TERN_CHECK(a.outputs.size() == b.outputs.size(), "trace: the function returned ", a.outputs.size(),
               " tensors, and ", b.outputs.size(), kHint);
    for (size_t n = 0; n < std::min(a.nodes.size(), b.nodes.size()); ++n) {
      const Recording::Node &x = a.nodes[n], &y = b.nodes[n];
      const std::string called = Description::of(*x.call), otherwise = Description::of(*y.call);
      TERN_CHECK(called == otherwise && x.inputs == y.inputs && x.outputs == y.outputs, "trace: call ", n, " is ",
                 called, ", and ", otherwise, kHint);
    }
    TERN_CHECK(a.nodes.size() == b.nodes.size() && a.outputs == b.outputs, "trace: the function makes ", a.nodes.size(),
               " calls, and ", b.nodes.size(), kHint);
    for (size_t v = 0; v < a.values.size(); ++v) {
      const Recording::Value &x = a.values[v], &y = b.values[v];
      TERN_CHECK(x.constant == y.constant && x.tensor.dtype() == y.tensor.dtype() && x.tensor.dim() == y.tensor.dim() &&
                     x.view_of == y.view_of,
                 "trace: ", x.tensor.describe(), " is ", y.tensor.describe(), kHint);
      TERN_CHECK(!x.constant || same(x.tensor, y.tensor) || equal_elements(x.tensor, y.tensor), "trace: a constant, ",
                 x.tensor.describe(), ", is another one, ", y.tensor.describe(), kHint,
                 " (make it with ops: arange and full take sizes)");
    }
  }

  /// The number at one place of all recordings.
  template <class Number>
  SymbolicSize size_of_all(const Number& number) const {
    std::vector<int64_t> values;
    for (const Recording& recording : all_) values.push_back(number(recording));
    if (!fit_) return values[0];
    return fit_->fit(values);
  }

  std::string& name_of(int value) { return graph_.values_[static_cast<size_t>(value)].name; }

  void add_value(size_t v, const std::unordered_map<const detail::TensorImpl*, std::string>& names) {
    const Recording::Value& value = all_[0].values[v];
    Graph::Value made{.name = std::to_string(v), .dtype = value.tensor.dtype(), .device = value.tensor.device()};
    for (int d = 0; d < value.tensor.dim(); ++d)
      made.shape.push_back(size_of_all([&](const Recording& r) { return r.values[v].tensor.size(d); }));
    if (value.constant) made.constant = value.tensor;
    made.view_of = value.view_of;
    if (const auto found = names.find(value.tensor.impl()); found != names.end()) made.name = found->second;
    graph_.values_.push_back(std::move(made));
  }

  void add_node(size_t n) {
    const Recording::Node& node = all_[0].nodes[n];
    Graph::Node made{.op = node.call->name(), .inputs = node.inputs, .outputs = node.outputs};
    std::vector<std::vector<int64_t>> integers;
    for (const Recording& recording : all_) integers.push_back(detail::integers_of(*recording.nodes[n].call));
    bool depends = false;
    for (size_t i = 0; i < integers[0].size(); ++i) {
      std::vector<int64_t> values;
      for (const std::vector<int64_t>& all : integers) values.push_back(all[i]);
      made.sizes.push_back(fit_ ? fit_->fit(values) : SymbolicSize(values[0]));
      depends = depends || !made.sizes.back().is_constant();
    }
    if (!depends) made.sizes.clear();
    std::vector<std::vector<double>> numbers;
    for (const Recording& recording : all_) numbers.push_back(detail::numbers_of(*recording.nodes[n].call));
    depends = false;
    for (size_t i = 0; fit_ && i < numbers[0].size(); ++i) {
      std::vector<double> values;
      for (const std::vector<double>& all : numbers) values.push_back(all[i]);
      made.numbers.push_back(fit_->fit_numbers(made.op, values, graph_.symbols_));
      depends = depends || made.numbers.back().is_size;
    }
    if (!depends) made.numbers.clear();
    made.call = node.call->clone();
    graph_.nodes_.push_back(std::move(made));
  }

  std::vector<Recording> all_;
  const SymbolicFit* const fit_;
  Graph graph_;
};

namespace {

/// x with a size of dimension dim: its elements repeated, or the first of them.
Tensor resized(const Tensor& x, int dim, int64_t size) {
  const NoGrad off;
  std::vector<int64_t> index(static_cast<size_t>(size));
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int64_t>(i) % x.size(dim);
  Tensor result = index_select(x, dim, from_vector(index, {size}).to(x.device()));
  if (x.requires_grad()) result.set_requires_grad(true);
  return result;
}

/// Sizes at which a dimension of this size is traced. Small ones are near, so that no limit of the function is passed.
std::vector<int64_t> sample_sizes(int64_t size, int symbol) {
  if (size >= 12) return {size - symbol, size - 2 - symbol, size - 5 - symbol, size - 3 - symbol};
  const int64_t least = 2 + symbol;
  return {least, least + 3, least + 7, least + 4};
}

}  // namespace

Graph trace(const TracedFunction& fn, const std::vector<Tensor>& inputs, const TraceOptions& options) {
  TERN_CHECK(fn, "trace: the function is empty");
  TERN_CHECK(!detail::active_trace(), "trace: called within a function that is being traced");
  std::vector<std::string> symbols;
  std::vector<int64_t> sizes;
  std::vector<int> symbol_of(options.dynamic.size());
  for (size_t i = 0; i < options.dynamic.size(); ++i) {
    const TraceOptions::Dynamic& d = options.dynamic[i];
    TERN_CHECK(d.input >= 0 && static_cast<size_t>(d.input) < inputs.size(), "trace: dynamic dimension '", d.name,
               "' is of input ", d.input, ", and there are ", inputs.size());
    const Tensor& x = inputs[static_cast<size_t>(d.input)];
    const int64_t size = x.size(d.dim);
    TERN_CHECK(size > 0, "trace: dynamic dimension '", d.name, "' of input ", d.input, ", ", x.describe(),
               ", has size 0; give it at least one element");
    const auto found = std::find(symbols.begin(), symbols.end(), d.name);
    symbol_of[i] = static_cast<int>(found - symbols.begin());
    if (found == symbols.end()) {
      symbols.push_back(d.name);
      sizes.push_back(size);
    }
    TERN_CHECK(sizes[static_cast<size_t>(symbol_of[i])] == size, "trace: the dimensions named '", d.name,
               "' have the sizes ", sizes[static_cast<size_t>(symbol_of[i])], " and ", size);
  }
  TERN_CHECK(symbols.size() <= 3, "trace: ", symbols.size(), " dynamic sizes, expected at most 3");
  for (const Tensor& x : inputs) {
    TERN_CHECK(x.defined(), "trace: an input is undefined");
    TERN_CHECK(!autocast_enabled(x.device()),
               "trace: called within an autocast region; trace outside of it, and run the graph within");
  }

  const auto recorded_at = [&](const std::vector<int64_t>& point) {
    std::vector<Tensor> sized;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor x = inputs[i].detach().contiguous();
      for (size_t d = 0; d < options.dynamic.size(); ++d)
        if (options.dynamic[d].input == static_cast<int>(i))
          x = resized(x, options.dynamic[d].dim, point[static_cast<size_t>(symbol_of[d])]);
      x = detail::alias(x);
      if (inputs[i].requires_grad()) x.set_requires_grad(true);
      sized.push_back(x);
    }
    const GradMode on(true);
    return Recorder().run(fn, sized);
  };
  if (symbols.empty()) {
    std::vector<Recording> one;
    one.push_back(recorded_at({}));
    return GraphBuilder(std::move(one), {}, nullptr).build(options);
  }

  // Products of symbols need two sizes of each, squares three; a further point confirms the polynomials.
  for (const size_t count : {size_t{2}, size_t{3}}) {
    std::vector<std::vector<int64_t>> samples;
    std::vector<int64_t> further;
    for (size_t s = 0; s < symbols.size(); ++s) {
      const std::vector<int64_t> all = sample_sizes(sizes[s], static_cast<int>(s));
      samples.emplace_back(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
      further.push_back(all[3]);
    }
    const SymbolicFit fit(samples);
    std::vector<Recording> recordings;
    for (const std::vector<int64_t>& point : fit.points()) recordings.push_back(recorded_at(point));
    const Graph graph = GraphBuilder(std::move(recordings), symbols, &fit).build(options);
    std::vector<Recording> confirming;
    confirming.push_back(recorded_at(further));
    const Graph direct = GraphBuilder(std::move(confirming), {}, nullptr).build(options);
    const std::string difference = graph.difference(direct, further);
    if (difference.empty()) return graph;
    TERN_CHECK(count < 3, "trace: ", difference,
               " is no polynomial of the dynamic sizes; trace without dynamic "
               "dimensions, a graph for each size");
  }
  fail("trace: no polynomial was found");  // not reached
}

}  // namespace tern
