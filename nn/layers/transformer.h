#pragma once
// The encoder and decoder of torch.nn, with its arguments and parameter names (Vaswani et al., arXiv:1706.03762).

#include <functional>
#include <optional>

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/nn/layers/containers.h"
#include "tern/nn/layers/dropout.h"
#include "tern/nn/layers/layer_norm.h"
#include "tern/nn/layers/multihead_attention.h"

namespace tern::nn {

struct TransformerLayerOptions {
  int64_t feedforward = 2048;  // width between the two linear layers
  double dropout = 0.1;
  std::function<Tensor(const Tensor&)> activation = tern::relu;
  double eps = 1e-5;  // of the norms
  bool batch_first = false;
  bool norm_first = false;  // norms before the sub-layers instead of after their residual sums
};

/// self-attention and feed forward. src: [length, batch, width], with batch_first [batch, length, width], or [length,
/// width]; result the same.
class TransformerEncoderLayer final : public Module {
 public:
  TransformerEncoderLayer(const Scope& s, int64_t width, int64_t heads, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& src, const MultiheadAttentionMasks& masks = {}) const;

 private:
  std::function<Tensor(const Tensor&)> activation_;
  bool norm_first_;
  MultiheadAttention self_attn_;
  Linear linear1_;
  Dropout dropout_;
  Linear linear2_;
  LayerNorm norm1_, norm2_;
  Dropout dropout1_, dropout2_;
};

/// self-attention, attention to `memory`, feed forward. tgt as src of the encoder, memory: what the encoder returns.
class TransformerDecoderLayer final : public Module {
 public:
  TransformerDecoderLayer(const Scope& s, int64_t width, int64_t heads, const TransformerLayerOptions& options = {});
  /// masks: of the self-attention; memory_masks: of the attention to memory.
  Tensor forward(const Tensor& tgt, const Tensor& memory, const MultiheadAttentionMasks& masks = {},
                 const MultiheadAttentionMasks& memory_masks = {}) const;

 private:
  std::function<Tensor(const Tensor&)> activation_;
  bool norm_first_;
  MultiheadAttention self_attn_, multihead_attn_;
  Linear linear1_;
  Dropout dropout_;
  Linear linear2_;
  LayerNorm norm1_, norm2_, norm3_;
  Dropout dropout1_, dropout2_, dropout3_;
};

/// A number of layers, "layers.0", ..., and with final_norm a norm after them. Unlike in PyTorch, whose layers are
/// copies of one, each layer has its own initial values.
class TransformerEncoder final : public Module {
 public:
  TransformerEncoder(const Scope& s, int64_t layers, int64_t width, int64_t heads,
                     const TransformerLayerOptions& options = {}, bool final_norm = false);
  Tensor forward(const Tensor& src, const MultiheadAttentionMasks& masks = {}) const;

 private:
  ModuleList<TransformerEncoderLayer> layers_;
  std::optional<LayerNorm> norm_;
};

class TransformerDecoder final : public Module {
 public:
  TransformerDecoder(const Scope& s, int64_t layers, int64_t width, int64_t heads,
                     const TransformerLayerOptions& options = {}, bool final_norm = false);
  Tensor forward(const Tensor& tgt, const Tensor& memory, const MultiheadAttentionMasks& masks = {},
                 const MultiheadAttentionMasks& memory_masks = {}) const;

 private:
  ModuleList<TransformerDecoderLayer> layers_;
  std::optional<LayerNorm> norm_;
};

}  // namespace tern::nn
