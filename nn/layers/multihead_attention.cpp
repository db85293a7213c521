#include "tern/nn/layers/multihead_attention.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

int64_t divided_width(int64_t embed, int64_t heads) {
  TERN_CHECK(embed > 0 && heads > 0 && embed % heads == 0,
             "nn::MultiheadAttention: embed must be a positive multiple of heads, got embed ", embed, " and ", heads,
             " heads");
  return embed;
}

/// A mask as what is added to the scores.
Tensor additive(const char* name, const Tensor& mask, DType dtype) {
  TERN_CHECK(mask.dtype() == DType::kBool || is_floating(mask.dtype()), "nn::MultiheadAttention: ", name,
             " must be bool or floating, got ", mask.dtype());
  if (mask.dtype() != DType::kBool) return mask.to(dtype);
  return masked_fill(zeros(mask.shape(), {dtype, mask.device()}), mask, -INFINITY);
}

}  // namespace

MultiheadAttention::MultiheadAttention(const Scope& s, int64_t embed, int64_t heads,
                                       const MultiheadAttentionOptions& options)
    : Module(s),
      embed_(divided_width(embed, heads)),
      heads_(heads),
      dropout_(options.dropout),
      batch_first_(options.batch_first),
      out_proj_(sub("out_proj"), embed, embed, {.bias = options.bias, .bias_init = init::zeros()}) {
  TERN_CHECK(dropout_ >= 0 && dropout_ <= 1, "nn::MultiheadAttention: dropout must be in [0, 1], got ", dropout_);
  const int64_t kdim = options.kdim < 0 ? embed : options.kdim, vdim = options.vdim < 0 ? embed : options.vdim;
  if (kdim == embed && vdim == embed) {
    in_proj_weight_.emplace(this, "in_proj_weight", Shape{3 * embed, embed}, init::xavier_uniform());
  } else {
    q_proj_weight_.emplace(this, "q_proj_weight", Shape{embed, embed}, init::xavier_uniform());
    k_proj_weight_.emplace(this, "k_proj_weight", Shape{embed, kdim}, init::xavier_uniform());
    v_proj_weight_.emplace(this, "v_proj_weight", Shape{embed, vdim}, init::xavier_uniform());
  }
  if (options.bias) in_proj_bias_.emplace(this, "in_proj_bias", Shape{3 * embed});
}

MultiheadAttention::Heads MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                      const Tensor& value) const {
  const auto heads = [&](const Tensor& x) { return x.reshape({x.size(0), x.size(1), heads_, embed_ / heads_}); };
  if (in_proj_weight_ && same(query, key) && same(key, value)) {
    const Tensor bias = in_proj_bias_ ? in_proj_bias_->tensor() : Tensor();
    const std::vector<Tensor> parts = linear(query, *in_proj_weight_, bias).chunk(3, -1);
    return {heads(parts[0]), heads(parts[1]), heads(parts[2])};
  }
  const auto projected = [&](const Tensor& x, int64_t part, const std::optional<Parameter>& own) {
    const auto rows = [&](const Tensor& t) { return t.slice(0, part * embed_, (part + 1) * embed_); };
    const Tensor weight = own ? own->tensor() : rows(*in_proj_weight_);
    TERN_CHECK(x.size(-1) == weight.size(1), "nn::MultiheadAttention: ",
               part == 0   ? "query"
               : part == 1 ? "key"
                           : "value",
               " must have the width ", weight.size(1), ", got ", x.shape());
    return heads(linear(x, weight, in_proj_bias_ ? rows(*in_proj_bias_) : Tensor()));
  };
  return {projected(query, 0, q_proj_weight_), projected(key, 1, k_proj_weight_), projected(value, 2, v_proj_weight_)};
}

/// [batch or 1, heads or 1, queries or 1, keys], or undefined without masks.
Tensor MultiheadAttention::score_bias(const MultiheadAttentionMasks& masks, const Heads& in) const {
  const int64_t batch = in.q.size(0), queries = in.q.size(1), keys = in.k.size(1);
  Tensor bias;
  if (masks.attn_mask.defined()) {
    const Shape& shape = masks.attn_mask.shape();
    TERN_CHECK(shape == Shape({queries, keys}) || shape == Shape({batch * heads_, queries, keys}),
               "nn::MultiheadAttention: attn_mask must be [", queries, ", ", keys, "] or [", batch * heads_, ", ",
               queries, ", ", keys, "], got ", shape);
    const Tensor mask = additive("attn_mask", masks.attn_mask, in.q.dtype());
    bias = shape.dims() == 2 ? mask.reshape({1, 1, queries, keys}) : mask.reshape({batch, heads_, queries, keys});
  }
  if (masks.key_padding_mask.defined()) {
    TERN_CHECK(masks.key_padding_mask.shape() == Shape({batch, keys}),
               "nn::MultiheadAttention: key_padding_mask must be [", batch, ", ", keys, "], got ",
               masks.key_padding_mask.shape());
    const Tensor mask = additive("key_padding_mask", masks.key_padding_mask, in.q.dtype());
    const Tensor added = mask.reshape({batch, 1, 1, keys});
    bias = bias.defined() ? bias + added : added.expand({batch, 1, queries, keys});
  }
  return bias;
}

