#include "tern/core/autograd/engine.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/gradient_ops.h"
#include "tern/core/autograd/kept_graph.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/profiler/profiler.h"

namespace tern {
namespace {

/// The node behind the gradients of an op whose backward calls kernels: differentiating them again is an error. Its
/// edges lead to everything that those gradients depend on.
class SecondDerivativeError final : public detail::Node {
 public:
  SecondDerivativeError(const detail::Node& op, const Grads& output_grads) : op_(op.name()) {
    detail::end_construction();
    set_recorded(true);
    for (const detail::Edge& edge : op.edges()) add_edge(edge);
    for (const Tensor& gradient : output_grads)
      if (gradient.defined() && gradient.requires_grad()) add_edge(detail::gradient_edge(gradient));
  }
  const char* name() const override { return "not_differentiable_again"; }
  Grads run(const Grads&) override {
    fail(op_,
         ": its backward cannot be differentiated again; an op whose backward consists of differentiable ops derives "
         "from TwiceDifferentiable instead of Function (a pointwise struct has a second derivative, and no third)");
  }

 private:
  std::string op_;
};

/// Callbacks for the end of this thread's outermost backward(): a hook may call backward() inside another.
class BackwardDepth {
 public:
  BackwardDepth() { ++depth; }
  ~BackwardDepth() {
    if (--depth == 0 && !waiting.empty()) call(false);
  }
  BackwardDepth(const BackwardDepth&) = delete;
  BackwardDepth& operator=(const BackwardDepth&) = delete;

  void complete() {
    if (depth == 1) call(true);
  }
  static void add(std::function<void(bool)> fn) {
    TERN_CHECK(depth > 0, "after_backward: no backward() is running");
    waiting.push_back(std::move(fn));
  }

 private:
  static void call(bool completed) {
    // Emptied first: if a callback throws, the others must not remain for another backward().
    const std::vector<std::function<void(bool)>> all = std::exchange(waiting, {});
    for (const auto& fn : all) fn(completed);
  }
  static inline thread_local int depth = 0;
  static inline thread_local std::vector<std::function<void(bool)>> waiting;
};

/// Whether the backward pass that runs on this thread keeps its graph.
thread_local bool keeps_graph = true;
class KeptGraph {
 public:
  explicit KeptGraph(bool keeps) : before_(std::exchange(keeps_graph, keeps)) {}
  ~KeptGraph() { keeps_graph = before_; }
  KeptGraph(const KeptGraph&) = delete;
  KeptGraph& operator=(const KeptGraph&) = delete;

 private:
  const bool before_;
};

/// One run of backward. Every node reachable from the outputs gets an index in `places_`, and every edge stores the
/// index of its target, so the only hash table is used while these indices are assigned.
class Run {
 public:
  Run(bool retain_graph, bool create_graph) : retain_graph_(retain_graph), create_graph_(create_graph) {}

  void add_root(const Tensor& output, Tensor gradient) {
    const detail::Edge edge = detail::gradient_edge(output);
    held_.push_back(edge.node);
    const uint32_t root = place_of(edge.node.get());
    roots_.push_back(root);
    add_gradient(places_[root], edge.index, std::move(gradient), nullptr);
  }

  /// Also writes the gradient that arrives at `input` to result `slot`; no leaf accumulates.
  void capture(const Tensor& input, size_t slot) {
    const detail::Edge edge = detail::gradient_edge(input);
    held_.push_back(edge.node);
    // A leaf's hooks belong to its accumulator, which does not run here.
    captures_[edge.node.get()].push_back({edge.index, slot, input.is_leaf() ? input.impl()->autograd->hooks : nullptr});
  }

  void execute(std::vector<Tensor>* captured) {
    discover();
    if (captured) find_needed();
    // The ops of backward compute in the types that forward recorded, regardless of the current autocast region.
    const Autocast off(cpu, DType::kFloat32), off_cuda({DeviceType::kCUDA, 0}, DType::kFloat32);
    GradMode mode(create_graph_);
    const KeptGraph kept(retain_graph_);
    for (const uint32_t root : roots_)
      if (places_[root].dependencies == 0) push_ready(root);
    while (!ready_.empty()) {
      const uint32_t place = ready_.top().place;
      ready_.pop();
      step(places_[place], captured);
    }
  }

 private:
  /// A node of the graph in this run. Its edges' targets start at targets_[first_edge].
  struct Place {
    detail::Node* node;
    size_t first_edge = 0;
    int64_t dependencies = 0;  // gradients that have not arrived yet
    Grads gradients = {};      // of the node's outputs
    bool queued = false;
    bool needed = false;
  };
  struct Ready {
    uint64_t sequence;
    uint32_t place;
    bool operator<(const Ready& other) const { return sequence < other.sequence; }
  };
  struct Capture {
    int index;
    size_t slot;
    std::shared_ptr<detail::GradHooks> hooks;
  };
  static constexpr uint32_t kNowhere = UINT32_MAX;

