// Tensor's ops that write its elements.

#include <algorithm>
#include <cmath>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/index_call.h"
#include "tern/core/ops/indexing/scatter_call.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/tensor/in_place.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/kernels/copy.h"

namespace tern {

bool detail::check_in_place(const char* op, const Tensor& x, const Tensor& other) {
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

void detail::rebase(Tensor& x, const Tensor& result) {
  kernels::copy(current_stream(x.device()), result.view(), x.view());
  x.bump_version();
  if (result.requires_grad() || x.requires_grad())
    detail::replace_history(x, result.requires_grad() ? result : mul(x, 0.0));
  if (TraceSink* const sink = active_trace()) sink->changed(x, result);
}

Tensor& detail::replace_contents(const char* name, Tensor& x, const std::vector<Tensor>& others,
                                 const std::function<Tensor(const Tensor&)>& op) {
  check_distinct(name, x);
  bool records = check_in_place(name, x, {}) || active_trace();
  for (const Tensor& other : others) records = check_in_place(name, x, other) || records;
  const auto result_of = [&](const Tensor& old) {
    const Tensor result = op(old);
    TERN_CHECK(result.shape() == x.shape() && (is_floating(x.dtype()) || !is_floating(result.dtype())), name,
               ": the result is ", result.describe(), ", which ", x.describe(), " cannot hold");
    return result.to(x.dtype());
  };
  if (records) {
    rebase(x, result_of(x.clone()));
    return x;
  }
  const NoGrad off;
  kernels::copy(current_stream(x.device()), result_of(x.detach()).view(), x.view());
  x.bump_version();
  return x;
}

void detail::check_distinct(const char* op, const Tensor& x) {
  for (int d = 0; d < x.dim(); ++d)
    TERN_CHECK(x.strides()[d] != 0 || x.shape()[d] <= 1 || x.numel() == 0, op, ": several elements of ", x.describe(),
               " have the same address (expand); use contiguous() first");
}

namespace {

using detail::check_distinct, detail::check_in_place, detail::rebase;

void check_fits(const char* op, const Tensor& x, const Tensor& other) {
  TERN_CHECK(broadcasts_to(other.shape(), x.shape()), op, ": ", other.shape(), " does not broadcast to ", x.shape());
  check_distinct(op, x);
}

/// The addresses that the elements of x lie between, [first, last).
std::pair<uintptr_t, uintptr_t> extent(const Tensor& x) {
  int64_t low = 0, high = 1;
  for (int d = 0; d < x.dim(); ++d) {
    const int64_t reach = (x.size(d) - 1) * x.strides()[d];
    (reach < 0 ? low : high) += reach;
  }
  const auto data = reinterpret_cast<uintptr_t>(x.raw_data());
  const auto bytes = static_cast<int64_t>(size_of(x.dtype()));
  return {data + static_cast<uintptr_t>(low * bytes), data + static_cast<uintptr_t>(high * bytes)};
}

/// Whether a write to x may change other. Their memory decides, which two storages may share (from_blob).
bool may_overlap(const Tensor& x, const Tensor& other) {
  if (x.numel() == 0 || other.numel() == 0 || x.device() != other.device()) return false;
  const auto [first, last] = extent(x);
  const auto [other_first, other_last] = extent(other);
  return first < other_last && other_first < last;
}

/// `other`, copied when it shares x's memory: writing x would change it while it is read.
Tensor apart(const Tensor& x, const Tensor& other) {
  if (other.device() != x.device()) return other.to(x.device());
  return may_overlap(x, other) ? other.clone() : other;
}

/// The same for an op that reads an element of `other` only before it writes the same element of x: then `other` may be
/// x, or what has its elements at the same addresses.
Tensor apart_unless_same(const Tensor& x, const Tensor& other) {
  const bool identical = x.shape() == other.shape() && x.strides() == other.strides() && x.dtype() == other.dtype() &&
                         x.device() == other.device() && x.raw_data() == other.raw_data();
  return identical ? other : apart(x, other);
}

/// x = op(x, other).
template <class Op>
Tensor& in_place(const char* name, Tensor& x, const Tensor& other, const Op& op) {
  check_fits(name, x, other);
  TERN_CHECK(other.device() == x.device() || (other.device().is_cpu() && other.dim() == 0), name, ": tensors are on ",
             x.device(), " and ", other.device());
  if (check_in_place(name, x, other) || detail::active_trace()) {
    // The old contents are cloned: backward may need them after they are overwritten.
    const Tensor old = x.clone();
    const Tensor operand = same(other, x) ? old : may_overlap(x, other) ? other.clone() : other;
    rebase(x, pointwise(op, old, operand).to(x.dtype()));
    return x;
  }
  NoGrad off;
  const Tensor source = apart_unless_same(x, other);
  const Tensor* const inputs[] = {&x, &source};
  detail::pointwise_into(detail::describe_pointwise(op), inputs, x);
  x.bump_version();
  return x;
}

/// x will be overwritten by constants: as a function of its old contents it gets a gradient of zero. The contents stay
/// until then, since the constants may be read from them.
void forget(const char* op, Tensor& x) {
  if (check_in_place(op, x, {})) detail::replace_history(x, mul(x, 0.0));
}

/// To be called after x was written by a kernel.
void written(Tensor& x) {
  x.bump_version();
  detail::AutogradMeta* meta = x.impl()->autograd.get();
  if (meta && meta->grad_fn && grad_enabled()) meta->history_version = x.version();
}

/// Writes call.*source to the elements of x that the call names.
template <class Call>
Tensor& write_in_place(const char* op, Tensor& x, Call call, Tensor Call::*source) {
  check_distinct(op, x);
  if (check_in_place(op, x, call.*source) || detail::active_trace()) {
    rebase(x, detail::written(x, call));
    return x;
  }
  call.*source = apart(x, (call.*source).detach());
  detail::write(x.detach(), call);
  x.bump_version();
  return x;
}

/// Writes a source to the elements that an index names along a dimension.
Tensor& scatter_in_place(Tensor& x, const detail::ScatterCall& call) {
  detail::ScatterCall own = call;
  own.index = apart(x, call.index);
  return write_in_place(call.op, x, own, &detail::ScatterCall::source);
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
  if ((source.requires_grad() && check_in_place("copy_", *this, source)) || detail::active_trace()) {
    rebase(*this, source.to(device()).to(dtype()).expand(shape()).clone());
    return *this;
  }
  const Tensor same_device = source.detach().device() == device() ? source.detach() : Tensor();
  if (same_device.defined()) {
    const Tensor values = apart_unless_same(*this, same_device.expand(shape()));
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
  if (detail::active_trace()) return copy_(full({}, value, options()));
  forget("fill_", *this);
  kernels::View elements = view();
  for (int d = 0; d < elements.dims; ++d)  // several threads must not write one element, which expand() repeats
    if (elements.strides[d] == 0) elements.shape[d] = std::min<int64_t>(elements.shape[d], 1);
  kernels::fill(current_stream(device()), value, elements);
  written(*this);
  return *this;
}

Tensor& Tensor::add_(double value) { return in_place("add_", *this, scalar_for("add_", *this, value), kernels::Add{}); }
Tensor& Tensor::sub_(double value) { return in_place("sub_", *this, scalar_for("sub_", *this, value), kernels::Sub{}); }
Tensor& Tensor::mul_(double value) { return in_place("mul_", *this, scalar_for("mul_", *this, value), kernels::Mul{}); }
Tensor& Tensor::div_(double value) { return in_place("div_", *this, scalar_for("div_", *this, value), kernels::Div{}); }
Tensor& Tensor::pow_(const Tensor& exponent) { return in_place("pow_", *this, exponent, kernels::Pow{}); }
Tensor& Tensor::remainder_(const Tensor& other) { return in_place("remainder_", *this, other, kernels::Remainder{}); }
Tensor& Tensor::fmod_(const Tensor& other) { return in_place("fmod_", *this, other, kernels::Fmod{}); }
Tensor& Tensor::sub_(const Tensor& other) { return in_place("sub_", *this, other, kernels::Sub{}); }
Tensor& Tensor::mul_(const Tensor& other) { return in_place("mul_", *this, other, kernels::Mul{}); }
Tensor& Tensor::div_(const Tensor& other) { return in_place("div_", *this, other, kernels::Div{}); }

Tensor& Tensor::masked_fill_(const Tensor& mask, double value) {
  TERN_CHECK(mask.dtype() == DType::kBool, "masked_fill_: the mask must be bool, got ", mask.describe());
  check_fits("masked_fill_", *this, mask);
  if (check_in_place("masked_fill_", *this, {}) || detail::active_trace()) {
    rebase(*this, masked_fill(*this, mask, value));
    return *this;
  }
  const NoGrad off;
  const Tensor condition = apart_unless_same(*this, mask), filler = full({}, value, options());
  const Tensor* const inputs[] = {&condition, &filler, this};
  detail::pointwise_into(detail::describe_pointwise(kernels::Where{}), inputs, *this);
  bump_version();
  return *this;
}

Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& values, bool accumulate) {
  constexpr const char* kName = "index_put_";
  detail::IndexCall call = detail::index_put_call(kName, *this, indices, values, accumulate);
  for (Tensor& index : call.indices) index = apart(*this, index);
  return write_in_place(kName, *this, call, &detail::IndexCall::values);
}
Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, double value) {
  return index_put_(indices, full({}, value, options()));
}

Tensor& Tensor::index_fill_(int dim, const Tensor& index, double value) {
  const Tensor source = full({}, value, options());
  return scatter_in_place(*this,
                          detail::slices_call("index_fill_", kernels::ScatterMode::kAssign, *this, dim, index, source));
}
Tensor& Tensor::index_copy_(int dim, const Tensor& index, const Tensor& source) {
  return scatter_in_place(*this,
                          detail::slices_call("index_copy_", kernels::ScatterMode::kAssign, *this, dim, index, source));
}
Tensor& Tensor::index_add_(int dim, const Tensor& index, const Tensor& source, double alpha) {
  const Tensor scaled = alpha == 1 ? source : mul(source, alpha);
  return scatter_in_place(*this,
                          detail::slices_call("index_add_", kernels::ScatterMode::kAdd, *this, dim, index, scaled));
}
Tensor& Tensor::scatter_(int dim, const Tensor& index, const Tensor& source) {
  return scatter_in_place(*this,
                          detail::scatter_call("scatter_", kernels::ScatterMode::kAssign, *this, dim, index, source));
}
Tensor& Tensor::scatter_(int dim, const Tensor& index, double value) {
  return scatter_(dim, index, full({}, value, options()).expand(index.shape()));
}
Tensor& Tensor::scatter_add_(int dim, const Tensor& index, const Tensor& source) {
  return scatter_in_place(*this,
                          detail::scatter_call("scatter_add_", kernels::ScatterMode::kAdd, *this, dim, index, source));
}
Tensor& Tensor::add_(const Tensor& other, double alpha) {
  return in_place("add_", *this, alpha == 1 ? other : mul(other, alpha), kernels::Add{});
}

}  // namespace tern
