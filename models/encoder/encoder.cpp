#include "tern/models/encoder/encoder.h"

#include <algorithm>

#include "tern/core/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler.h"

namespace tern::models {
namespace {

nn::LinearOptions linear_options(const EncoderOptions& options) {
  nn::LinearOptions result;
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
  layout.offsets = arange(0, static_cast<double>(n + 1), 1, {.dtype = DType::kInt32, .device = input.tokens.device()});
  layout.max_length = 1;
  if (input.layout.row_keys.defined()) layout.row_keys = rows_of(input.layout.row_keys, input.first_rows).reshape({n});
  return layout;
}

}  // namespace

EncoderLayer::EncoderLayer(const nn::Scope& s, const EncoderOptions& options)
    : Module(s),
      options_(options),
      qkv_(sub("qkv"), options.width, 3 * options.width, linear_options(options)),
      out_(sub("out"), options.width, options.width, linear_options(options)),
      attention_norm_(sub("attention_norm"), options.width, {.eps = options.norm_eps}),
      lin1_(sub("lin1"), options.width, options.hidden, linear_options(options)),
      lin2_(sub("lin2"), options.hidden, options.width, linear_options(options)),
      output_norm_(sub("output_norm"), options.width, {.eps = options.norm_eps}) {}

EncoderLayer::Residual EncoderLayer::feed_forward(const Tensor& x, const Tensor& row_keys) const {
  return {lin2_.forward(lin1_.forward(x, options_.activation)), x, row_keys};
}

Tensor EncoderLayer::add_and_norm(const Residual& residual) const {
  return output_norm_.forward(
      residual.branch, residual.x,
      {.p = is_training() ? options_.dropout : 0, .generator = &generator(), .row_keys = residual.row_keys});
}

EncoderLayer::Residual EncoderLayer::blocks(const Tensor& x, const SequenceLayout& layout) const {
  const ProfileRange range(name());
  const Tensor qkv = qkv_.forward(x).reshape({x.size(0), 3, options_.heads, -1});
  const Tensor context = self_attention(qkv, layout, {.dropout = attention_dropout(), .generator = &generator()});
  return feed_forward(attention_norm_.forward(out_.forward(context), x), layout.row_keys);
}

EncoderLayer::Residual EncoderLayer::blocks_first(const Tensor& x, const EncoderInput& input) const {
  const ProfileRange range(name());
  const int64_t width = options_.width, n = input.sequences();
  const Tensor first = rows_of(x, input.first_rows);
  const auto [asked, known] = linear_pair(first, x, qkv_.weight(), *qkv_.bias(), width);
  const Tensor q = asked.reshape({n, options_.heads, -1}), kv = known.reshape({x.size(0), 2, options_.heads, -1});
  const SequenceLayout layout = first_row_layout(input);
  const Tensor context =
      cross_attention(q, kv, layout, input.layout, {.dropout = attention_dropout(), .generator = &generator()});
  return feed_forward(attention_norm_.forward(out_.forward(context), first), layout.row_keys);
}

Tensor EncoderLayer::forward(const Tensor& x, const SequenceLayout& layout) const {
  return add_and_norm(blocks(x, layout));
}

Tensor EncoderLayer::forward_first(const Tensor& x, const EncoderInput& input) const {
  return add_and_norm(blocks_first(x, input));
}

Encoder::Encoder(const nn::Scope& s, const EncoderOptions& options)
    : Module(s), layer_(sub("layer"), options.layers, options) {}

Tensor Encoder::forward(const Tensor& x, const EncoderInput& input) const { return run(x, input, false); }

Tensor Encoder::forward_first(const Tensor& x, const EncoderInput& input) const {
  return layer_.size() > 0 ? run(x, input, true) : rows_of(x, input.first_rows);
}

void Encoder::set_recompute(int64_t layers) {
  TERN_CHECK(layers >= 0, "set_recompute: expected 0 or more layers, got ", layers);
  recompute_ = layers;
}

Tensor Encoder::run(const Tensor& x, const EncoderInput& input, bool first_rows) const {
  const int64_t layers = layer_.size();
  // Under autocast all activations have 16 bits, also what passes by the products: cast once instead of in every layer.
  Tensor h = autocast_enabled(x.device()) && x.dtype() == float32 ? x.to(autocast_active_dtype(x.device())) : x;
  const int64_t stretch = recompute_ > 0 ? recompute_ : std::max<int64_t>(layers, 1);
  for (int64_t begin = 0; begin < layers; begin += stretch) {
    const int64_t end = std::min(begin + stretch, layers);
    const auto run = [=, this](const Tensor& in) {
      const EncoderLayer::Residual got = run_layers(begin, end, in, input, first_rows);
      return std::vector<Tensor>{got.branch, got.x, got.row_keys};
    };
    const std::vector<Tensor> parts = recompute_ > 0 ? checkpoint(run, h) : run(h);
    h = layer_[end - 1].add_and_norm({parts[0], parts[1], parts[2]});
  }
  return h;
}

EncoderLayer::Residual Encoder::run_layers(int64_t begin, int64_t end, const Tensor& x, const EncoderInput& input,
                                           bool first_rows) const {
  Tensor h = x;
  for (int64_t i = begin; i + 1 < end; ++i) h = layer_[i].forward(h, input.layout);
  const EncoderLayer& last = layer_[end - 1];
  return first_rows && end == layer_.size() ? last.blocks_first(h, input) : last.blocks(h, input.layout);
}

}  // namespace tern::models