  uint32_t place_of(detail::Node* node) {
    const auto [found, added] = place_by_node_.try_emplace(node, static_cast<uint32_t>(places_.size()));
    if (added) places_.push_back({.node = node});
    return found->second;
  }

  /// Finds all nodes and counts the gradients that each waits for. places_ grows during the loop.
  void discover() {
    for (size_t place = 0; place < places_.size(); ++place) {
      places_[place].first_edge = targets_.size();
      for (const detail::Edge& edge : places_[place].node->edges()) {
        const uint32_t target = edge.node ? place_of(edge.node.get()) : kNowhere;
        targets_.push_back(target);
        if (edge.node) ++places_[target].dependencies;
      }
    }
  }

  /// With captures, only nodes on a path to a captured one run. In the order accumulators first, then older nodes
  /// first, every node follows the targets of its edges.
  void find_needed() {
    std::vector<uint32_t> order(places_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t i, uint32_t k) {
      const detail::Node &a = *places_[i].node, &b = *places_[k].node;
      if (a.is_accumulator() != b.is_accumulator()) return a.is_accumulator();
      return a.sequence() < b.sequence();
    });
    for (const uint32_t i : order) places_[i].needed = captures_.count(places_[i].node) > 0 || leads_on(places_[i]);
    restricted_ = true;
  }

  void push_ready(uint32_t place) {
    if (std::exchange(places_[place].queued, true)) return;
    ready_.push({places_[place].node->sequence(), place});
  }

  void add_gradient(Place& place, int index, Tensor gradient, const char* op) {
    Grads& buffer = place.gradients;
    if (buffer.empty()) buffer.resize(std::max<size_t>(place.node->output_meta().size(), 1));
    Tensor& slot = buffer[static_cast<size_t>(index)];
    if (!slot.defined()) {
      slot = std::move(gradient);
      return;
    }
    AllocationTag tag(op ? op : "backward");
    if (is_exclusive(slot))
      slot.add_(gradient);
    else
      slot = detail::add_gradients(slot, gradient);
  }

  /// True when nothing else refers to the gradient, so that it may be overwritten.
  bool is_exclusive(const Tensor& gradient) const {
    return !create_graph_ && gradient.shared_impl().use_count() == 1 && gradient.storage().use_count() == 1 &&
           gradient.is_contiguous();
  }

  /// Passes the gradient accumulated so far for input 0 to a node that can add to it, which saves a pass over memory.
  void offer_sum(const Place& place) {
    detail::Node& node = *place.node;
    if (!node.adds_to_gradient() || targets_[place.first_edge] == kNowhere || anomaly_mode() != Anomaly::kOff ||
        detail::active_trace())
      return;
    Grads& buffer = places_[targets_[place.first_edge]].gradients;
    const auto index = static_cast<size_t>(node.edges()[0].index);
    if (index >= buffer.size() || !buffer[index].defined() || !is_exclusive(buffer[index])) return;
    const detail::Node::Meta& want = node.input_meta()[0];
    if (buffer[index].shape() == want.shape && buffer[index].dtype() == want.dtype)
      node.begin_sum(std::exchange(buffer[index], {}));
  }

  void step(Place& place, std::vector<Tensor>* captured) {
    detail::Node& node = *place.node;
    Grads grads = std::move(place.gradients);
    const bool any = std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
    if (any) run_output_hooks(node, grads);
    if (captured && any) capture_from(node, grads, *captured);
    const bool runs = any && (!restricted_ || leads_on(place));
    Grads results;
    if (runs) {
      offer_sum(place);
      results = run_node(node, std::move(grads));
    }
    for (size_t i = 0; i < node.edges().size(); ++i) {
      const uint32_t target = targets_[place.first_edge + i];
      if (target == kNowhere) continue;
      if (i < results.size() && results[i].defined()) {
        Tensor gradient = std::move(results[i]);
        add_gradient(places_[target], node.edges()[i].index, checked(node, i, std::move(gradient)), node.name());
      }
      if (--places_[target].dependencies == 0) push_ready(target);
    }
    if (!retain_graph_ && runs) node.release_saved();
  }

  void capture_from(const detail::Node& node, const Grads& grads, std::vector<Tensor>& captured) {
    const auto found = captures_.find(&node);
    if (found == captures_.end()) return;
    for (const Capture& c : found->second) {
      Tensor gradient = grads[static_cast<size_t>(c.index)];
      if (c.hooks && gradient.defined()) gradient = detail::apply_hooks("grad", *c.hooks, gradient);
      captured[c.slot] = gradient;
    }
  }

  bool leads_on(const Place& place) const {
    for (size_t i = 0; i < place.node->edges().size(); ++i) {
      const uint32_t target = targets_[place.first_edge + i];
      if (target != kNowhere && places_[target].needed) return true;
    }
    return false;
  }

  static void run_output_hooks(detail::Node& node, Grads& grads) {
    for (const auto& [index, hooks] : node.output_hooks()) {
      Tensor& gradient = grads[static_cast<size_t>(index)];
      if (gradient.defined()) gradient = detail::apply_hooks(node.name(), *hooks, gradient);
    }
  }

