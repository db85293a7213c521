#pragma once
// The transformer encoder that the reference models stand on (Vaswani et al., arXiv:1706.03762), in both orders: the
// norm follows each residual sum (BERT, Devlin et al., arXiv:1810.04805), or begins each sub-layer (ViT, Dosovitskiy et
// al., arXiv:2010.11929). Its own parameter layout is the fast one: query, key and value are one projection.

#include <optional>

#include "tern/data/samples/token_batch.h"
#include "tern/models/encoder/residual_stream.h"
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

/// Weights from a normal distribution around 0, biases 0.
nn::LinearOptions normal_linear(double deviation);

/// Self-attention and feed-forward, each with a residual connection and a norm.
class EncoderLayer final : public nn::Module {
 public:
  EncoderLayer(const nn::Scope& s, const EncoderOptions& options);

  void forward(ResidualStream& x, const SequenceLayout& layout) const;
  /// The same for the rows of each sequence's first token, which are then the stream: [sequences, width]. Equal to
  /// those rows after forward(), at a fraction of the work: keys and values of all rows, everything else of the first
  /// rows alone.
  void forward_first(ResidualStream& x, const data::TokenInput& input) const;
  /// The attention's probabilities without dropout for sequences of one length, [sequences, heads, length, length].
  Tensor attention_map(ResidualStream& x, const SequenceLayout& layout) const;

 private:
  // A sub-layer is x + f(norm(x)) with norm_first, otherwise norm(x + f(x)): what f reads, and what follows the sum.
  Tensor begin(ResidualStream& x, const nn::LayerNorm& norm) const;
  void end(ResidualStream& x, const nn::LayerNorm& norm) const;
  /// The residual sums' dropout.
  DropoutOptions dropout(const Tensor& row_keys) const;
  DropoutOptions attention_output_dropout(const Tensor& row_keys) const;

  EncoderOptions options_;
  nn::PackedAttention attention_;
  nn::LayerNorm attention_norm_;
  nn::FeedForward feed_forward_;
  nn::LayerNorm output_norm_;
};

class Encoder final : public nn::Module {
 public:
  Encoder(const nn::Scope& s, const EncoderOptions& options);

  /// x: [rows, width] -> [rows, width], the last hidden state.
  Tensor forward(const Tensor& x, const data::TokenInput& input) const;
  /// [sequences, width]: the last hidden state of each sequence's first token, the one that classifiers read.
  Tensor forward_first(const Tensor& x, const data::TokenInput& input) const;
  /// The attention's probabilities in every layer, for sequences of one length without padding: [sequences, heads,
  /// length, length] each.
  std::vector<Tensor> attention_maps(const Tensor& x, const data::TokenInput& input) const;

  /// Computes each group of this many layers as one checkpoint(): between forward and backward only the residual stream
  /// before each group is kept. 0: keep everything (the default).
  void set_recompute(int64_t layers);

 private:
  Tensor run(const Tensor& x, const data::TokenInput& input, bool first_rows) const;
  void run_layer(int64_t i, ResidualStream& x, const data::TokenInput& input, bool first_rows) const;
  /// Layers begin to end as one checkpoint().
  void run_again_in_backward(int64_t begin, int64_t end, ResidualStream& x, const data::TokenInput& input,
                             bool first_rows) const;

  nn::ModuleList<EncoderLayer> layer_;
  std::optional<nn::LayerNorm> norm_;
  int64_t recompute_ = 0;
};

/// Floating-point operations of one forward pass of such an encoder over sequences of these lengths, and of a head of
/// linear layers [width, width] and [width, labels] on each sequence.
double encoder_flops(const EncoderOptions& encoder, const std::vector<int64_t>& lengths, int64_t labels);

}  // namespace tern::models
