// Tensor's conversions of dtype, device and layout.

#include "tern/core/autograd/function.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

struct ToDType final : TwiceDifferentiable<ToDType> {
  static constexpr const char* kName = "to";
  Tensor forward(const Tensor& x, DType dtype) {
    const Tensor y = detail::empty_ordered_like(x, {dtype, x.device()});
    kernels::copy(current_stream(x.device()), x.view(), y.view());
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy}; }  // the engine converts to the input's dtype
};

struct ToDevice final : TwiceDifferentiable<ToDevice> {
  static constexpr const char* kName = "to_device";
  Device from_;
  Tensor forward(const Tensor& x, Device wanted) {
    from_ = x.device();
    const Tensor source = x.contiguous(), y = empty(x.shape(), {x.dtype(), wanted});
    detail::copy_between_devices(source, y);
    return y;
  }
  Grads backward(const Tensor& dy) override { return {dy.to(from_)}; }
};

struct Clone final : TwiceDifferentiable<Clone> {
  static constexpr const char* kName = "clone";
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
  if (is_floating(wanted)) return ToDType::apply(*this, wanted);
  const NoGrad off;
  return ToDType::apply(detach(), wanted);
}

Tensor Tensor::to(Device wanted) const {
  if (device() == wanted) return *this;
  require_available(wanted);
  if (is_floating(dtype())) return ToDevice::apply(*this, wanted);
  const NoGrad off;
  return ToDevice::apply(detach(), wanted);
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }
Tensor Tensor::clone() const { return Clone::apply(*this); }
Tensor Tensor::channels_last() const {
  TERN_CHECK(dim() >= 3, "channels_last: expected [batch, channels, spatial...], got ", shape());
  return is_channels_last() ? *this : movedim(1, -1).contiguous().movedim(-1, 1);
}

}  // namespace tern
