#include "tern/core/ops/row_chain.h"

#include "tern/core/ops/attention/call.h"
#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/matmul/packed_linear.h"
#include "tern/core/ops/workspace.h"

namespace tern {
namespace {

using detail::contiguous_or_none;

constexpr const char* kName = "row_chain";

bool records(std::initializer_list<const Tensor*> inputs) {
  return detail::active_trace() || detail::requires_record(inputs.begin(), static_cast<int>(inputs.size()));
}

}  // namespace

RowChain::RowChain(const Tensor& x) : x_(x), shape_(x.shape()) {}

void RowChain::linear(const Tensor& weight_in, const Tensor& bias_in, Activation activation,
                      detail::PackedLinear* packed) {
  if (records({&x_, &weight_in, &bias_in}))
    return apply([&](const Tensor& x) { return tern::linear(x, weight_in, bias_in, activation); });
  Tensor weight = weight_in, bias = bias_in;
  detail::autocast_linear(x_, weight, bias);
  detail::check_linear(x_, shape_, weight, bias);
  if (steps_.empty()) x_ = detail::as_rows(x_);
  const bool fits = packed != nullptr && (weight.is_contiguous() || weight.t().is_contiguous());
  const Tensor copy = fits ? packed->find(x_.size(0), x_.dtype(), weight) : Tensor();
  const Tensor used = copy.defined() ? copy : detail::autocast_copy(weight.contiguous(), x_.dtype());
  const Tensor added = contiguous_or_none(detail::bias_for(x_, weight, bias));
  const kernels::ConstView shown = copy.defined() ? weight.view() : used.view();
  steps_.push_back(kernels::LinearStep{shown, added.view(), activation, copy.defined() ? copy.raw_data() : nullptr});
  inputs_.insert(inputs_.end(), {used, added});
  shape_ = shape_.with(shape_.dims() - 1, weight.size(0));
}

void RowChain::self_attention(int64_t heads, const SequenceLayout& layout, const AttentionOptions& options) {
  TERN_CHECK(heads > 0 && shape_.dims() == 2 && shape_[1] % (3 * heads) == 0,
             "attention: expected rows [tokens, 3 * heads * head_dim], got ", shape_, " and ", heads, " heads");
  const int64_t tokens = shape_[0], head_dim = shape_[1] / (3 * heads);
  if (steps_.empty() || options.dropout > 0 || options.bias.defined()) {
    return apply([&](const Tensor& qkv) {
      return tern::self_attention(qkv.reshape({tokens, 3, heads, head_dim}), layout, options);
    });
  }
  const detail::AttentionCall call = detail::self_attention_call(layout, options, heads, head_dim, tokens, x_.device());
  steps_.push_back(kernels::SelfAttentionStep{call.params});
  inputs_.insert(inputs_.end(), {layout.offsets, layout.key_mask, layout.row_keys});
  shape_ = {tokens, heads * head_dim};
}

void RowChain::apply(const std::function<Tensor(const Tensor&)>& function) {
  x_ = function(result());
  shape_ = x_.shape();
}

Tensor RowChain::result() {
  if (!steps_.empty()) x_ = run().reshape(shape_);
  return x_;
}

/// Whether the kernel takes them as they are; if not, the op converts what can be converted and says what is wrong with
/// the rest.
bool RowChain::fits(const AddNormOptions& options) const {
  const auto fits_norm = [&](const Tensor& t) {
    return !t.defined() || (t.shape() == Shape{shape_.size(-1)} && t.device() == x_.device() &&
                            (t.dtype() == x_.dtype() || t.dtype() == float32));
  };
  const Tensor& residual = options.residual;
  return options.dropout.p == 0 && options.eps >= 0 && shape_.size(-1) > 0 && residual.defined() &&
         residual.shape() == shape_ && residual.dtype() == x_.dtype() && residual.device() == x_.device() &&
         fits_norm(options.weight) && fits_norm(options.bias);
}

SumAndNorm RowChain::add_norm(const AddNormOptions& o) {
  if (steps_.empty() || records({&o.residual, &o.weight, &o.bias}) || !fits(o)) {
    const Tensor rows = result();
    if (o.gives_sum) return dropout_residual_sum_layer_norm(rows, o.residual, o.weight, o.bias, o.eps, o.dropout);
    return {{}, dropout_residual_layer_norm(rows, o.residual, o.weight, o.bias, o.eps, o.dropout)};
  }
  detail::check_row_keys("layer_norm", o.dropout.row_keys, shape_.numel() / shape_.size(-1), x_.device());
  const Tensor residual = o.residual.contiguous(), gamma = contiguous_or_none(o.weight),
               beta = contiguous_or_none(o.bias);
  const Tensor sum = o.gives_sum ? empty(shape_, x_.options()) : Tensor();
  steps_.push_back(kernels::AddNormStep{residual.view(), gamma.view(), beta.view(), o.eps, sum.view()});
  inputs_.insert(inputs_.end(), {residual, gamma, beta});
  return {sum, run().reshape(shape_)};
}

Tensor RowChain::run() {
  const ProfileRange range(kName, RangeKind::kOp);
  const AllocationTag tag(kName);
  const Device device = x_.device();
  const kernels::ConstView x = x_.view();
  const Tensor out = empty({x.rows(), shape_.size(-1)}, x_.options());
  if (range.recording()) {
    std::vector<const Tensor*> read = {&x_};
    for (const Tensor& t : inputs_) read.push_back(&t);
    range.count_tensors(read.data(), static_cast<int>(read.size()), &out, 1);
    for (const kernels::RowStep& step : steps_) {
      if (const auto* const linear = std::get_if<kernels::LinearStep>(&step))
        detail::count_product(x.rows(), linear->weight.shape[0], linear->weight.shape[1], x.dtype);
      if (const auto* const attention = std::get_if<kernels::SelfAttentionStep>(&step))
        detail::count_attention_flops(attention->params, device, x.rows(), x.rows(), x.dtype, 2);
    }
  }
  const kernels::Stream stream = current_stream(device);
  const Workspace workspace(device, [&] { return kernels::row_chain_workspace(stream, x, steps_); });
  kernels::row_chain(stream, x, steps_, out.view(), workspace.data());
  if (anomaly_mode() != Anomaly::kOff) {
    const Tensor* const read[] = {&x_};
    detail::check_anomaly_forward(kName, read, 1, out);
  }
  steps_.clear();
  inputs_.clear();
  return out;
}

}  // namespace tern
