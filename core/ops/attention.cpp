#include "tern/core/ops/attention.h"

#include <array>
#include <cmath>

#include "tern/core/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/attention_call.h"
#include "tern/core/ops/indexing.h"
#include "tern/core/ops/linear.h"
#include "tern/core/ops/linear_inputs.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler.h"

namespace tern {
namespace {

using Call = detail::AttentionCall;

/// The index tensors are saved like the others: the kernels trust offsets, which must not have changed by backward.
struct SavedLayouts {
  std::array<Saved, 5> tensors;
  void save(const Call& call) {
    tensors[0] = call.query.offsets;
    tensors[1] = call.key.offsets;
    tensors[2] = call.key.key_mask;
    tensors[3] = call.query.row_keys;
    tensors[4] = call.bias;
  }
  void check() const {
    for (const Saved& saved : tensors)
      if (saved.defined()) saved.get();
  }
  Tensor bias() const { return tensors[4].defined() ? tensors[4].get() : Tensor(); }
};

/// Slices of one fused tensor [tokens, 3, heads, head_dim].
kernels::View part(const Tensor& qkv, int64_t index) {
  const int64_t shape[] = {qkv.size(0), qkv.size(2), qkv.size(3)};
  const int64_t strides[] = {qkv.strides()[0], qkv.strides()[2], qkv.strides()[3]};
  char* data = static_cast<char*>(qkv.raw_data()) + index * qkv.strides()[1] * size_of(qkv.dtype());
  return {data, qkv.dtype(), 3, shape, strides};
}

Tensor empty_log_sum_exp(const Call& call, int64_t tokens, DType dtype, Device device) {
  return empty({call.params.heads, tokens}, {dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, device});
}

Tensor empty_bias_gradient(const Call& call, const Tensor& q) {
  return empty(call.bias.shape(), {q.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, q.device()});
}

/// Query-key pairs of one sequence that causal and window let through, as the kernels align them: at the end.
double visible_pairs(const kernels::AttentionParams& p, int64_t queries, int64_t keys) {
  if (!p.causal && p.window < 0) return static_cast<double>(queries) * static_cast<double>(keys);
  double pairs = 0;
  for (int64_t q = 0; q < queries; ++q) {
    const int64_t at = q + keys - queries;
    const int64_t first = p.window < 0 ? 0 : std::max<int64_t>(0, at - p.window);
    const int64_t last = p.causal ? at : p.window < 0 ? keys - 1 : at + p.window;
    pairs += static_cast<double>(std::max<int64_t>(0, std::min(last, keys - 1) - first + 1));
  }
  return pairs;
}

/// Two products of every pair in forward; in backward the scores again and four products. Where the offsets are not to
/// be had without waiting, the pairs are those of sequences of equal length: the least there can be in self-attention.
void count_flops(const Call& call, Device device, kernels::ConstView q, kernels::ConstView k, int products) {
  if (!profiling()) return;
  const kernels::AttentionParams& p = call.params;
  double pairs = 0;
  if (device.is_cpu()) {
    for (int64_t s = 0; s < p.sequences; ++s)
      pairs += visible_pairs(p, p.query_offsets[s + 1] - p.query_offsets[s], p.key_offsets[s + 1] - p.key_offsets[s]);
  } else if (p.sequences > 0) {
    pairs = static_cast<double>(p.sequences) * visible_pairs(p, q.shape[0] / p.sequences, k.shape[0] / p.sequences);
  }
  profile_flops(2.0 * products * pairs * static_cast<double>(p.heads * p.head_dim), q.dtype);
}

void forward_kernel(const Call& call, Device device, kernels::ConstView q, kernels::ConstView k, kernels::ConstView v,
                    const Tensor& out, const Tensor& log_sum_exp) {
  const kernels::Stream stream = current_stream(device);
  const Workspace workspace(device, [&] { return kernels::attention_forward_workspace(stream, call.params, q.dtype); });
  count_flops(call, device, q, k, 2);
  kernels::attention_forward(stream, call.params, q, k, v, out.view(), log_sum_exp.view(), workspace.data());
}

void backward_kernel(const Call& call, Device device, kernels::ConstView q, kernels::ConstView k, kernels::ConstView v,
                     const Tensor& out, const Tensor& dout, const Tensor& log_sum_exp, kernels::View dq,
                     kernels::View dk, kernels::View dv, kernels::View dbias) {
  const kernels::Stream stream = current_stream(device);
  const Workspace workspace(device,
                            [&] { return kernels::attention_backward_workspace(stream, call.params, q.dtype); });
  count_flops(call, device, q, k, 5);
  kernels::attention_backward(stream, call.params, q, k, v, out.view(), dout.view(), log_sum_exp.view(), dq, dk, dv,
                              dbias, workspace.data());
}

struct Attention final : Function<Attention> {
  static constexpr const char* kName = "attention";
  static constexpr bool kTwiceDifferentiable = true;
  Saved q_, k_, v_, log_sum_exp_;
  SavedOutput out_;
  SavedLayouts layouts_;
  Call call_;

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, const Call& call) {
    call_ = call;
    layouts_.save(call);
    const Tensor out = empty(q.shape(), q.options());
    const Tensor log_sum_exp = empty_log_sum_exp(call, q.size(0), q.dtype(), q.device());
    forward_kernel(call, q.device(), q.view(), k.view(), v.view(), out, log_sum_exp);
    q_ = q;
    k_ = k;
    v_ = v;
    log_sum_exp_ = log_sum_exp;
    out_ = out;
    return out;
  }

