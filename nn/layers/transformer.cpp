#include "tern/nn/layers/transformer.h"

#include "tern/core/profiler/profiler.h"

namespace tern::nn {
namespace {

MultiheadAttentionOptions attention_of(const TransformerLayerOptions& options) {
  return {.dropout = options.dropout, .batch_first = options.batch_first};
}

/// The stream x after a sub-layer: norm(x + dropout(sublayer(x))), or with norm_first x + dropout(sublayer(norm(x))).
template <class Sublayer>
Tensor after_sublayer(const Tensor& x, bool norm_first, const LayerNorm& norm, const Dropout& dropout,
                      const Sublayer& sublayer) {
  if (norm_first) return x + dropout.forward(sublayer(norm.forward(x)));
  if (dropout.has_hooks()) return norm.forward(x + dropout.forward(sublayer(x)));
  return norm.forward(sublayer(x), x, dropout.options());
}

Tensor attended(const MultiheadAttention& attention, const Tensor& x, const Tensor& memory,
                const MultiheadAttentionMasks& masks) {
  return attention.forward(x, memory, memory, masks, AttentionWeights::kNone).output;
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const Scope& s, int64_t width, int64_t heads,
                                                 const TransformerLayerOptions& options)
    : Module(s),
      activation_(options.activation),
      norm_first_(options.norm_first),
      self_attn_(sub("self_attn"), width, heads, attention_of(options)),
      linear1_(sub("linear1"), width, options.feedforward),
      dropout_(sub("dropout"), options.dropout),
      linear2_(sub("linear2"), options.feedforward, width),
      norm1_(sub("norm1"), width, {.eps = options.eps}),
      norm2_(sub("norm2"), width, {.eps = options.eps}),
      dropout1_(sub("dropout1"), options.dropout),
      dropout2_(sub("dropout2"), options.dropout) {
  TERN_CHECK(activation_ != nullptr, "nn::TransformerEncoderLayer: activation is an empty function");
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const MultiheadAttentionMasks& masks) const {
  const ProfileRange range(name());
  return hooked(src, [&](const Tensor& x) {
    const Tensor y = after_sublayer(x, norm_first_, norm1_, dropout1_,
                                    [&](const Tensor& in) { return attended(self_attn_, in, in, masks); });
    return after_sublayer(y, norm_first_, norm2_, dropout2_, [&](const Tensor& in) {
      return linear2_.forward(dropout_.forward(activation_(linear1_.forward(in))));
    });
  });
}

TransformerDecoderLayer::TransformerDecoderLayer(const Scope& s, int64_t width, int64_t heads,
                                                 const TransformerLayerOptions& options)
    : Module(s),
      activation_(options.activation),
      norm_first_(options.norm_first),
      self_attn_(sub("self_attn"), width, heads, attention_of(options)),
      multihead_attn_(sub("multihead_attn"), width, heads, attention_of(options)),
      linear1_(sub("linear1"), width, options.feedforward),
      dropout_(sub("dropout"), options.dropout),
      linear2_(sub("linear2"), options.feedforward, width),
      norm1_(sub("norm1"), width, {.eps = options.eps}),
      norm2_(sub("norm2"), width, {.eps = options.eps}),
      norm3_(sub("norm3"), width, {.eps = options.eps}),
      dropout1_(sub("dropout1"), options.dropout),
      dropout2_(sub("dropout2"), options.dropout),
      dropout3_(sub("dropout3"), options.dropout) {
  TERN_CHECK(activation_ != nullptr, "nn::TransformerDecoderLayer: activation is an empty function");
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory, const MultiheadAttentionMasks& masks,
                                        const MultiheadAttentionMasks& memory_masks) const {
  const ProfileRange range(name());
  return hooked(tgt, [&](const Tensor& x) {
    Tensor y = after_sublayer(x, norm_first_, norm1_, dropout1_,
                              [&](const Tensor& in) { return attended(self_attn_, in, in, masks); });
    y = after_sublayer(y, norm_first_, norm2_, dropout2_,
                       [&](const Tensor& in) { return attended(multihead_attn_, in, memory, memory_masks); });
    return after_sublayer(y, norm_first_, norm3_, dropout3_, [&](const Tensor& in) {
      return linear2_.forward(dropout_.forward(activation_(linear1_.forward(in))));
    });
  });
}

TransformerEncoder::TransformerEncoder(const Scope& s, int64_t layers, int64_t width, int64_t heads,
                                       const TransformerLayerOptions& options, bool final_norm)
    : Module(s), layers_(sub("layers"), layers, width, heads, options) {
  if (final_norm) norm_.emplace(sub("norm"), width, LayerNormOptions{.eps = options.eps});
}

Tensor TransformerEncoder::forward(const Tensor& src, const MultiheadAttentionMasks& masks) const {
  const ProfileRange range(name());
  return hooked(src, [&](const Tensor& x) {
    Tensor y = x;
    for (const TransformerEncoderLayer& layer : layers_) y = layer.forward(y, masks);
    return norm_ ? norm_->forward(y) : y;
  });
}

TransformerDecoder::TransformerDecoder(const Scope& s, int64_t layers, int64_t width, int64_t heads,
                                       const TransformerLayerOptions& options, bool final_norm)
    : Module(s), layers_(sub("layers"), layers, width, heads, options) {
  if (final_norm) norm_.emplace(sub("norm"), width, LayerNormOptions{.eps = options.eps});
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const MultiheadAttentionMasks& masks,
                                   const MultiheadAttentionMasks& memory_masks) const {
  const ProfileRange range(name());
  return hooked(tgt, [&](const Tensor& x) {
    Tensor y = x;
    for (const TransformerDecoderLayer& layer : layers_) y = layer.forward(y, memory, masks, memory_masks);
    return norm_ ? norm_->forward(y) : y;
  });
}

}  // namespace tern::nn