  Grads run_node(detail::Node& node, Grads grads) {
    const ProfileRange range(node.name(), node.is_accumulator() ? RangeKind::kOp : RangeKind::kBackward);
    AllocationTag tag(node.name());
    const bool opaque = create_graph_ && !node.twice_differentiable();
    Grads results;
    {
      GradMode mode(create_graph_ && !opaque);
      results = node.run(grads);
    }
    if (range.recording() && !node.is_accumulator()) count_bytes(range, node, grads, results);
    TERN_CHECK(results.size() == node.edges().size() || node.is_accumulator(), node.name(), ": backward returned ",
               results.size(), " gradients for ", node.edges().size(), " tensor inputs");
    if (anomaly_mode() != Anomaly::kOff) check_anomaly(node, grads, results);
    if (opaque) {
      auto barrier = std::make_shared<SecondDerivativeError>(node, grads);
      for (Tensor& result : results) {
        if (!result.defined()) continue;
        result = detail::alias(result);
        detail::set_history(result, barrier, static_cast<int>(barrier->output_meta().size()));
      }
    }
    return results;
  }

  /// Backward reads the gradients of the outputs and the saved tensors and writes the gradients of the inputs.
  static void count_bytes(const ProfileRange& range, const detail::Node& node, const Grads& grads,
                          const Grads& results) {
    const std::vector<Tensor> saved = node.saved_tensors();
    std::vector<const Tensor*> inputs;
    for (const Tensor& gradient : grads) inputs.push_back(&gradient);
    for (const Tensor& tensor : saved) inputs.push_back(&tensor);
    range.count_tensors(inputs.data(), static_cast<int>(inputs.size()), results.data(), results.size());
  }

  static void check_anomaly(const detail::Node& node, const Grads& grads, const Grads& results) {
    for (const Tensor& result : results) {
      if (!result.defined() || detail::passes_anomaly_check(result)) continue;
      for (const Tensor& gradient : grads)
        if (gradient.defined() && !detail::passes_anomaly_check(gradient)) return;
      fail("anomaly: the backward of ", node.name(), " made the first ",
           anomaly_mode() == Anomaly::kNaN ? "NaN" : "non-finite value", " from finite gradients",
           node.place() ? "; the op was computed" : "", detail::describe_place(node.place()));
    }
  }

  /// Sums the gradient of tensor input i over broadcast dimensions and checks it.
  static Tensor checked(const detail::Node& node, size_t i, Tensor gradient) {
    const detail::Node::Meta& want = node.input_meta()[i];
    if (gradient.shape() != want.shape) {
      TERN_CHECK(broadcasts_to(want.shape, gradient.shape()), node.name(), ": gradient ", i, " has shape ",
                 gradient.shape(), ", expected ", want.shape);
      gradient = detail::sum_gradient(gradient, want.shape);
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
  std::vector<std::shared_ptr<detail::Node>> held_;  // outputs and inputs; edges hold all other nodes
  std::vector<uint32_t> roots_, targets_;
  std::vector<Place> places_;
  std::unordered_map<const detail::Node*, uint32_t> place_by_node_;
  std::unordered_map<const detail::Node*, std::vector<Capture>> captures_;
  std::priority_queue<Ready> ready_;
};

/// Checks the outputs and their gradients and adds the roots.
void add_roots(Run& run, const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients) {
  TERN_CHECK(!outputs.empty(), "backward: no outputs were given");
  TERN_CHECK(gradients.size() <= outputs.size(), "backward: ", gradients.size(), " gradients for ", outputs.size(),
             " outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    TERN_CHECK(output.defined(), "backward: output ", i, " is undefined");
    TERN_CHECK(output.requires_grad(), "backward: output ", i, " (", output.describe(),
               ") does not depend on any tensor that requires a gradient, or was computed under NoGrad or by grad() "
               "without create_graph");
    detail::check_input("backward", output);
    Tensor gradient = i < gradients.size() ? gradients[i] : Tensor();
    if (!gradient.defined()) {
      TERN_CHECK(output.numel() == 1, "backward: output ", i, " has shape ", output.shape(),
                 "; a gradient is needed unless it has one element: pass one, or reduce the output by sum() or mean()");
      gradient = ones(output.shape(), output.options());
    }
    TERN_CHECK(
        gradient.shape() == output.shape() && gradient.device() == output.device() && is_floating(gradient.dtype()),
        "backward: the gradient of output ", i, " is ", gradient.describe(), ", expected ", output.describe());
    run.add_root(output, gradient.to(output.dtype()));
  }
}

}  // namespace

bool detail::graph_is_kept() { return keeps_graph; }

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients, bool retain_graph,
              bool create_graph) {
  Run run(retain_graph || create_graph, create_graph);
  add_roots(run, outputs, gradients);
  BackwardDepth outermost;
  run.execute(nullptr);
  outermost.complete();
}

void after_backward(std::function<void(bool completed)> fn) { BackwardDepth::add(std::move(fn)); }

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
