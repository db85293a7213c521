#include "tern/models/encoder/encoder.h"

#include <algorithm>
#include <cmath>

#include "tern/core/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler.h"

namespace tern::models {
namespace {

nn::LinearOptions linear_options(const EncoderOptions& options, bool bias = true) {
  nn::LinearOptions result;
  result.bias = bias;
  result.weight_init = nn::init::normal(0, options.initializer_range);
  result.bias_init = nn::init::zeros();
  return result;
}

/// Rows of x by int64 index; undefined stays undefined.
Tensor rows_of(const Tensor& x, const Tensor& rows) {
  return x.defined() ? index_select(x.reshape({x.size(0), -1}), 0, rows) : Tensor();
}

/// The layout in which each sequence asks with one row only; an empty sequence asks with none but keeps its place, so
/// its row sees no key and gives 0.
SequenceLayout first_row_layout(const EncoderInput& input) {
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

EncoderLayer::EncoderLayer(const nn::Scope& s, const EncoderOptions& options)
    : Module(s),
      options_(options),
      qkv_(sub("qkv"), options.width, 3 * options.width, linear_options(options, options.qkv_bias)),
      out_(sub("out"), options.width, options.width, linear_options(options)),
      attention_norm_(sub("attention_norm"), options.width, {.eps = options.norm_eps}),
      lin1_(sub("lin1"), options.width, options.hidden, linear_options(options)),
      lin2_(sub("lin2"), options.hidden, options.width, linear_options(options)),
      output_norm_(sub("output_norm"), options.width, {.eps = options.norm_eps}) {}

DropoutOptions EncoderLayer::output_dropout(const Tensor& row_keys) const {
  return {.p = is_training() ? options_.dropout : 0, .generator = &generator(), .row_keys = row_keys};
}

Tensor EncoderLayer::attend(const State& state, const SequenceLayout& layout) const {
  return nn::self_attention(state.input, qkv_, options_.heads, layout,
                            {.dropout = attention_dropout(), .generator = &generator()});
}

SumAndNorm EncoderLayer::end_attention(const Tensor& attended, const Tensor& x, const Tensor& row_keys) const {
  DropoutOptions drop = output_dropout(row_keys);
  if (!options_.attention_output_dropout) drop.p = 0;
  const nn::LayerNorm& norm = options_.norm_first ? output_norm_ : attention_norm_;
  SumAndNorm result = nn::linear_residual_norm(
      attended, out_, {.norm = norm, .residual = x, .dropout = drop, .gives_sum = options_.norm_first});
  if (!options_.norm_first) result.sum = result.norm;
  return result;
}

EncoderLayer::Residual EncoderLayer::feed_forward(const SumAndNorm& middle, const Tensor& row_keys) const {
  return {nn::feed_forward(middle.norm, lin1_, options_.activation, lin2_), middle.sum, row_keys};
}

EncoderLayer::Residual EncoderLayer::forward(const State& state, const SequenceLayout& layout) const {
  const ProfileRange range(name());
  return feed_forward(end_attention(attend(state, layout), state.x, layout.row_keys), layout.row_keys);
}

EncoderLayer::State EncoderLayer::forward(const State& state, const SequenceLayout& layout,
                                          const nn::LayerNorm& next) const {
  const ProfileRange range(name());
  const SumAndNorm middle = end_attention(attend(state, layout), state.x, layout.row_keys);
  const SumAndNorm end = nn::feed_forward_residual_norm(middle.norm, lin1_, options_.activation, lin2_,
                                                        {.norm = next,
                                                         .residual = middle.sum,
                                                         .dropout = output_dropout(layout.row_keys),
                                                         .gives_sum = options_.norm_first});
  return {options_.norm_first ? end.sum : end.norm, end.norm};
}

EncoderLayer::Residual EncoderLayer::forward_first(const State& state, const EncoderInput& input) const {
  const ProfileRange range(name());
  const int64_t width = options_.width, n = input.sequences();
  const auto [asked, known] =
      linear_pair(rows_of(state.input, input.first_rows), state.input, qkv_.weight(), qkv_.bias_or_none(), width);
  const Tensor q = asked.reshape({n, options_.heads, -1});
  const Tensor kv = known.reshape({state.input.size(0), 2, options_.heads, -1});
  const SequenceLayout layout = first_row_layout(input);
  const Tensor context =
      cross_attention(q, kv, layout, input.layout, {.dropout = attention_dropout(), .generator = &generator()});
  const SumAndNorm middle = end_attention(context, rows_of(state.x, input.first_rows), layout.row_keys);
  return feed_forward(middle, layout.row_keys);
}

Tensor EncoderLayer::attention_map(const State& state, const SequenceLayout& layout) const {
  const int64_t n = layout.sequences(), head = options_.width / options_.heads;
  const Tensor qkv = qkv_.forward(state.input).reshape({n, layout.max_length, 3, options_.heads, head});
  const auto part = [&](int64_t i) { return qkv.slice(2, i, i + 1).squeeze(2).transpose(1, 2); };
  return softmax(matmul(part(0), part(1).transpose(-2, -1)) / std::sqrt(static_cast<double>(head)));
}

Encoder::Encoder(const nn::Scope& s, const EncoderOptions& options)
    : Module(s), norm_first_(options.norm_first), layer_(sub("layer"), options.layers, options) {
  if (options.norm_first && options.final_norm)
    norm_.emplace(sub("norm"), options.width, nn::LayerNormOptions{.eps = options.norm_eps});
}

Tensor Encoder::forward(const Tensor& x, const EncoderInput& input) const { return run(x, input, false); }

Tensor Encoder::forward_first(const Tensor& x, const EncoderInput& input) const { return run(x, input, true); }

EncoderLayer::State Encoder::begin(const Tensor& x) const {
  if (layer_.size() == 0) {
    const Tensor result = norm_ ? norm_->forward(x) : x;
    return {result, result};
  }
  return {x, norm_first_ ? layer_[0].attention_norm().forward(x) : x};
}

EncoderLayer::State Encoder::boundary(int64_t i, const EncoderLayer::Residual& residual) const {
  const auto& [branch, x, row_keys] = residual;
  const DropoutOptions drop = layer_[i - 1].output_dropout(row_keys);
  Tensor result;
  if (!norm_first_) {
    result = norm_after(i - 1).forward(branch, x, drop);
  } else if (i < layer_.size()) {
    const SumAndNorm next = norm_after(i - 1).forward_with_sum(branch, x, drop);
    return {next.sum, next.norm};
  } else {
    result = norm_ ? norm_->forward(branch, x, drop) : x + dropout(branch, drop);
  }
  return {result, result};
}

const nn::LayerNorm& Encoder::norm_after(int64_t i) const {
  return norm_first_ ? layer_[i + 1].attention_norm() : layer_[i].output_norm();
}

std::vector<Tensor> Encoder::attention_maps(const Tensor& x, const EncoderInput& input) const {
  std::vector<Tensor> maps;
  EncoderLayer::State state = begin(x);
  for (int64_t i = 0; i < layer_.size(); ++i) {
    maps.push_back(layer_[i].attention_map(state, input.layout));
    state = boundary(i + 1, layer_[i].forward(state, input.layout));
  }
  return maps;
}

void Encoder::set_recompute(int64_t layers) {
  TERN_CHECK(layers >= 0, "set_recompute: expected 0 or more layers, got ", layers);
  recompute_ = layers;
}

Tensor Encoder::run(const Tensor& x, const EncoderInput& input, bool first_rows) const {
  const int64_t layers = layer_.size();
  // Under autocast all activations have 16 bits, also what passes by the products: cast once instead of in every layer.
  EncoderLayer::State state =
      begin(autocast_enabled(x.device()) && x.dtype() == float32 ? x.to(autocast_active_dtype(x.device())) : x);
  const int64_t stretch = recompute_ > 0 ? recompute_ : std::max<int64_t>(layers, 1);
  for (int64_t first = 0; first < layers; first += stretch) {
    const int64_t end = std::min(first + stretch, layers);
    const auto run = [=, this](const Tensor& stream, const Tensor& read) {
      const EncoderLayer::Residual got = run_layers(first, end, {stream, read}, input, first_rows);
      return std::vector<Tensor>{got.branch, got.x, got.row_keys};
    };
    const std::vector<Tensor> parts =
        recompute_ > 0 ? checkpoint(run, state.x, state.input) : run(state.x, state.input);
    state = boundary(end, {parts[0], parts[1], parts[2]});
  }
  return first_rows && layers == 0 ? rows_of(state.x, input.first_rows) : state.x;
}

EncoderLayer::Residual Encoder::run_layers(int64_t begin, int64_t end, EncoderLayer::State state,
                                           const EncoderInput& input, bool first_rows) const {
  for (int64_t i = begin; i + 1 < end; ++i) state = layer_[i].forward(state, input.layout, norm_after(i));
  const EncoderLayer& last = layer_[end - 1];
  return first_rows && end == layer_.size() ? last.forward_first(state, input) : last.forward(state, input.layout);
}

}  // namespace tern::models