AttentionOutput MultiheadAttention::batched(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const MultiheadAttentionMasks& masks, AttentionWeights weights) const {
  const int64_t batch = query.size(0), queries = query.size(1), keys = key.size(1), size = embed_ / heads_;
  const Heads in = project(query, key, value);
  const Tensor bias = score_bias(masks, in);
  const double p = is_training() ? dropout_ : 0;
  if (weights == AttentionWeights::kNone) {
    const auto rows = [&](const Tensor& x) { return x.reshape({-1, heads_, size}); };
    const Tensor y = attention(rows(in.q), rows(in.k), rows(in.v), padded_layout(batch, queries, {}, query.device()),
                               padded_layout(batch, keys, {}, query.device()),
                               {.dropout = p, .generator = &generator(), .bias = bias});
    return {out_proj_.forward(y.reshape({batch, queries, embed_})), {}};
  }
  const auto head_first = [](const Tensor& x) { return x.transpose(1, 2); };
  Tensor scores = matmul(head_first(in.q) / std::sqrt(static_cast<double>(size)), head_first(in.k).t());
  if (bias.defined()) scores = scores + bias;
  Tensor shares = softmax(scores);
  if (p > 0) shares = dropout(shares, {.p = p, .generator = &generator()});
  const Tensor y = matmul(shares, head_first(in.v)).transpose(1, 2).reshape({batch, queries, embed_});
  return {out_proj_.forward(y), weights == AttentionWeights::kAverage ? mean(shares, {1}) : shares};
}

AttentionOutput MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const MultiheadAttentionMasks& masks, AttentionWeights weights) const {
  AttentionOutput found;
  const Tensor output = hooked(query, [&](const Tensor& first) {
    const ProfileRange range(name());
    const bool has_batch = first.dim() == 3;
    TERN_CHECK((has_batch || first.dim() == 2) && key.dim() == first.dim() && value.dim() == first.dim(),
               "nn::MultiheadAttention: query, key and value must all have 3 dimensions, or 2 without a batch, got ",
               first.shape(), ", ", key.shape(), " and ", value.shape());
    const bool is_self = same(query, key) && same(query, value) && same(query, first);
    const auto in_order = [&](const Tensor& x) {
      return !has_batch ? x.unsqueeze(0) : batch_first_ ? x : x.transpose(0, 1);
    };
    const Tensor q = in_order(first), k = is_self ? q : in_order(key), v = is_self ? q : in_order(value);
    TERN_CHECK(k.size(0) == q.size(0) && v.size(0) == q.size(0) && v.size(1) == k.size(1) && q.size(2) == embed_,
               "nn::MultiheadAttention: expected a query of width ", embed_,
               ", one batch size, and as many values as keys, got ", first.shape(), ", ", key.shape(), " and ",
               value.shape());
    MultiheadAttentionMasks given = masks;
    if (!has_batch && given.key_padding_mask.defined()) given.key_padding_mask = given.key_padding_mask.unsqueeze(0);
    found = batched(q, k, v, given, weights);
    if (!has_batch && found.weights.defined()) found.weights = found.weights.select(0, 0);
    return !has_batch ? found.output.select(0, 0) : batch_first_ ? found.output : found.output.transpose(0, 1);
  });
  return {output, found.weights};
}

Tensor generate_square_subsequent_mask(int64_t length, Device device) {
  TERN_CHECK(length >= 0, "nn::generate_square_subsequent_mask: length must be >= 0, got ", length);
  const Tensor place = arange(0, static_cast<double>(length), 1, {.dtype = DType::kInt64, .device = device});
  return masked_fill(zeros({length, length}, {.device = device}), place.unsqueeze(0) > place.unsqueeze(1), -INFINITY);
}

}  // namespace tern::nn
