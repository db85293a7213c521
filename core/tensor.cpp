#include "tern/core/tensor.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/capture_state.h"
#include "tern/core/file_fault.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/transfer.h"
#include "tern/kernels/convert.h"
#include "tern/kernels/copy.h"

namespace tern {

const Shape& Tensor::shape() const {
  TERN_CHECK(impl_, "tensor: this handle is undefined (default-constructed or an absent gradient)");
  return impl_->shape;
}
const Strides& Tensor::strides() const { return shape(), impl_->strides; }
DType Tensor::dtype() const { return shape(), impl_->dtype; }
Device Tensor::device() const { return shape(), impl_->storage->device(); }
bool Tensor::is_contiguous() const { return shape(), impl_->contiguous; }
const std::shared_ptr<Storage>& Tensor::storage() const { return shape(), impl_->storage; }
int64_t Tensor::storage_offset() const { return shape(), impl_->offset; }

void* Tensor::raw_data() const {
  shape();
  return static_cast<char*>(impl_->storage->data()) + impl_->offset * size_of(impl_->dtype);
}

void Tensor::check_data_access(DType wanted) const {
  TERN_CHECK(dtype() == wanted, "data: the tensor is ", describe(), ", not ", wanted);
  TERN_CHECK(device().is_cpu(), "data: the tensor is on ", device(), "; copy it with to(cpu) first");
}

kernels::View Tensor::view() const {
  if (!impl_) return {};
  return {raw_data(), impl_->dtype, impl_->shape.dims(), impl_->shape.data(), impl_->strides.data()};
}

std::string Tensor::describe() const {
  if (!impl_) return "an undefined tensor";
  return detail::concatenate(dtype(), " ", shape(), " on ", device());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  if (device().is_cuda()) detail::forbid_while_recording("reading values (item, to_vector)");
  NoGrad off;
  const Tensor source = detach().to(cpu).to(dtype_of<T>()).contiguous();
  std::vector<T> values(static_cast<size_t>(source.numel()));
  const T* data = static_cast<const T*>(source.raw_data());
  for (size_t i = 0; i < values.size(); ++i) values[i] = data[i];
  check_lost_files();
  return values;
}
template <class T>
T Tensor::item() const {
  TERN_CHECK(numel() == 1, "item: the tensor has shape ", shape(), ", expected one element");
  if (device().is_cuda()) return to_vector<T>()[0];
  const T value = dispatch_any(dtype(), [&]<class From>() {
    return static_cast<T>(kernels::convert<From, T>(*static_cast<const kernels::Stored<From>*>(raw_data())));
  });
  check_lost_files();
  return value;
}
template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;
template double Tensor::item() const;
template float Tensor::item() const;
template int64_t Tensor::item() const;
template int32_t Tensor::item() const;
template uint8_t Tensor::item() const;
template bool Tensor::item() const;

// Conversions.

namespace {

struct ToDType final : Function<ToDType> {
  static constexpr const char* kName = "to";
  static constexpr bool kTwiceDifferentiable = true;
  Tensor forward(const Tensor& x, DType dtype) {
    const Tensor y = empty(x.shape(), {dtype, x.device()});
    kernels::copy(current_stream(x.device()), x.view(), y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy}; }  // the engine converts to the input's dtype
};

struct ToDevice final : Function<ToDevice> {
  static constexpr const char* kName = "to_device";
  static constexpr bool kTwiceDifferentiable = true;
  Device from_;
  Tensor forward(const Tensor& x, Device wanted) {
    from_ = x.device();
    const Tensor source = x.contiguous(), y = empty(x.shape(), {x.dtype(), wanted});
    detail::copy_between_devices(source, y);
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.to(from_)}; }
};

struct Clone final : Function<Clone> {
  static constexpr const char* kName = "clone";
  static constexpr bool kTwiceDifferentiable = true;
  Tensor forward(const Tensor& x) {
    const Tensor y = empty(x.shape(), x.options());
    kernels::copy(current_stream(x.device()), x.view(), y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy}; }
};

}  // namespace

Tensor Tensor::to(DType wanted) const {
  if (dtype() == wanted) return *this;
  if (!is_floating(wanted)) return NoGrad(), ToDType::apply(detach(), wanted);
  return ToDType::apply(*this, wanted);
}

Tensor Tensor::to(Device wanted) const {
  if (device() == wanted) return *this;
  require_available(wanted);
  return is_floating(dtype()) ? ToDevice::apply(*this, wanted) : (NoGrad(), ToDevice::apply(detach(), wanted));
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }
Tensor Tensor::clone() const { return Clone::apply(*this); }

// In place.

