#include "tern/core/tensor.h"

#include "tern/core/device/capture_state.h"
#include "tern/core/memory/file_fault.h"
#include "tern/core/tensor/recorded_call.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/convert.h"

namespace tern {

const Shape& Tensor::shape() const {
  TERN_CHECK(impl_,
             "tensor: this handle is undefined: default-constructed, or a gradient that no backward() gave; "
             "defined() tells");
  return impl_->shape;
}
const Strides& Tensor::strides() const { return shape(), impl_->strides; }
DType Tensor::dtype() const { return shape(), impl_->dtype; }
Device Tensor::device() const { return shape(), impl_->storage->device(); }
bool Tensor::is_contiguous() const { return shape(), impl_->contiguous; }
bool Tensor::is_channels_last() const {
  const Shape& sizes = shape();
  if (sizes.dims() < 3 || sizes.numel() == 0) return sizes.dims() >= 3;
  int64_t expected = 1;
  const auto follows = [&](int d) {
    if (sizes[d] != 1 && impl_->strides[static_cast<size_t>(d)] != expected) return false;
    expected *= sizes[d];
    return true;
  };
  if (!follows(1)) return false;
  for (int d = sizes.dims() - 1; d >= 2; --d)
    if (!follows(d)) return false;
  return follows(0);
}
const std::shared_ptr<Storage>& Tensor::storage() const { return shape(), impl_->storage; }
int64_t Tensor::storage_offset() const { return shape(), impl_->offset; }

void* Tensor::raw_data() const {
  shape();
  return static_cast<char*>(impl_->storage->data()) + impl_->offset * size_of(impl_->dtype);
}

void Tensor::check_data_access(DType wanted) const {
  if (detail::TraceSink* const sink = detail::active_trace()) sink->read(*this, "data");
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

uint32_t Tensor::version() const { return storage()->version(); }
void Tensor::bump_version() const { storage()->bump_version(); }

Tensor Tensor::detach() const {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "detach", [](const Tensor& x) { return x.detach(); }, *this);
  return shape(), detail::alias(*this);
}

Tensor detail::alias(const Tensor& tensor) {
  const detail::TensorImpl& from = *tensor.impl();
  auto impl = std::make_shared<detail::TensorImpl>();
  impl->storage = from.storage;
  impl->offset = from.offset;
  impl->shape = from.shape;
  impl->strides = from.strides;
  impl->dtype = from.dtype;
  impl->contiguous = from.contiguous;
  impl->is_view = from.is_view;
  return Tensor(std::move(impl));
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  if (detail::TraceSink* const sink = detail::active_trace()) sink->read(*this, "to_vector");
  const detail::TraceScope off(nullptr);
  if (device().is_cuda()) detail::forbid_while_recording("reading values (item, to_vector)");
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
  if (detail::TraceSink* const sink = detail::active_trace()) sink->read(*this, "item");
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

Tensor find(const StateView& state, const std::string& name) {
  for (const NamedTensor& entry : state)
    if (entry.name == name) return entry.tensor;
  return {};
}

std::vector<Tensor> tensors_of(const StateView& state) {
  std::vector<Tensor> tensors;
  tensors.reserve(state.size());
  for (const NamedTensor& entry : state) tensors.push_back(entry.tensor);
  return tensors;
}

}  // namespace tern
