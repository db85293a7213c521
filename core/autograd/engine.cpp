#include "tern/core/autograd/engine.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "tern/core/allocator.h"
#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/reduce.h"

namespace tern {
namespace {

/// Stands behind the gradients of an op whose backward calls kernels: differentiating them again is an error.
class NotTwiceDifferentiable final : public Node {
 public:
  explicit NotTwiceDifferentiable(std::string op) : op_(std::move(op)) {
    detail::end_construction();
    set_recorded(true);
  }
  const char* name() const override { return "not_twice_differentiable"; }
  Grads run(const Grads&) override {
    fail(op_, ": its gradient cannot be differentiated a second time; use ops whose backward is made of ops");
  }

 private:
  std::string op_;
};

/// One run of backward.
class Run {
 public:
  Run(bool retain_graph, bool create_graph) : retain_graph_(retain_graph), create_graph_(create_graph) {}

  void add_root(const Tensor& output, Tensor gradient) {
    const Edge edge = gradient_edge(output);
    roots_.push_back(edge.node);
    add_gradient(edge, std::move(gradient), nullptr);
  }

  /// The gradient that arrives at `input` goes to result `slot` instead of being used further.
  void capture(const Tensor& input, size_t slot) {
    const Edge edge = gradient_edge(input);
    captures_[edge.node.get()].push_back({edge.index, slot});
    captured_nodes_.push_back(edge.node);
  }

  void execute(std::vector<Tensor>* captured) {
    count_dependencies();
    if (captured) find_needed();
    GradMode mode(create_graph_);
    for (const auto& root : roots_)
      if (dependencies_[root.get()] == 0) push_ready(root);
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top().node;
      ready_.pop();
      step(node, captured);
    }
  }

 private:
  struct Ready {
    std::shared_ptr<Node> node;
    bool operator<(const Ready& other) const { return node->sequence() < other.node->sequence(); }
  };
  struct Capture {
    int index;
    size_t slot;
  };

  void count_dependencies() {
    std::vector<Node*> stack;
    for (const auto& root : roots_)
      if (seen_.insert(root.get()).second) {
        dependencies_.emplace(root.get(), 0);
        stack.push_back(root.get());
      }
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      order_.push_back(node);
      for (const Edge& edge : node->edges()) {
        if (!edge.node) continue;
        ++dependencies_[edge.node.get()];
        if (seen_.insert(edge.node.get()).second) stack.push_back(edge.node.get());
      }
    }
  }

  /// With captures, only nodes on a path to a captured one run. Accumulators come first, then older nodes: every node
  /// is visited after those its edges lead to.
  void find_needed() {
    std::sort(order_.begin(), order_.end(), [](const Node* a, const Node* b) {
      if (a->is_accumulator() != b->is_accumulator()) return a->is_accumulator();
      return a->sequence() < b->sequence();
    });
    for (Node* node : order_) {
      bool needed = captures_.count(node) > 0;
      for (const Edge& edge : node->edges()) needed = needed || (edge.node && needed_.count(edge.node.get()) > 0);
      if (needed) needed_.insert(node);
    }
    restricted_ = true;
  }

  void push_ready(const std::shared_ptr<Node>& node) {
    if (queued_.insert(node.get()).second) ready_.push({node});
  }

  void add_gradient(const Edge& edge, Tensor gradient, const char* op) {
    Grads& buffer = buffers_[edge.node.get()];
    if (buffer.empty()) buffer.resize(std::max<size_t>(edge.node->output_meta().size(), 1));
    Tensor& slot = buffer[static_cast<size_t>(edge.index)];
    if (!slot.defined()) {
      slot = std::move(gradient);
      return;
    }
    AllocationTag tag(op ? op : "backward");
    const bool exclusive = !create_graph_ && slot.shared_impl().use_count() == 1 && slot.storage().use_count() == 1 &&
                           slot.is_contiguous();
    if (exclusive) slot.add_(gradient);
    else slot = add(slot, gradient);
  }

  void step(const std::shared_ptr<Node>& node, std::vector<Tensor>* captured) {
    Grads grads = std::move(buffers_[node.get()]);
    buffers_.erase(node.get());
    const bool any = std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
    if (any) run_output_hooks(*node, grads);
    if (const auto found = captures_.find(node.get()); found != captures_.end() && any) {
      for (const Capture& c : found->second) (*captured)[c.slot] = grads[static_cast<size_t>(c.index)];
    }
    const bool only_captured = restricted_ && node->is_accumulator();
    Grads results;
    if (any && !only_captured && (!restricted_ || leads_on(*node))) results = run_node(*node, std::move(grads));
    for (size_t i = 0; i < node->edges().size(); ++i) {
      const Edge& edge = node->edges()[i];
      if (!edge.node) continue;
      if (i < results.size() && results[i].defined()) {
        Tensor gradient = std::move(results[i]);
        add_gradient(edge, checked(*node, i, std::move(gradient)), node->name());
      }
      if (--dependencies_[edge.node.get()] == 0) push_ready(edge.node);
    }
    if (!retain_graph_ && any) node->release_saved();
  }

  bool leads_on(const Node& node) const {
    return std::any_of(node.edges().begin(), node.edges().end(),
                       [&](const Edge& edge) { return edge.node && needed_.count(edge.node.get()) > 0; });
  }

