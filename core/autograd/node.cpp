#include "tern/core/autograd/node.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/gradient_ops.h"
#include "tern/core/autograd/recomputation.h"
#include "tern/core/autograd/saved.h"

namespace tern {
namespace {

std::atomic<uint64_t> next_sequence{1};

/// The node whose members are being constructed on this thread.
thread_local detail::Node* under_construction = nullptr;

/// Adds a leaf's gradient to its grad(); the last node of every path.
class AccumulateGrad final : public detail::Node {
 public:
  explicit AccumulateGrad(std::shared_ptr<detail::TensorImpl> leaf) : leaf_(std::move(leaf)) {
    sequence_ = UINT64_MAX;  // runs as soon as its gradient is complete, so that post hooks overlap with backward
    add_output(Tensor(leaf_));
    set_recorded(true);
  }
  const char* name() const override { return "accumulate_grad"; }
  bool twice_differentiable() const override { return true; }
  bool is_accumulator() const override { return true; }

  Grads run(const Grads& output_grads) override {
    detail::AutogradMeta& meta = leaf_->meta();
    Tensor grad = output_grads[0];
    if (meta.hooks) grad = detail::apply_hooks(name(), *meta.hooks, grad);
    accumulate(meta, grad, same(grad, output_grads[0]) ? 2 : 1);
    if (meta.hooks && !meta.hooks->after.empty()) {
      const Tensor leaf(leaf_);
      const auto hooks = meta.hooks->after;  // a hook may add or remove hooks
      for (const auto& [handle, hook] : hooks) hook(leaf);
    }
    return {};
  }

 private:
  /// `handles`: the number of handles to grad that the engine and this node hold.
  void accumulate(detail::AutogradMeta& meta, const Tensor& grad, long handles) {
    if (meta.grad.defined()) {
      if (grad_enabled())
        meta.grad = detail::add_gradients(meta.grad, grad);
      else
        meta.grad.add_(grad);
    } else if (grad_enabled()) {
      meta.grad = grad;
    } else {
      // A contiguous gradient without other references is stored without a copy.
      const bool exclusive =
          grad.is_contiguous() && grad.storage().use_count() == 1 && grad.shared_impl().use_count() == handles;
      meta.grad = exclusive ? grad.detach() : grad.detach().clone();
    }
  }

  std::shared_ptr<detail::TensorImpl> leaf_;
};

}  // namespace

detail::Node::Node() : sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) { under_construction = this; }

detail::Node::~Node() {
  if (under_construction == this) under_construction = nullptr;
  for (detail::Edge& edge : edges_) detail::release_node(std::move(edge.node));
}

detail::AutogradMeta::~AutogradMeta() { detail::release_node(std::move(grad_fn)); }

void detail::DeleteAutogradMeta::operator()(detail::AutogradMeta* meta) const noexcept { delete meta; }

void detail::release_node(std::shared_ptr<detail::Node>&& node) noexcept {
  thread_local std::vector<std::shared_ptr<detail::Node>>* pending = nullptr;
  if (!node) return;
  if (pending) {
    pending->push_back(std::move(node));
    return;
  }
  std::vector<std::shared_ptr<detail::Node>> queue;
  pending = &queue;
  queue.push_back(std::move(node));
  while (!queue.empty()) {
    const std::shared_ptr<detail::Node> last = std::move(queue.back());
    queue.pop_back();
  }
  pending = nullptr;
}

void detail::Node::add_inputs(const Tensor* const* inputs, int count, bool record) {
  recorded_ = record;
  if (record) place_ = place_in_anomaly_mode();
  edges_.reserve(static_cast<size_t>(count));
  if (record) input_meta_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const Tensor& x = *inputs[i];
    edges_.push_back(record && x.defined() && x.requires_grad() ? detail::gradient_edge(x) : detail::Edge{});
    if (record) input_meta_.push_back(x.defined() ? Meta{x.shape(), x.dtype(), x.device()} : Meta{});
  }
}

void detail::Node::add_output(const Tensor& output) {
  output_meta_.push_back({output.shape(), output.dtype(), output.device()});
}

void detail::Node::release_saved() {
  for (detail::SavedBase* saved = first_saved_; saved; saved = saved->next_) saved->kept_.drop();
  released_ = first_saved_ != nullptr;
}

void detail::Node::fail_input(int i) const {
  fail(name(), ": needs_grad(", i, "): the op has ", edges_.size(), " tensor inputs, numbered from 0");
}

bool detail::Node::holds(const Tensor& tensor) const {
  for (const detail::SavedBase* saved = first_saved_; saved; saved = saved->next_)
    if (same(saved->kept_.held(), tensor)) return true;
  return false;
}

std::vector<Tensor> detail::Node::saved_tensors() const {
  std::vector<Tensor> tensors;
  for (const detail::SavedBase* saved = first_saved_; saved; saved = saved->next_)
    if (saved->kept_.held().defined()) tensors.push_back(saved->kept_.held());
  return tensors;
}

void detail::set_history(const Tensor& output, const std::shared_ptr<detail::Node>& node, int index) {
  detail::AutogradMeta& meta = output.impl()->meta();
  meta.grad_fn = node;
  meta.output_index = index;
  meta.history_version = output.storage()->version();
  node->add_output(output);
}

void detail::replace_history(const Tensor& x, const Tensor& result) {
  detail::AutogradMeta& meta = x.impl()->meta();
  const bool retained = meta.retain_hook != 0;
  if (retained) Tensor(x).remove_hook(std::exchange(meta.retain_hook, 0));
  meta.hooks.reset();
  detail::release_node(std::move(meta.grad_fn));
  meta.grad_fn = result.grad_fn();
  meta.output_index = result.impl()->autograd->output_index;
  meta.history_version = x.version();
  if (retained) Tensor(x).retain_grad();
}