  Grads backward(const Tensor& gradient) override {
    layouts_.check();
    const Tensor dout = gradient.contiguous(), q = q_.get(), k = k_.get(), v = v_.get();
    if (grad_enabled()) {
      const detail::AttentionGradients made = detail::attention_gradients(call_, q, k, v, layouts_.bias(), dout);
      return {made.q, made.k, made.v, made.bias};
    }
    Grads grads = {empty(q.shape(), q.options()), empty(k.shape(), k.options()), empty(v.shape(), v.options()), {}};
    if (needs_grad(3)) grads[3] = empty_bias_gradient(call_, q);
    backward_kernel(call_, q.device(), q.view(), k.view(), v.view(), out_.get(), dout, log_sum_exp_.get(),
                    grads[0].view(), grads[1].view(), grads[2].view(), grads[3].view());
    return grads;
  }
};

struct CrossAttention final : Function<CrossAttention> {
  static constexpr const char* kName = "attention";
  static constexpr bool kTwiceDifferentiable = true;
  Saved q_, kv_, log_sum_exp_;
  SavedOutput out_;
  SavedLayouts layouts_;
  Call call_;

  Tensor forward(const Tensor& q, const Tensor& kv, const Tensor& bias, const Call& call) {
    call_ = call;
    layouts_.save(call);
    const Tensor out = empty(q.shape(), q.options());
    const Tensor log_sum_exp = empty_log_sum_exp(call, q.size(0), q.dtype(), q.device());
    forward_kernel(call, q.device(), q.view(), part(kv, 0), part(kv, 1), out, log_sum_exp);
    q_ = q;
    kv_ = kv;
    log_sum_exp_ = log_sum_exp;
    out_ = out;
    return out;
  }

  Grads backward(const Tensor& gradient) override {
    layouts_.check();
    const Tensor dout = gradient.contiguous(), q = q_.get(), kv = kv_.get();
    if (grad_enabled()) {
      const detail::AttentionGradients made =
          detail::attention_gradients(call_, q, kv.select(1, 0), kv.select(1, 1), layouts_.bias(), dout);
      return {made.q, stack({made.k, made.v}, 1), made.bias};
    }
    Grads grads = {empty(q.shape(), q.options()), empty(kv.shape(), kv.options()), {}};
    if (needs_grad(2)) grads[2] = empty_bias_gradient(call_, q);
    backward_kernel(call_, q.device(), q.view(), part(kv, 0), part(kv, 1), out_.get(), dout, log_sum_exp_.get(),
                    grads[0].view(), part(grads[1], 0), part(grads[1], 1), grads[2].view());
    return grads;
  }
};

struct SelfAttention final : Function<SelfAttention> {
  static constexpr const char* kName = "attention";
  static constexpr bool kTwiceDifferentiable = true;
  Saved qkv_, log_sum_exp_;
  SavedOutput out_;
  SavedLayouts layouts_;
  Call call_;