  static void run_output_hooks(Node& node, Grads& grads) {
    for (auto& [index, hooks] : node.output_hooks()) {
      Tensor& gradient = grads[static_cast<size_t>(index)];
      if (!gradient.defined()) continue;
      for (auto& [handle, hook] : hooks->before) {
        const Tensor replaced = hook(gradient);
        if (!replaced.defined()) continue;
        TERN_CHECK(replaced.shape() == gradient.shape(), node.name(), ": a gradient hook returned ", replaced.shape(),
                   ", expected ", gradient.shape());
        gradient = replaced;
      }
    }
  }

  Grads run_node(Node& node, Grads grads) {
    AllocationTag tag(node.name());
    const bool opaque = create_graph_ && !node.twice_differentiable();
    Grads results;
    {
      GradMode mode(create_graph_ && !opaque);
      results = node.run(grads);
    }
    TERN_CHECK(results.size() == node.edges().size() || node.is_accumulator(), node.name(), ": backward returned ",
               results.size(), " gradients for ", node.edges().size(), " tensor inputs");
    if (anomaly_mode() != Anomaly::kOff) check_anomaly(node, grads, results);
    if (opaque) {
      auto barrier = std::make_shared<NotTwiceDifferentiable>(node.name());
      for (Tensor& result : results) {
        if (!result.defined()) continue;
        result = alias(result);
        set_history(result, barrier, static_cast<int>(barrier->output_meta().size()));
      }
    }
    return results;
  }

  static void check_anomaly(const Node& node, const Grads& grads, const Grads& results) {
    for (const Tensor& result : results) {
      if (!result.defined() || detail::is_sound(result)) continue;
      for (const Tensor& gradient : grads)
        if (gradient.defined() && !detail::is_sound(gradient)) return;
      fail("anomaly: the backward of ", node.name(), " made the first ",
           anomaly_mode() == Anomaly::kNaN ? "NaN" : "non-finite value", " from sound gradients");
    }
  }

  /// Un-broadcasts and checks the gradient of tensor input i.
  static Tensor checked(const Node& node, size_t i, Tensor gradient) {
    const Node::Meta& want = node.input_meta()[i];
    if (gradient.shape() != want.shape) {
      TERN_CHECK(broadcasts_to(want.shape, gradient.shape()), node.name(), ": gradient ", i, " has shape ",
                 gradient.shape(), ", expected ", want.shape);
      gradient = sum_to(gradient, want.shape);
    }
    TERN_CHECK(is_floating(gradient.dtype()), node.name(), ": gradient ", i, " has dtype ", gradient.dtype(),
               ", expected ", want.dtype);
    if (gradient.dtype() != want.dtype) gradient = gradient.to(want.dtype);
    TERN_CHECK(gradient.device() == want.device, node.name(), ": gradient ", i, " is on ", gradient.device(),
               ", expected ", want.device);
    return gradient;
  }

  const bool retain_graph_, create_graph_;
  bool restricted_ = false;
  std::vector<std::shared_ptr<Node>> roots_, captured_nodes_;
  std::unordered_map<Node*, int64_t> dependencies_;
  std::unordered_map<Node*, Grads> buffers_;
  std::unordered_map<Node*, std::vector<Capture>> captures_;
  std::unordered_set<Node*> seen_, needed_, queued_;
  std::vector<Node*> order_;
  std::priority_queue<Ready> ready_;
};

/// Checks the outputs and their gradients and makes the roots.
void add_roots(Run& run, const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients) {
  TERN_CHECK(!outputs.empty(), "backward: no outputs were given");
  TERN_CHECK(gradients.size() <= outputs.size(), "backward: ", gradients.size(), " gradients for ", outputs.size(),
             " outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    TERN_CHECK(output.defined(), "backward: output ", i, " is undefined");
    TERN_CHECK(output.requires_grad(), "backward: output ", i, " (", output.describe(),
               ") does not depend on any tensor that requires a gradient");
    Tensor gradient = i < gradients.size() ? gradients[i] : Tensor();
    if (!gradient.defined()) {
      TERN_CHECK(output.numel() == 1, "backward: output ", i, " has shape ", output.shape(),
                 "; a gradient is needed unless it has one element");
      gradient = ones(output.shape(), output.options());
    }
    TERN_CHECK(gradient.shape() == output.shape() && gradient.device() == output.device() &&
                   is_floating(gradient.dtype()),
               "backward: the gradient of output ", i, " is ", gradient.describe(), ", expected ", output.describe());
    run.add_root(output, gradient.to(output.dtype()));
  }
}

}  // namespace

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients, bool retain_graph,
              bool create_graph) {
  Run run(retain_graph || create_graph, create_graph);
  add_roots(run, outputs, gradients);
  run.execute(nullptr);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
  Run run(options.retain_graph || options.create_graph, options.create_graph);
  add_roots(run, outputs, options.gradients);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TERN_CHECK(inputs[i].defined() && inputs[i].requires_grad(), "grad: input ", i, " does not require a gradient");
    run.capture(inputs[i], i);
  }
  std::vector<Tensor> results(inputs.size());
  run.execute(&results);
  for (size_t i = 0; i < inputs.size(); ++i)
    TERN_CHECK(results[i].defined() || options.allow_unused, "grad: input ", i,
               " is not used by the outputs; pass allow_unused = true if that is meant");
  return results;
}

}  // namespace tern
