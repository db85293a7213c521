#include "tern/core/ops/attention/attention.h"

#include <array>
#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/attention/call.h"
#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/sort/search.h"
#include "tern/core/ops/sort/sort.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"

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
    for (const Saved& saved : tensors) static_cast<void>(saved.get_or_none());
  }
  Tensor bias() const { return tensors[4].get_or_none(); }
};

/// q, k and v of a call: three tensors [tokens, heads, head_dim], or q and one tensor [tokens, 2, heads, head_dim], or
/// one tensor [tokens, 3, heads, head_dim]; what is not there is undefined. Their gradients come in the same form.
struct Projections {
  Tensor first, second, third;

  kernels::View q() const { return second.defined() ? first.view() : part(first, 0); }
  kernels::View k() const {
    return third.defined() ? second.view() : second.defined() ? part(second, 0) : part(first, 1);
  }
  kernels::View v() const {
    return third.defined() ? third.view() : second.defined() ? part(second, 1) : part(first, 2);
  }

  /// The same as tensors, for ops.
  std::array<Tensor, 3> separate() const {
    if (third.defined()) return {first, second, third};
    if (second.defined()) return {first, second.select(1, 0), second.select(1, 1)};
    return {first.select(1, 0), first.select(1, 1), first.select(1, 2)};
  }
  /// Tensors of q's, k's and v's shapes in the form of this.
  Projections joined(const Tensor& q, const Tensor& k, const Tensor& v) const {
    if (third.defined()) return {q, k, v};
    if (second.defined()) return {q, stack({k, v}, 1), {}};
    return {stack({q, k, v}, 1), {}, {}};
  }
  Projections empty_like_this() const {
    const auto like = [](const Tensor& t) { return t.defined() ? empty(t.shape(), t.options()) : t; };
    return {like(first), like(second), like(third)};
  }

 private:
  static kernels::View part(const Tensor& fused, int64_t index) {
    const int64_t shape[] = {fused.size(0), fused.size(2), fused.size(3)};
    const int64_t strides[] = {fused.strides()[0], fused.strides()[2], fused.strides()[3]};
    char* data = static_cast<char*>(fused.raw_data()) + index * fused.strides()[1] * size_of(fused.dtype());
    return {data, fused.dtype(), 3, shape, strides};
  }
};

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

struct Attention final : TwiceDifferentiable<Attention> {
  static constexpr const char* kName = "attention";
  Saved first_, second_, third_, log_sum_exp_;
  SavedOutput out_;
  SavedLayouts layouts_;
  Call call_;

  /// The first three as in Projections. Result: [query tokens, heads, head_dim].
  Tensor forward(const Tensor& first, const Tensor& second, const Tensor& third, const Tensor& bias, const Call& call) {
    call_ = call;
    layouts_.save(call);
    const Projections in{first, second, third};
    const kernels::View q = in.q();
    const Tensor out = empty({q.shape[0], q.shape[1], q.shape[2]}, first.options());
    const Tensor log_sum_exp = empty_log_sum_exp(call, q.shape[0], q.dtype, first.device());
    const kernels::Stream stream = current_stream(first.device());
    const Workspace workspace(first.device(),
                              [&] { return kernels::attention_forward_workspace(stream, call.params, q.dtype); });
    detail::count_attention_flops(call.params, first.device(), q.shape[0], in.k().shape[0], q.dtype, 2);
    kernels::attention_forward(stream, call.params, q, in.k(), in.v(), out.view(), log_sum_exp.view(),
                               workspace.data());
    first_ = first;
    second_ = second;
    third_ = third;
    log_sum_exp_ = log_sum_exp;
    out_ = out;
    return out;
  }

  Grads backward(const Tensor& gradient) override {
    layouts_.check();
    const Projections in{first_.get(), second_.get_or_none(), third_.get_or_none()};
    const Tensor dout = gradient.contiguous();
    if (grad_enabled()) {
      const auto [q, k, v] = in.separate();
      const detail::AttentionGradients made = detail::attention_gradients(call_, q, k, v, layouts_.bias(), dout);
      const Projections grads = in.joined(made.q, made.k, made.v);
      return {grads.first, grads.second, grads.third, made.bias};
    }
    const Projections grads = in.empty_like_this();
    const Tensor dbias = needs_grad(3) ? empty_bias_gradient(call_, in.first) : Tensor();
    const kernels::Stream stream = current_stream(dout.device());
    const Workspace workspace(
        dout.device(), [&] { return kernels::attention_backward_workspace(stream, call_.params, dout.dtype()); });
    detail::count_attention_flops(call_.params, dout.device(), in.q().shape[0], in.k().shape[0], dout.dtype(), 5);
    kernels::attention_backward(stream, call_.params, in.q(), in.k(), in.v(), out_.get().view(), dout.view(),
                                log_sum_exp_.get().view(), grads.q(), grads.k(), grads.v(), dbias.view(),
                                workspace.data());
    return {grads.first, grads.second, grads.third, dbias};
  }
};

/// A floating mask in PyTorch's convention means the opposite.
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
               int64_t kv_heads, int64_t head_dim) {
  TERN_CHECK(query.sequences() == key.sequences(), "attention: ", query.sequences(), " query sequences and ",
             key.sequences(), " key sequences");
  TERN_CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention: ", heads, " query heads are not a multiple of ",
             kv_heads, " key heads");
  TERN_CHECK(head_dim >= 1 && head_dim <= 256, "attention: head_dim must be 1 to 256, got ", head_dim);
  TERN_CHECK(std::isfinite(options.scale) && options.window >= -1, "attention: scale must be finite and window >= -1");
  const Tensor bias = options.bias.defined() ? options.bias.contiguous() : Tensor();
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

