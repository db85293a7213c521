#pragma once
// The graph behind autograd: one Node per recorded op, edges from an op to the ops that made its inputs.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tern/core/autograd/place.h"
#include "tern/core/tensor/tensor_impl.h"

namespace tern {

/// Gradients, one per tensor input of an op, in order; an undefined tensor where there is none.
using Grads = std::vector<Tensor>;

namespace detail {

/// Where a gradient goes: output `index` of `node`. A null node means that no gradient is needed.
struct Edge {
  std::shared_ptr<Node> node;
  int index = 0;
};

/// Functions run on a gradient before it is used; shared by the tensor and the node that made it.
struct GradHooks {
  std::vector<std::pair<int64_t, std::function<Tensor(const Tensor&)>>> before;
  std::vector<std::pair<int64_t, std::function<void(const Tensor&)>>> after;
};

/// Runs the hooks before accumulation on a gradient in the order of their registration; `owner` names it in errors.
Tensor apply_hooks(const char* owner, const GradHooks& hooks, Tensor gradient);

class SavedBase;

/// One recorded op. Gradients flow from its outputs to its inputs.
class Node : public std::enable_shared_from_this<Node> {
 public:
  /// What the engine checks a gradient against.
  struct Meta {
    Shape shape;
    DType dtype = DType::kFloat32;
    Device device;
  };

  Node();
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual const char* name() const = 0;
  /// Gradients of the inputs from those of the outputs (undefined where nothing flowed back).
  virtual Grads run(const Grads& output_grads) = 0;
  /// False when run() calls kernels directly: differentiating its result is then an error that names the op.
  virtual bool twice_differentiable() const { return false; }
  virtual bool is_accumulator() const { return false; }
  /// True when run() adds the gradient of tensor input 0 to what others gave for it, which the engine then hands over
  /// by begin_sum().
  virtual bool adds_to_gradient() const { return false; }
  void begin_sum(Tensor gradient) { begun_ = std::move(gradient); }

  /// True when the gradient of tensor input i is wanted. Always false when the op is not recorded. Throws Error when
  /// there is no input i.
  bool needs_grad(int i) const {
    if (static_cast<size_t>(i) >= edges_.size()) fail_input(i);
    return recorded_ && edges_[static_cast<size_t>(i)].node != nullptr;
  }
  bool recorded() const { return recorded_; }
  const std::vector<Edge>& edges() const { return edges_; }
  uint64_t sequence() const { return sequence_; }
  /// Where the op was recorded; null unless that was in anomaly mode.
  const Place* place() const { return place_.get(); }

  /// Drops what was saved for backward; a later backward through this node is an error.
  void release_saved();
  bool released() const { return released_; }
  /// What is saved at the moment; what a checkpoint will compute again is not.
  std::vector<Tensor> saved_tensors() const;
  /// True when a Saved holds this very handle.
  bool holds(const Tensor& tensor) const;

  // For Function and the engine.
  void add_inputs(const Tensor* const* inputs, int count, bool record);
  void add_edge(const Edge& edge) { edges_.push_back(edge); }
  void set_recorded(bool recorded) { recorded_ = recorded; }
  void add_output(const Tensor& output);
  const std::vector<Meta>& input_meta() const { return input_meta_; }
  const std::vector<Meta>& output_meta() const { return output_meta_; }
  std::vector<std::pair<int, std::shared_ptr<GradHooks>>>& output_hooks() { return output_hooks_; }

 protected:
  /// The gradient that was passed on, contiguous and not shared, or undefined. Returned in place of the gradient of
  /// input 0.
  Tensor take_sum() { return std::exchange(begun_, {}); }
  uint64_t sequence_;

 private:
  friend class SavedBase;
  [[noreturn]] void fail_input(int i) const;
  Tensor begun_;
  std::vector<Edge> edges_;
  std::vector<Meta> input_meta_, output_meta_;
  std::unique_ptr<const Place> place_;
  SavedBase* first_saved_ = nullptr;  // a list through SavedBase::next_
  std::vector<std::pair<int, std::shared_ptr<GradHooks>>> output_hooks_;
  bool recorded_ = false;
  bool released_ = false;
};

/// Frees a graph without recursion: a chain of a million ops must not overflow the stack.
void release_node(std::shared_ptr<Node>&& node) noexcept;

/// A tensor's autograd record; made when it is first needed.
struct AutogradMeta {
  bool requires_grad = false;      // leaves: set by the user
  bool few_gradient_rows = false;  // Parameter::set_few_gradient_rows
  int64_t retain_hook = 0;         // the hook that fills grad on a tensor that is not a leaf
  Tensor grad;
  std::shared_ptr<Node> grad_fn;
  int output_index = 0;
  uint32_t history_version = 0;     // the storage's version when grad_fn was set
  std::weak_ptr<Node> accumulator;  // leaves
  std::shared_ptr<GradHooks> hooks;
  ~AutogradMeta();
};

inline AutogradMeta& TensorImpl::meta() {
  if (!autograd) autograd.reset(new AutogradMeta);
  return *autograd;
}

/// Makes `output`, fresh from an op, the result `index` of `node`.
void set_history(const Tensor& output, const std::shared_ptr<Node>& node, int index);
/// Gives x, just overwritten in place with `result`'s values, result's history. Hooks registered before stay with the
/// old value, as in PyTorch.
void replace_history(const Tensor& x, const Tensor& result);
/// The edge along which a gradient of `tensor` flows: its grad_fn, or a leaf's accumulator.
Edge gradient_edge(const Tensor& tensor);

}  // namespace detail
}  // namespace tern