namespace {

/// Checks that x may be written, and returns whether the write must be recorded.
bool check_in_place(const char* op, const Tensor& x, const Tensor& other) {
  if (!grad_enabled()) return false;
  const bool needs = is_floating(x.dtype()) && (x.requires_grad() || (other.defined() && other.requires_grad()));
  if (!needs) return false;
  TERN_CHECK(!(x.requires_grad() && x.is_leaf()), op,
             ": a leaf that requires a gradient may only be changed in place under NoGrad");
  TERN_CHECK(
      !x.impl()->is_view, op,
      ": in-place changes of a view are not differentiable; change its base or use the op that returns a tensor");
  return true;
}

/// Replaces x's contents by `result`, a recorded function of the old contents.
void rebase(Tensor& x, const Tensor& result) {
  kernels::copy(current_stream(x.device()), result.view(), x.view());
  x.bump_version();
  detail::replace_history(x, result);
}

void check_fits(const char* op, const Tensor& x, const Tensor& other) {
  TERN_CHECK(broadcasts_to(other.shape(), x.shape()), op, ": ", other.shape(), " does not broadcast to ", x.shape());
  for (int d = 0; d < x.dim(); ++d)
    TERN_CHECK(x.strides()[d] != 0 || x.shape()[d] <= 1 || x.numel() == 0, op, ": several elements of ", x.describe(),
               " have the same address (expand); use contiguous() first");
}

/// `other`, copied when it shares x's memory in another arrangement: writing x would change it while it is read.
Tensor apart(const Tensor& x, const Tensor& other) {
  const bool identical = x.shape() == other.shape() && x.strides() == other.strides() && x.dtype() == other.dtype() &&
                         x.storage_offset() == other.storage_offset();
  if (other.device() != x.device()) return other.to(x.device());
  return other.storage() == x.storage() && !identical ? other.clone() : other;
}

/// x = op(x, other).
template <class Op>
Tensor& in_place(const char* name, Tensor& x, const Tensor& other, const Op& op) {
  check_fits(name, x, other);
  TERN_CHECK(other.device() == x.device() || (other.device().is_cpu() && other.dim() == 0), name, ": tensors are on ",
             x.device(), " and ", other.device());
  if (check_in_place(name, x, other)) {
    // The old contents are cloned: backward may need them after they are overwritten.
    const Tensor old = x.clone();
    const Tensor operand = same(other, x) ? old : other.storage() == x.storage() ? other.clone() : other;
    rebase(x, pointwise(op, old, operand).to(x.dtype()));
    return x;
  }
  NoGrad off;
  const Tensor source = apart(x, other);
  const Tensor* const inputs[] = {&x, &source};
  detail::pointwise_into(detail::describe_pointwise(op), inputs, x);
  x.bump_version();
  return x;
}

}  // namespace

uint32_t Tensor::version() const { return storage()->version(); }
void Tensor::bump_version() const { storage()->bump_version(); }

namespace {
/// x will be overwritten by constants: as a function of its old contents it gets a gradient of zero.
void forget(const char* op, Tensor& x) {
  if (check_in_place(op, x, {})) rebase(x, mul(x, 0.0));
}
/// To be called after x was written by a kernel.
void written(Tensor& x) {
  x.bump_version();
  detail::AutogradMeta* meta = x.impl()->autograd.get();
  if (meta && meta->grad_fn && grad_enabled()) meta->history_version = x.version();
}
/// A scalar as a tensor that add_ and mul_ take.
Tensor scalar_for(const char* op, const Tensor& x, double value) {
  TERN_CHECK(is_floating(x.dtype()) || (value == std::floor(value) && std::abs(value) < 0x1p63), op, ": ", value,
             " cannot be used in place on a tensor of ", x.dtype(), "; use the op that returns a new tensor");
  // 16 bits would round the number before it is used.
  const DType dtype = is_low_precision(x.dtype()) ? DType::kFloat32 : x.dtype();
  return full({}, value, {dtype, x.device()});
}
}  // namespace

Tensor& Tensor::copy_(const Tensor& source) {
  check_fits("copy_", *this, source);
  if (source.requires_grad() && check_in_place("copy_", *this, source)) {
    rebase(*this, source.to(device()).to(dtype()).expand(shape()).clone());
    return *this;
  }
  const Tensor same_device = source.detach().device() == device() ? source.detach() : Tensor();
  if (same_device.defined()) {
    const Tensor values = apart(*this, same_device.expand(shape()));
    forget("copy_", *this);
    kernels::copy(current_stream(device()), values.view(), view());
  } else {
    const Tensor values = source.detach().to(dtype()).expand(shape()).contiguous();
    forget("copy_", *this);
    if (is_contiguous())
      detail::copy_between_devices(values, *this);
    else
      kernels::copy(current_stream(device()), values.to(device()).view(), view());
  }
  written(*this);
  return *this;
}

Tensor& Tensor::fill_(double value) {
  forget("fill_", *this);
  kernels::View elements = view();
  for (int d = 0; d < elements.dims; ++d)  // several threads must not write one element, which expand() repeats
    if (elements.strides[d] == 0) elements.shape[d] = std::min<int64_t>(elements.shape[d], 1);
  kernels::fill(current_stream(device()), value, elements);
  written(*this);
  return *this;
}

Tensor& Tensor::add_(double value) { return in_place("add_", *this, scalar_for("add_", *this, value), kernels::Add{}); }
Tensor& Tensor::mul_(double value) { return in_place("mul_", *this, scalar_for("mul_", *this, value), kernels::Mul{}); }
Tensor& Tensor::sub_(const Tensor& other) { return in_place("sub_", *this, other, kernels::Sub{}); }
Tensor& Tensor::mul_(const Tensor& other) { return in_place("mul_", *this, other, kernels::Mul{}); }
Tensor& Tensor::div_(const Tensor& other) { return in_place("div_", *this, other, kernels::Div{}); }
Tensor& Tensor::add_(const Tensor& other, double alpha) {
  return in_place("add_", *this, alpha == 1 ? other : mul(other, alpha), kernels::Add{});
}

// Autograd.

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
      kept = kept.defined() ? add(kept, gradient) : gradient.detach();
    }
    return Tensor();
  });
}

Tensor Tensor::detach() const { return shape(), detail::alias(*this); }

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