  Tensor forward(const Tensor& qkv, const Tensor& bias, const Call& call) {
    call_ = call;
    layouts_.save(call);
    const Tensor out = empty({qkv.size(0), qkv.size(2), qkv.size(3)}, qkv.options());
    const Tensor log_sum_exp = empty_log_sum_exp(call, qkv.size(0), qkv.dtype(), qkv.device());
    forward_kernel(call, qkv.device(), part(qkv, 0), part(qkv, 1), part(qkv, 2), out, log_sum_exp);
    qkv_ = qkv;
    log_sum_exp_ = log_sum_exp;
    out_ = out;
    return out;
  }

  Grads backward(const Tensor& gradient) override {
    layouts_.check();
    const Tensor dout = gradient.contiguous(), qkv = qkv_.get();
    if (grad_enabled()) {
      const detail::AttentionGradients made = detail::attention_gradients(call_, qkv.select(1, 0), qkv.select(1, 1),
                                                                          qkv.select(1, 2), layouts_.bias(), dout);
      return {stack({made.q, made.k, made.v}, 1), made.bias};
    }
    Grads grads = {empty(qkv.shape(), qkv.options()), {}};
    if (needs_grad(1)) grads[1] = empty_bias_gradient(call_, qkv);
    backward_kernel(call_, qkv.device(), part(qkv, 0), part(qkv, 1), part(qkv, 2), out_.get(), dout, log_sum_exp_.get(),
                    part(grads[0], 0), part(grads[0], 1), part(grads[0], 2), grads[1].view());
    return grads;
  }
};

/// Where nothing is recorded: backward would need queries, keys and values.
struct ProjectedSelfAttention final : Function<ProjectedSelfAttention> {
  static constexpr const char* kName = "self_attention";

  /// x: [rows, in], contiguous like weight.
  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Call& call) {
    const Tensor used = detail::autocast_copy(weight, x.dtype());
    const Tensor out = empty({x.size(0), call.params.heads, call.params.head_dim}, x.options());
    const kernels::Stream stream = current_stream(x.device());
    const Workspace workspace(
        x.device(), [&] { return kernels::self_attention_workspace(stream, call.params, x.view(), used.view()); });
    count_flops(call, x.device(), out.view(), out.view(), 2);
    detail::count_product(x.size(0), weight.size(0), x.size(1), x.dtype());
    kernels::self_attention_forward(stream, call.params, x.view(), used.view(),
                                    detail::bias_for(x, weight, bias).view(), out.view(), workspace.data());
    return out;
  }
};

/// A floating mask would be read as its opposite by who has PyTorch's convention in mind.
void check_key_mask(const char* op, const Tensor& mask) {
  TERN_CHECK(!mask.defined() || !is_floating(mask.dtype()), op, ": key_mask is ", mask.dtype(),
             "; a floating mask is PyTorch's additive one, where 0 lets a key through and -inf does not, and here 0 is "
             "padding. Give bool, or integers: 0 for padding and another number for a token, as by eq(mask, "
             "zeros_like(mask)). What is to be added to the scores goes into AttentionOptions::bias");
}