Tensor detail::apply_hooks(const char* owner, const detail::GradHooks& hooks, Tensor gradient) {
  if (hooks.before.empty()) return gradient;
  const auto before = hooks.before;  // a hook may add or remove hooks
  for (const auto& [handle, hook] : before) {
    const Tensor replaced = hook(gradient);
    if (!replaced.defined()) continue;
    TERN_CHECK(
        replaced.shape() == gradient.shape() && is_floating(replaced.dtype()) && replaced.device() == gradient.device(),
        owner, ": a gradient hook returned ", replaced.describe(), ", expected ", gradient.describe());
    gradient = replaced.to(gradient.dtype());
  }
  return gradient;
}

detail::Edge detail::gradient_edge(const Tensor& tensor) {
  detail::AutogradMeta& meta = tensor.impl()->meta();
  if (meta.grad_fn) return {meta.grad_fn, meta.output_index};
  std::shared_ptr<detail::Node> accumulator = meta.accumulator.lock();
  if (!accumulator) {
    accumulator = std::make_shared<AccumulateGrad>(tensor.shared_impl());
    detail::end_construction();
    meta.accumulator = accumulator;
  }
  return {accumulator, 0};
}

// Saved tensors.

detail::SavedBase::SavedBase() : node_(under_construction) {
  TERN_CHECK(node_, "Saved: only a member of a Function may be one");
  next_ = std::exchange(node_->first_saved_, this);
}

void detail::SavedBase::store(const Tensor& tensor) {
  if (!node_->recorded() || !tensor.defined()) return;
  kept_.keep(tensor, node_->name());
}

Tensor detail::SavedBase::kept() const {
  TERN_CHECK(!node_->released(), node_->name(),
             ": backward was already run and its saved tensors freed; pass retain_graph = true to run it again");
  return kept_.get(node_->name());
}

Tensor Saved::get() const { return kept(); }

void SavedOutput::save(const Tensor& output, int index) {
  if (!node_->recorded()) return;
  store(detail::alias(output));
  index_ = index;
}

Tensor SavedOutput::get() const {
  const Tensor values = kept();
  if (!grad_enabled()) return values;
  const Tensor output = detail::alias(values);
  detail::AutogradMeta& meta = output.impl()->meta();
  meta.grad_fn = node_->shared_from_this();
  meta.output_index = index_;
  meta.history_version = values.version();
  return output;
}

// The non-template parts of Function.

namespace detail {

void end_construction() { under_construction = nullptr; }

bool requires_record(const Tensor* const* inputs, int count) {
  const auto wants = [](const Tensor* x) { return x->defined() && x->requires_grad(); };
  return grad_enabled() && std::any_of(inputs, inputs + count, wants);
}

bool should_record(const Tensor* const* inputs, int count) {
  const bool record = requires_record(inputs, count);
  if (record) Recomputation::begin_op(inputs, count);
  return record;
}

void check_one_device(const char* op, const Tensor* const* inputs, int count) {
  const Tensor* first = nullptr;
  for (int i = 0; i < count; ++i) {
    if (!inputs[i]->defined()) continue;
    if (!first) first = inputs[i];
    TERN_CHECK(inputs[i]->device() == first->device(), op, ": inputs are on ", first->device(), " and ",
               inputs[i]->device(), "; copy one with to(device)");
  }
}

void check_input(const char* op, const Tensor& input) {
  if (!input.defined() || !input.impl()->autograd) return;
  const AutogradMeta& meta = *input.impl()->autograd;
  TERN_CHECK(!input.impl()->is_view || !meta.grad_fn || meta.history_version == input.version(), op,
             ": an input is a view whose base was modified in place after the view was made; make the view again");
}

Tensor fresh_output(const Node& node, const Tensor* const* inputs, int count, const Tensor& output) {
  TERN_CHECK(output.defined(), node.name(), ": forward returned an undefined tensor");
  bool known = output.impl()->autograd != nullptr;
  for (int i = 0; i < count; ++i) known = known || same(output, *inputs[i]);
  // The output will hold the node; if the node also held the output, neither would be freed.
  TERN_CHECK(known || !is_floating(output.dtype()) || !node.holds(output), node.name(),
             ": forward keeps its output in a Saved, and neither would ever be freed; make that member a "
             "SavedOutput");
  const bool held_elsewhere = output.shared_impl().use_count() > 1;  // by a Tensor member, for example
  return known || held_elsewhere ? alias(output) : output;
}

void check_one_gradient(const char* op, const Tensor* outputs, size_t count) {
  for (size_t i = 1; i < count; ++i)
    TERN_CHECK(!outputs[i].defined() || !is_floating(outputs[i].dtype()), op, ": the gradient of output ", i, " of ",
               count,
               " would be lost: backward sees that of output 0 alone; override backward_all(const Grads&) instead");
}

void check_anomaly_forward(const char* op, const Tensor* const* inputs, int count, const Tensor& output) {
  if (!is_floating(output.dtype()) || passes_anomaly_check(output)) return;
  for (int i = 0; i < count; ++i)
    if (inputs[i]->defined() && is_floating(inputs[i]->dtype()) && !passes_anomaly_check(*inputs[i])) return;
  fail("anomaly: ", op, " made the first ", anomaly_mode() == Anomaly::kNaN ? "NaN" : "non-finite value",
       " from inputs without one; its result is ", output.describe(), describe_place(place_in_anomaly_mode().get()));
}

}  // namespace detail

}  // namespace tern
