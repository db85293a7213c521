#pragma once
// The transformer encoder that the reference models stand on (Vaswani et al., arXiv:1706.03762), in both orders: the
// norm follows each residual sum (BERT, Devlin et al., arXiv:1810.04805), or begins each sub-layer (ViT, Dosovitskiy et
// al., arXiv:2010.11929). Its own parameter layout is the fast one: query, key and value are one projection.

#include <optional>

#include "tern/models/encoder/input.h"
#include "tern/nn/nn.h"

namespace tern::models {

struct EncoderOptions {
  int64_t width = 768;
  int64_t heads = 12;
  int64_t hidden = 3072;  // of the feed-forward part
  int64_t layers = 6;
  Activation activation = Activation::kGelu;
  double dropout = 0.1;                  // before each residual sum
  double attention_dropout = 0.1;        // of the probabilities
  bool attention_output_dropout = true;  // false: no dropout before the sum after attention (DistilBERT)
  double norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool qkv_bias = true;
  bool norm_first = false;  // each sub-layer begins with its norm, x + f(norm(x)), instead of norm(x + f(x))
  bool final_norm = true;   // with norm_first: of what the last layer leaves
};

/// Self-attention and feed-forward, each with a residual connection and a norm. The sum that ends a layer and the norm
/// that follows it are one pass over memory whichever layer the norm belongs to, so a layer stops short of them.
class EncoderLayer final : public nn::Module {
 public:
  EncoderLayer(const nn::Scope& s, const EncoderOptions& options);

  /// What a layer reads: the residual stream and what its attention takes, the stream's norm with norm_first,
  /// otherwise the stream itself. Both [rows, width].
  struct State {
    Tensor x, input;
  };
  /// The two terms of the last residual sum, and the keys of their rows (undefined without).
  struct Residual {
    Tensor branch, x, row_keys;
  };
  Residual forward(const State& state, const SequenceLayout& layout) const;
  /// The same and `next`, the norm that follows: what the next layer reads.
  State forward(const State& state, const SequenceLayout& layout, const nn::LayerNorm& next) const;
  /// Only the rows of each sequence's first token: [sequences, width]. Equal to those rows of forward(), at a fraction
  /// of the work: keys and values of all rows, everything else of the first rows alone.
  Residual forward_first(const State& state, const EncoderInput& input) const;
  /// Of sequences of one length each: the attention's probabilities without dropout, [sequences, heads, length,
  /// length].
  Tensor attention_map(const State& state, const SequenceLayout& layout) const;

  /// Dropout of the last sum, and the norms that may follow it.
  DropoutOptions output_dropout(const Tensor& row_keys) const;
  const nn::LayerNorm& attention_norm() const { return attention_norm_; }
  const nn::LayerNorm& output_norm() const { return output_norm_; }

 private:
  Tensor attend(const State& state, const SequenceLayout& layout) const;
  /// From the attention's result and the stream beside it: what the feed-forward part adds to, and what it reads.
  SumAndNorm end_attention(const Tensor& attended, const Tensor& x, const Tensor& row_keys) const;
  Residual feed_forward(const SumAndNorm& middle, const Tensor& row_keys) const;
  double attention_dropout() const { return is_training() ? options_.attention_dropout : 0; }

  EncoderOptions options_;
  nn::Linear qkv_, out_;
  nn::LayerNorm attention_norm_;
  nn::Linear lin1_, lin2_;
  nn::LayerNorm output_norm_;
};

class Encoder final : public nn::Module {
 public:
  Encoder(const nn::Scope& s, const EncoderOptions& options);

  /// x: [rows, width] -> [rows, width], the last hidden state.
  Tensor forward(const Tensor& x, const EncoderInput& input) const;
  /// [sequences, width]: the last hidden state of each sequence's first token, the one that classifiers read.
  Tensor forward_first(const Tensor& x, const EncoderInput& input) const;
  /// The attention's probabilities in every layer, for sequences of one length without padding: [sequences, heads,
  /// length, length] each.
  std::vector<Tensor> attention_maps(const Tensor& x, const EncoderInput& input) const;

  /// Runs each stretch of this many layers as one checkpoint(): between forward and backward only the inputs of the
  /// stretches are kept, and what the norm after each needs: with that, the stretch's last product, a third of a
  /// layer's work, need not be repeated. 0: keep everything (the default).
  void set_recompute(int64_t layers);

 private:
  Tensor run(const Tensor& x, const EncoderInput& input, bool first_rows) const;
  /// What layer 0 reads.
  EncoderLayer::State begin(const Tensor& x) const;
  /// What layer i reads after layer i - 1 has left `residual`; i = layers: the encoder's result, in both places.
  EncoderLayer::State boundary(int64_t i, const EncoderLayer::Residual& residual) const;
  /// The norm between layer i and the next.
  const nn::LayerNorm& norm_after(int64_t i) const;
  /// Layers begin to end without the boundary after the last.
  EncoderLayer::Residual run_layers(int64_t begin, int64_t end, EncoderLayer::State state, const EncoderInput& input,
                                    bool first_rows) const;

  bool norm_first_;
  nn::ModuleList<EncoderLayer> layer_;
  std::optional<nn::LayerNorm> norm_;
  int64_t recompute_ = 0;
};

}  // namespace tern::models