void check_layout(const char* which, const SequenceLayout& layout, int64_t tokens, Device device) {
  TERN_CHECK(layout.offsets.defined() && layout.offsets.dtype() == DType::kInt32 && layout.offsets.dim() == 1 &&
                 layout.offsets.numel() >= 1 && layout.offsets.is_contiguous() && layout.offsets.device() == device,
             "attention: ", which, " offsets must be contiguous int32 [sequences + 1] on ", device);
  TERN_CHECK(tokens <= INT32_MAX, "attention: ", tokens, " tokens do not fit 32-bit offsets");
  // Positions, and the windows around them, are 32-bit numbers in kernels.
  TERN_CHECK(layout.max_length >= 0 && layout.max_length <= int64_t{1} << 29,
             "attention: max_length must be 0 to 536870912, got ", layout.max_length);
  TERN_CHECK(layout.tokens <= tokens, "attention: the ", which, " sequences end at token ", layout.tokens,
             ", there are ", tokens, " tokens");
  if (device.is_cpu()) {
    // The kernel trusts the offsets; on the CPU they can be read at no cost.
    const int32_t* offsets = layout.offsets.data<int32_t>();
    const int64_t n = layout.sequences();
    TERN_CHECK(offsets[0] == 0 && offsets[n] <= tokens, "attention: ", which, " offsets run from ", offsets[0], " to ",
               offsets[n], ", expected from 0 to at most ", tokens, ", the number of tokens");
    for (int64_t s = 0; s < n; ++s)
      TERN_CHECK(offsets[s + 1] >= offsets[s] && offsets[s + 1] - offsets[s] <= layout.max_length, "attention: ", which,
                 " sequence ", s, " has length ", offsets[s + 1] - offsets[s], ", expected 0 to max_length ",
                 layout.max_length);
  }
  const auto per_token = [&](const Tensor& t, DType dtype) {
    return !t.defined() || (t.numel() == tokens && t.is_contiguous() && t.device() == device &&
                            (t.dtype() == dtype || (dtype == DType::kUInt8 && t.dtype() == DType::kBool)));
  };
  check_key_mask("attention", layout.key_mask);
  TERN_CHECK(per_token(layout.key_mask, DType::kUInt8), "attention: key_mask must be contiguous uint8 or bool [",
             tokens, "] on ", device, " (0: padding), got ", layout.key_mask.describe());
  TERN_CHECK(per_token(layout.row_keys, DType::kInt64), "attention: row_keys must be contiguous int64 [", tokens,
             "] on ", device);
}

Call make_call(const SequenceLayout& query, const SequenceLayout& key, const AttentionOptions& options, int64_t heads,
               int64_t kv_heads, int64_t head_dim, const Tensor& bias) {
  TERN_CHECK(query.sequences() == key.sequences(), "attention: ", query.sequences(), " query sequences and ",
             key.sequences(), " key sequences");
  TERN_CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention: ", heads, " query heads are not a multiple of ",
             kv_heads, " key heads");
  TERN_CHECK(head_dim >= 1 && head_dim <= 256, "attention: head_dim must be 1 to 256, got ", head_dim);
  TERN_CHECK(std::isfinite(options.scale) && options.window >= -1, "attention: scale must be finite and window >= -1");
  Call call{query, key, bias, {}};
  kernels::AttentionParams& p = call.params;
  p.sequences = query.sequences();
  p.query_offsets = static_cast<const int32_t*>(query.offsets.raw_data());
  p.key_offsets = static_cast<const int32_t*>(key.offsets.raw_data());
  p.max_query_length = query.max_length;
  p.max_key_length = key.max_length;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.head_dim = head_dim;
  p.scale = options.scale == 0 ? 1 / std::sqrt(static_cast<double>(head_dim)) : options.scale;
  p.causal = options.causal;
  p.window = options.window;
  if (key.key_mask.defined()) p.key_mask = static_cast<const uint8_t*>(key.key_mask.raw_data());
  if (query.row_keys.defined()) p.row_keys = static_cast<const int64_t*>(query.row_keys.raw_data());
  p.dropout = detail::draw({.p = options.dropout, .generator = options.generator, .row_keys = {}}, "attention",
                           query.offsets.device());
  if (bias.defined()) {
    const auto fits = [&](int d, int64_t n) { return bias.size(d) == 1 || bias.size(d) == n; };
    TERN_CHECK(is_floating(bias.dtype()), "attention: bias must be floating, got ", bias.dtype(),
               "; it is added to the scores. Keys that are padding are named by SequenceLayout::key_mask");
    TERN_CHECK(bias.dim() == 4 && fits(0, p.sequences) && fits(1, heads) && bias.size(2) == p.max_query_length &&
                   bias.size(3) == p.max_key_length,
               "attention: bias is ", bias.shape(), ", expected [", p.sequences, " or 1, ", heads, " or 1, ",
               p.max_query_length, ", ", p.max_key_length, "]");
    p.bias = bias.view();
    for (int d = 0; d < 2; ++d)
      if (bias.size(d) == 1) p.bias.strides[d] = 0;
  }
  return call;
}

}  // namespace