namespace detail {

void count_attention_flops(const kernels::AttentionParams& p, Device device, int64_t queries, int64_t keys, DType dtype,
                           int products) {
  if (!profiling()) return;
  double pairs = 0;
  if (device.is_cpu()) {
    for (int64_t s = 0; s < p.sequences; ++s)
      pairs += visible_pairs(p, p.query_offsets[s + 1] - p.query_offsets[s], p.key_offsets[s + 1] - p.key_offsets[s]);
  } else if (p.sequences > 0) {
    pairs = static_cast<double>(p.sequences) * visible_pairs(p, queries / p.sequences, keys / p.sequences);
  }
  profile_flops(2.0 * products * pairs * static_cast<double>(p.heads * p.head_dim), dtype);
}

AttentionCall self_attention_call(const SequenceLayout& layout, const AttentionOptions& options, int64_t heads,
                                  int64_t head_dim, int64_t tokens, Device device) {
  check_layout("query", layout, tokens, device);
  return make_call(layout, layout, options, heads, heads, head_dim);
}

}  // namespace detail

namespace {
/// The options that a recorded call keeps. Throws Error on dropout.
AttentionOptions without_draws(const AttentionOptions& options) {
  AttentionOptions kept = options;
  detail::draw({.p = options.dropout, .generator = options.generator, .row_keys = {}}, "attention", cpu);
  kept.generator = nullptr;
  return kept;
}
}  // namespace

Tensor attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const SequenceLayout& query_layout,
                 const SequenceLayout& key_layout, const AttentionOptions& options) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "attention", [](const auto&... all) { return attention(all...); }, q_in, k_in, v_in, query_layout,
        key_layout, without_draws(options));
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
  const Call call = make_call(query_layout, key_layout, options, q.size(1), k.size(1), q.size(2));
  return Attention::apply(rows(q), rows(k), rows(v), call.bias, call);
}

Tensor cross_attention(const Tensor& q_in, const Tensor& kv_in, const SequenceLayout& query_layout,
                       const SequenceLayout& key_layout, const AttentionOptions& options) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "cross_attention", [](const auto&... all) { return cross_attention(all...); }, q_in, kv_in, query_layout,
        key_layout, without_draws(options));
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
  const Call call = make_call(query_layout, key_layout, options, q.size(1), kv.size(2), q.size(2));
  return Attention::apply(q.contiguous(), kv.contiguous(), Tensor(), call.bias, call)
      .reshape({q.size(0), q.size(1) * q.size(2)});
}

Tensor self_attention(const Tensor& qkv_in, const SequenceLayout& layout, const AttentionOptions& options) {
  if (detail::TraceSink* const sink = detail::active_trace())
    return detail::record_call(
        *sink, "self_attention", [](const auto&... all) { return self_attention(all...); }, qkv_in, layout,
        without_draws(options));
  Tensor qkv = qkv_in;
  detail::check_one_device("attention", {&qkv, &options.bias});
  detail::autocast_inputs("attention", {&qkv});
  TERN_CHECK(qkv.dim() == 4 && qkv.size(1) == 3 && is_floating(qkv.dtype()),
             "attention: qkv must be a floating tensor [tokens, 3, heads, head_dim], got ", qkv.describe());
  const Call call = detail::self_attention_call(layout, options, qkv.size(2), qkv.size(3), qkv.size(0), qkv.device());
  return Attention::apply(qkv.contiguous(), Tensor(), Tensor(), call.bias, call)
      .reshape({qkv.size(0), qkv.size(2) * qkv.size(3)});
}

SequenceLayout padded_layout(int64_t batch, int64_t length, const Tensor& key_mask, Device device) {
  TERN_CHECK(batch >= 0 && batch <= INT32_MAX && length >= 0 && (length == 0 || batch <= INT32_MAX / length),
             "padded_layout: ", batch, " sequences of ", length, " tokens do not fit 32-bit offsets");
  SequenceLayout layout;
  // Made on the device, since a captured step cannot copy from the host.
  const TensorOptions offsets{.dtype = DType::kInt32, .device = device};
  layout.offsets = length == 0
                       ? zeros({batch + 1}, offsets)
                       : arange(0, static_cast<double>((batch + 1) * length), static_cast<double>(length), offsets);
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
    TERN_CHECK(length <= INT32_MAX - total, "packed_layout: the tokens do not fit 32-bit offsets");
    total += length;
    longest = std::max(longest, length);
    offsets.push_back(static_cast<int32_t>(total));
  }
  SequenceLayout layout;
  layout.offsets = from_vector(offsets, {static_cast<int64_t>(offsets.size())}).to(device);
  layout.max_length = longest;
  layout.tokens = total;
  return layout;
}

Tensor sequence_positions(const SequenceLayout& layout, int64_t tokens) {
  const NoGrad off;
  const Tensor offsets = layout.offsets.to(DType::kInt64);
  const Tensor token = arange(0, static_cast<double>(tokens), 1, offsets.options());
  return token - index_select(offsets, 0, searchsorted(offsets, token, true) - 1.0);
}

}  // namespace tern
