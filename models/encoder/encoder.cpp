#include "tern/models/encoder/encoder.h"

#include <algorithm>
#include <memory>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"

namespace tern::models {
namespace {

nn::PackedAttentionOptions attention_options(const EncoderOptions& options) {
  return {.qkv_bias = options.qkv_bias,
          .dropout = options.attention_dropout,
          .weight_init = nn::init::normal(0, options.initializer_range)};
}

/// Rows of x by int64 index; undefined stays undefined.
Tensor rows_of(const Tensor& x, const Tensor& rows) {
  return x.defined() ? index_select(x.reshape({x.size(0), -1}), 0, rows) : Tensor();
}

/// The layout in which each sequence has one query row; an empty sequence has none but keeps its place, so
/// its row sees no key and gives 0.
SequenceLayout first_row_layout(const data::TokenInput& input) {
  const int64_t n = input.sequences();
  SequenceLayout layout;
  layout.offsets =
      arange(0, static_cast<double>(n + 1), 1, {.dtype = DType::kInt32, .device = input.layout.offsets.device()});
  layout.max_length = 1;
  layout.tokens = n;
  if (input.layout.row_keys.defined()) layout.row_keys = rows_of(input.layout.row_keys, input.first_rows).reshape({n});
  return layout;
}

}  // namespace

nn::LinearOptions normal_linear(double deviation) {
  nn::LinearOptions options;
  options.weight_init = nn::init::normal(0, deviation);
  options.bias_init = nn::init::zeros();
  return options;
}

EncoderLayer::EncoderLayer(const nn::Scope& s, const EncoderOptions& options)
    : Module(s),
      options_(options),
      attention_(sub("attention"), options.width, options.heads, attention_options(options)),
      attention_norm_(sub("attention_norm"), options.width, {.eps = options.norm_eps}),
      feed_forward_(sub("feed_forward"), options.width, options.hidden,
                    {.activation = options.activation, .linear = normal_linear(options.initializer_range)}),
      output_norm_(sub("output_norm"), options.width, {.eps = options.norm_eps}) {}

void EncoderLayer::forward(ResidualStream& x, const SequenceLayout& layout) const {
  const ProfileRange range(name());
  x.add(attention_.chain(begin(x, attention_norm_), layout), attention_output_dropout(layout.row_keys));
  end(x, attention_norm_);
  x.add(feed_forward_.chain(begin(x, output_norm_)), dropout(layout.row_keys));
  end(x, output_norm_);
}

void EncoderLayer::forward_first(ResidualStream& x, const data::TokenInput& input) const {
  const ProfileRange range(name());
  const SequenceLayout layout = first_row_layout(input);
  const Tensor all = begin(x, attention_norm_);
  x = ResidualStream(rows_of(x.value(), input.first_rows));
  x.add(attention_.chain(rows_of(all, input.first_rows), layout, all, input.layout),
        attention_output_dropout(layout.row_keys));
  end(x, attention_norm_);
  x.add(feed_forward_.chain(begin(x, output_norm_)), dropout(layout.row_keys));
  end(x, output_norm_);
}

Tensor EncoderLayer::attention_map(ResidualStream& x, const SequenceLayout& layout) const {
  return attention_.probabilities(begin(x, attention_norm_), layout);
}

Tensor EncoderLayer::begin(ResidualStream& x, const nn::LayerNorm& norm) const {
  return options_.norm_first ? x.norm(norm) : x.value();
}

void EncoderLayer::end(ResidualStream& x, const nn::LayerNorm& norm) const {
  if (!options_.norm_first) x.normalize(norm);
}

DropoutOptions EncoderLayer::dropout(const Tensor& row_keys) const {
  return {.p = is_training() ? options_.dropout : 0, .generator = &generator(), .row_keys = row_keys};
}

DropoutOptions EncoderLayer::attention_output_dropout(const Tensor& row_keys) const {
  DropoutOptions options = dropout(row_keys);
  if (!options_.attention_output_dropout) options.p = 0;
  return options;
}

Encoder::Encoder(const nn::Scope& s, const EncoderOptions& options)
    : Module(s), layer_(sub("layer"), options.layers, options) {
  if (options.norm_first && options.final_norm)
    norm_.emplace(sub("norm"), options.width, nn::LayerNormOptions{.eps = options.norm_eps});
}

Tensor Encoder::forward(const Tensor& x, const data::TokenInput& input) const { return run(x, input, false); }

Tensor Encoder::forward_first(const Tensor& x, const data::TokenInput& input) const { return run(x, input, true); }

std::vector<Tensor> Encoder::attention_maps(const Tensor& x, const data::TokenInput& input) const {
  std::vector<Tensor> maps;
  ResidualStream stream(x);
  for (const EncoderLayer& layer : layer_) {
    stream = ResidualStream(stream.value());
    maps.push_back(layer.attention_map(stream, input.layout));
    layer.forward(stream, input.layout);
  }
  return maps;
}

void Encoder::set_recompute(int64_t layers) {
  TERN_CHECK(layers >= 0, "set_recompute: expected 0 or more layers, got ", layers);
  recompute_ = layers;
}

Tensor Encoder::run(const Tensor& x, const data::TokenInput& input, bool first_rows) const {
  const int64_t layers = layer_.size();
  // Under autocast all activations have 16 bits, also what passes by the products: cast once instead of in every layer.
  ResidualStream stream(autocast_enabled(x.device()) && x.dtype() == float32 ? x.to(autocast_active_dtype(x.device()))
                                                                             : x);
  const int64_t group = recompute_ > 0 ? recompute_ : 1;
  for (int64_t first = 0; first < layers; first += group) {
    if (recompute_ > 0)
      run_again_in_backward(first, std::min(first + group, layers), stream, input, first_rows);
    else
      run_layer(first, stream, input, first_rows);
  }
  const Tensor result = norm_ ? stream.norm(*norm_) : stream.value();
  return first_rows && layers == 0 ? rows_of(result, input.first_rows) : result;
}

void Encoder::run_layer(int64_t i, ResidualStream& x, const data::TokenInput& input, bool first_rows) const {
  if (first_rows && i + 1 == layer_.size())
    layer_[i].forward_first(x, input);
  else
    layer_[i].forward(x, input.layout);
}

void Encoder::run_again_in_backward(int64_t begin, int64_t end, ResidualStream& x, const data::TokenInput& input,
                                    bool first_rows) const {
  const ResidualStream::Parts before = x.parts();
  const auto after = std::make_shared<ResidualStream::Parts>();
  const auto group = [=, this](const Tensor& value, const Tensor& branch) {
    ResidualStream stream({value, branch, before.dropout, before.norm});
    for (int64_t i = begin; i < end; ++i) run_layer(i, stream, input, first_rows);
    const ResidualStream::Parts parts = stream.parts();
    after->dropout = parts.dropout;
    after->norm = parts.norm;
    return std::vector<Tensor>{parts.value, parts.branch};
  };
  const std::vector<Tensor> result = checkpoint(group, before.value, before.branch);
  x = ResidualStream({result[0], result[1], after->dropout, after->norm});
}

double encoder_flops(const EncoderOptions& encoder, const std::vector<int64_t>& lengths, int64_t labels) {
  const double d = static_cast<double>(encoder.width), h = static_cast<double>(encoder.hidden);
  double flops = 0;
  for (const int64_t length : lengths) {
    const double n = static_cast<double>(length);
    flops += static_cast<double>(encoder.layers) * (2 * n * (4 * d * d + 2 * d * h) + 4 * n * n * d);
    flops += 2 * d * (d + static_cast<double>(labels));
  }
  return flops;
}

}  // namespace tern::models