Tensor attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const SequenceLayout& query_layout,
                 const SequenceLayout& key_layout, const AttentionOptions& options) {
  Tensor q = q_in, k = k_in, v = v_in;
  detail::check_one_device("attention", {&q, &k, &v, &options.bias});
  detail::autocast_inputs("attention", {&q, &k, &v});
  TERN_CHECK(q.dim() == 3 && k.dim() == 3 && k.shape() == v.shape() && q.size(2) == k.size(2),
             "attention: expected q [tokens, heads, head_dim] and k, v [tokens, kv_heads, head_dim], got ", q.shape(),
             ", ", k.shape(), ", ", v.shape());
  TERN_CHECK(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
             "attention: q, k and v must be of one floating dtype, got ", q.dtype(), ", ", k.dtype(), ", ", v.dtype(),
             detail::dtype_hint({q, k, v}));
  check_layout("query", query_layout, q.size(0), q.device());
  check_layout("key", key_layout, k.size(0), k.device());
  const auto rows = [](const Tensor& t) { return t.strides()[2] == 1 ? t : t.contiguous(); };
  const Tensor bias = options.bias.defined() ? options.bias.contiguous() : Tensor();
  return Attention::apply(rows(q), rows(k), rows(v), bias,
                          make_call(query_layout, key_layout, options, q.size(1), k.size(1), q.size(2), bias));
}

Tensor cross_attention(const Tensor& q_in, const Tensor& kv_in, const SequenceLayout& query_layout,
                       const SequenceLayout& key_layout, const AttentionOptions& options) {
  Tensor q = q_in, kv = kv_in;
  detail::check_one_device("attention", {&q, &kv, &options.bias});
  detail::autocast_inputs("attention", {&q, &kv});
  TERN_CHECK(q.dim() == 3 && kv.dim() == 4 && kv.size(1) == 2 && q.size(2) == kv.size(3),
             "attention: expected q [tokens, heads, head_dim] and kv [tokens, 2, kv_heads, head_dim], got ", q.shape(),
             ", ", kv.shape());
  TERN_CHECK(is_floating(q.dtype()) && q.dtype() == kv.dtype(),
             "attention: q and kv must be of one floating dtype, got ", q.dtype(), ", ", kv.dtype(),
             detail::dtype_hint({q, kv}));
  check_layout("query", query_layout, q.size(0), q.device());
  check_layout("key", key_layout, kv.size(0), kv.device());
  const Tensor bias = options.bias.defined() ? options.bias.contiguous() : Tensor();
  const Call call = make_call(query_layout, key_layout, options, q.size(1), kv.size(2), q.size(2), bias);
  return CrossAttention::apply(q.contiguous(), kv.contiguous(), bias, call).reshape({q.size(0), q.size(1) * q.size(2)});
}

