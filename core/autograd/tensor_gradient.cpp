// Tensor's methods of autograd: its gradient, its hooks and the op that made it.

#include <atomic>
#include <utility>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/gradient_ops.h"
#include "tern/core/autograd/node.h"

namespace tern {

bool Tensor::requires_grad() const {
  return shape(), impl_->autograd && (impl_->autograd->requires_grad || impl_->autograd->grad_fn);
}

bool Tensor::is_leaf() const { return shape(), !impl_->autograd || !impl_->autograd->grad_fn; }

bool Tensor::has_few_gradient_rows() const {
  return defined() && impl_->autograd && impl_->autograd->few_gradient_rows;
}

Tensor& Tensor::set_requires_grad(bool value) {
  TERN_CHECK(is_leaf(), "set_requires_grad: only leaves can be switched; this tensor was made by ", grad_fn()->name(),
             " (use detach())");
  TERN_CHECK(!value || is_floating(dtype()), "set_requires_grad: only floating tensors have gradients, this one is ",
             dtype());
  if (value || impl_->autograd) impl_->meta().requires_grad = value;
  return *this;
}

Tensor Tensor::grad() const { return shape(), impl_->autograd ? impl_->autograd->grad : Tensor(); }

void Tensor::set_grad(const Tensor& grad) {
  const Shape& own = shape();
  TERN_CHECK(!grad.defined() || (grad.shape() == own && grad.device() == device()), "set_grad: the gradient is ",
             grad.describe(), ", expected ", describe());
  impl_->meta().grad = grad;
}

void Tensor::retain_grad() {
  TERN_CHECK(requires_grad(), "retain_grad: this tensor does not require a gradient");
  if (is_leaf() || impl_->autograd->retain_hook != 0) return;
  std::weak_ptr<detail::TensorImpl> weak = impl_;
  impl_->autograd->retain_hook = register_hook([weak](const Tensor& gradient) {
    if (const auto impl = weak.lock()) {
      Tensor& kept = impl->meta().grad;
      kept = kept.defined() ? detail::add_gradients(kept, gradient) : gradient.detach();
    }
    return Tensor();
  });
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  tern::backward({*this}, {gradient}, retain_graph, create_graph);
}

std::shared_ptr<detail::Node> Tensor::grad_fn() const {
  return shape(), impl_->autograd ? impl_->autograd->grad_fn : nullptr;
}

namespace {
detail::GradHooks& hooks_of(detail::TensorImpl& impl) {
  detail::AutogradMeta& meta = impl.meta();
  if (!meta.hooks) {
    meta.hooks = std::make_shared<detail::GradHooks>();
    if (meta.grad_fn) meta.grad_fn->output_hooks().emplace_back(meta.output_index, meta.hooks);
  }
  return *meta.hooks;
}
int64_t next_handle() {
  static std::atomic<int64_t> handle{1};
  return handle++;
}
}  // namespace

int64_t Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) {
  TERN_CHECK(requires_grad(), "register_hook: this tensor does not require a gradient");
  hooks_of(*impl_).before.emplace_back(next_handle(), std::move(hook));
  return hooks_of(*impl_).before.back().first;
}

int64_t Tensor::register_post_accumulate_hook(std::function<void(const Tensor&)> hook) {
  TERN_CHECK(requires_grad() && is_leaf(),
             "register_post_accumulate_hook: only leaves that require a gradient have one");
  hooks_of(*impl_).after.emplace_back(next_handle(), std::move(hook));
  return hooks_of(*impl_).after.back().first;
}

void Tensor::remove_hook(int64_t handle) {
  if (!impl_ || !impl_->autograd || !impl_->autograd->hooks) return;
  std::erase_if(impl_->autograd->hooks->before, [&](const auto& entry) { return entry.first == handle; });
  std::erase_if(impl_->autograd->hooks->after, [&](const auto& entry) { return entry.first == handle; });
}

}  // namespace tern
