#pragma once
// The transformer encoder that the reference models stand on (Vaswani et al., arXiv:1706.03762; the order of BERT,
// Devlin et al., arXiv:1810.04805: the norm follows each residual sum). Its own parameter layout is the fast one:
// query, key and value are one projection.

#include "tern/models/encoder/input.h"
#include "tern/nn/nn.h"

namespace tern::models {

struct EncoderOptions {
  int64_t width = 768;
  int64_t heads = 12;
  int64_t hidden = 3072;  // of the feed-forward part
  int64_t layers = 6;
  Activation activation = Activation::kGelu;
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double norm_eps = 1e-12;
  double initializer_range = 0.02;
};

/// Self-attention and feed-forward, each with a residual connection and a norm.
class EncoderLayer final : public nn::Module {
 public:
  EncoderLayer(const nn::Scope& s, const EncoderOptions& options);

  /// x: [rows, width] -> the same.
  Tensor forward(const Tensor& x, const SequenceLayout& layout) const;
  /// Only the rows of each sequence's first token: [sequences, width]. Equal to those rows of forward(), at a fraction
  /// of the work: keys and values of all rows, everything else of the first rows alone.
  Tensor forward_first(const Tensor& x, const EncoderInput& input) const;

  /// The two terms of the last residual sum, and the keys of their rows (undefined without).
  struct Residual {
    Tensor branch, x, row_keys;
  };
  /// forward() and forward_first() without their end, and that end: dropout, sum and norm.
  Residual blocks(const Tensor& x, const SequenceLayout& layout) const;
  Residual blocks_first(const Tensor& x, const EncoderInput& input) const;
  Tensor add_and_norm(const Residual& residual) const;

 private:
  Residual feed_forward(const Tensor& x, const Tensor& row_keys) const;
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

  /// Runs each stretch of this many layers as one checkpoint(): between forward and backward only the inputs of the
  /// stretches are kept, and what the last norm of each needs: with that, the stretch's last product, a third of a
  /// layer's work, need not be repeated. 0: keep everything (the default).
  void set_recompute(int64_t layers);

 private:
  Tensor run(const Tensor& x, const EncoderInput& input, bool first_rows) const;
  /// Layers begin to end without the last one's add_and_norm().
  EncoderLayer::Residual run_layers(int64_t begin, int64_t end, const Tensor& x, const EncoderInput& input,
                                    bool first_rows) const;

  nn::ModuleList<EncoderLayer> layer_;
  int64_t recompute_ = 0;
};

}  // namespace tern::models