Tensor self_attention(const Tensor& qkv_in, const SequenceLayout& layout, const AttentionOptions& options) {
  Tensor qkv = qkv_in;
  detail::check_one_device("attention", {&qkv, &options.bias});
  detail::autocast_inputs("attention", {&qkv});
  TERN_CHECK(qkv.dim() == 4 && qkv.size(1) == 3 && is_floating(qkv.dtype()),
             "attention: qkv must be a floating tensor [tokens, 3, heads, head_dim], got ", qkv.describe());
  check_layout("query", layout, qkv.size(0), qkv.device());
  const Tensor bias = options.bias.defined() ? options.bias.contiguous() : Tensor();
  const Call call = make_call(layout, layout, options, qkv.size(2), qkv.size(2), qkv.size(3), bias);
  return SelfAttention::apply(qkv.contiguous(), bias, call).reshape({qkv.size(0), qkv.size(2) * qkv.size(3)});
}

Tensor self_attention(const Tensor& input, const Tensor& weight_in, const Tensor& bias_in, int64_t heads,
                      const SequenceLayout& layout, const AttentionOptions& options) {
  TERN_CHECK(input.dim() == 2 && heads > 0 && weight_in.dim() == 2 && weight_in.size(0) % (3 * heads) == 0,
             "attention: expected x [tokens, in] and weight [3 * heads * head_dim, in], got ", input.shape(), ", ",
             weight_in.shape(), " and ", heads, " heads");
  const int64_t tokens = input.size(0), head_dim = weight_in.size(0) / (3 * heads);
  const auto in_two = [&] {
    return self_attention(linear(input, weight_in, bias_in).reshape({tokens, 3, heads, head_dim}), layout, options);
  };
  const Tensor* const inputs[] = {&input, &weight_in, &bias_in};
  if (options.dropout > 0 || options.bias.defined() || detail::wants_record(inputs, 3)) return in_two();
  Tensor x = input, weight = weight_in, bias = bias_in;
  detail::autocast_linear(x, weight, bias);
  detail::check_linear(x, weight, bias);
  check_layout("query", layout, tokens, x.device());
  const Call call = make_call(layout, layout, options, heads, heads, head_dim, {});
  if (!kernels::self_attention_pays(current_stream(x.device()), call.params, x.view(), weight.view())) return in_two();
  return ProjectedSelfAttention::apply(x.contiguous(), weight.contiguous(), detail::contiguous_or_none(bias), call)
      .reshape({tokens, heads * head_dim});
}

SequenceLayout padded_layout(int64_t batch, int64_t length, const Tensor& key_mask, Device device) {
  TERN_CHECK(batch >= 0 && length >= 0 && (length == 0 || batch <= INT32_MAX / length), "padded_layout: ", batch,
             " sequences of ", length, " tokens do not fit 32-bit offsets");
  SequenceLayout layout;
  layout.offsets = from_vector(
                       [&] {
                         std::vector<int32_t> offsets;
                         for (int64_t s = 0; s <= batch; ++s) offsets.push_back(static_cast<int32_t>(s * length));
                         return offsets;
                       }(),
                       {batch + 1})
                       .to(device);
  layout.max_length = length;
  layout.tokens = batch * length;
  if (key_mask.defined()) {
    check_key_mask("padded_layout", key_mask);
    TERN_CHECK(key_mask.shape() == Shape({batch, length}), "padded_layout: key_mask is ", key_mask.shape(),
               ", expected [", batch, ", ", length, "]");
    layout.key_mask = key_mask.to(DType::kBool).contiguous().reshape({-1});
  }
  return layout;
}

SequenceLayout packed_layout(const std::vector<int64_t>& lengths, Device device) {
  std::vector<int32_t> offsets = {0};
  int64_t total = 0, longest = 0;
  for (int64_t length : lengths) {
    TERN_CHECK(length >= 0, "packed_layout: a length is ", length);
    total += length;
    longest = std::max(longest, length);
    TERN_CHECK(total <= INT32_MAX, "packed_layout: the tokens do not fit 32-bit offsets");
    offsets.push_back(static_cast<int32_t>(total));
  }
  SequenceLayout layout;
  layout.offsets = from_vector(offsets, {static_cast<int64_t>(offsets.size())}).to(device);
  layout.max_length = longest;
  layout.tokens = total;
  return layout;
}

}  // namespace tern
