#include "tern/nn/layers/packed_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

int64_t checked_width(int64_t width, int64_t heads) {
  TERN_CHECK(width > 0 && heads > 0 && width % heads == 0,
             "nn::PackedAttention: width must be a positive multiple of heads, got width ", width, " and ", heads,
             " heads");
  return width;
}

int64_t checked_kv_heads(int64_t heads, int64_t kv_heads) {
  TERN_CHECK(kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads == 0),
             "nn::PackedAttention: kv_heads must divide the ", heads, " heads, or be 0 for as many, got ", kv_heads);
  return kv_heads == 0 ? heads : kv_heads;
}

/// torch.nn.MultiheadAttention: Xavier over the fused matrix, torch.nn.Linear's default for the output, zero biases.
LinearOptions projection(const PackedAttentionOptions& options, bool bias, const Initializer& weight_init) {
  return {.bias = options.bias && bias,
          .weight_init = options.weight_init ? options.weight_init : weight_init,
          .bias_init = init::zeros(),
          .weight = {}};
}

}  // namespace

PackedAttention::PackedAttention(const Scope& s, int64_t width, int64_t heads, const PackedAttentionOptions& options)
    : Module(s),
      width_(checked_width(width, heads)),
      heads_(heads),
      kv_heads_(checked_kv_heads(heads, options.kv_heads)),
      dropout_(options.dropout),
      causal_(options.causal),
      window_(options.window),
      rotary_(options.rotary),
      qkv_(sub("qkv"), width, width / heads * (heads + 2 * kv_heads_),
           projection(options, options.qkv_bias, init::xavier_uniform())),
      out_(sub("out"), width, width, projection(options, true, {})) {
  TERN_CHECK(dropout_ >= 0 && dropout_ <= 1, "nn::PackedAttention: dropout must be in [0, 1], got ", dropout_);
  TERN_CHECK(window_ >= -1, "nn::PackedAttention: window must be -1 (none) or >= 0, got ", window_);
}

AttentionOptions PackedAttention::attention_options() const {
  return {.causal = causal_, .window = window_, .dropout = is_training() ? dropout_ : 0, .generator = &generator()};
}

void PackedAttention::check_tokens(const Tensor& x, const char* what) const {
  TERN_CHECK(x.dim() == 2 && x.size(1) == width_, "nn::PackedAttention: ", what, " must be [tokens, ", width_,
             "], got ", x.shape());
}

Tensor PackedAttention::forward(const Tensor& x, const SequenceLayout& layout) const {
  return hooked(x, [&](const Tensor& input) { return steps(input, layout).result(); });
}

Tensor PackedAttention::forward(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                const SequenceLayout& memory_layout) const {
  return hooked(x, [&](const Tensor& input) { return steps(input, layout, memory, memory_layout).result(); });
}

RowChain PackedAttention::chain(const Tensor& x, const SequenceLayout& layout) const {
  return has_hooks() ? RowChain(forward(x, layout)) : steps(x, layout);
}

RowChain PackedAttention::chain(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                const SequenceLayout& memory_layout) const {
  return has_hooks() ? RowChain(forward(x, layout, memory, memory_layout)) : steps(x, layout, memory, memory_layout);
}

RowChain PackedAttention::steps(const Tensor& x, const SequenceLayout& layout) const {
  const ProfileRange range(name());
  check_tokens(x, "x");
  if (rotary_ || kv_heads_ != heads_) {
    const auto [q, k, v] = projections(x);
    const Tensor positions =
        !rotary_ || layout.positions.defined() ? layout.positions : sequence_positions(layout, x.size(0));
    RowChain chain(attention(rotated(q, positions), rotated(k, positions), v, layout, layout, attention_options())
                       .reshape({-1, width_}));
    out_.append_to(chain);
    return chain;
  }
  RowChain chain(x);
  qkv_.append_to(chain);
  chain.self_attention(heads_, layout, attention_options());
  out_.append_to(chain);
  return chain;
}

/// Queries, keys and values of self-attention: [tokens, heads or kv_heads, head_dim].
std::array<Tensor, 3> PackedAttention::projections(const Tensor& x) const {
  const int64_t size = width_ / heads_;
  const std::vector<Tensor> parts =
      qkv_.forward(x).reshape({x.size(0), heads_ + 2 * kv_heads_, size}).split({heads_, kv_heads_, kv_heads_}, 1);
  return {parts[0], parts[1], parts[2]};
}

Tensor PackedAttention::rotated(const Tensor& x, const Tensor& positions) const {
  return rotary_ ? rotary(x, positions, *rotary_) : x;
}

Tensor PackedAttention::forward(const Tensor& x, KeyValueCache& cache, int64_t layer) const {
  TERN_CHECK(causal_,
             "nn::PackedAttention: a layer that uses a cache must be causal, because earlier tokens cannot "
             "see later ones; construct it with {.causal = true}");
  return hooked(x, [&](const Tensor& input) {
    const ProfileRange range(name());
    check_tokens(input, "x");
    const Tensor& positions = cache.positions();
    TERN_CHECK(input.size(0) == positions.numel(), "nn::PackedAttention: x has ", input.size(0),
               " rows, the cache expects ", positions.numel(),
               " new tokens; call its extend() once before each forward of the model");
    const auto [q, k, v] = projections(input);
    const Tensor attended =
        cache.attention(layer, rotated(q, positions), rotated(k, positions), v, attention_options());
    return out_.forward(attended.reshape({-1, width_}));
  });
}

Tensor PackedAttention::forward(const Tensor& x, const Tensor& key_mask) const {
  const ProfileRange range(name());
  TERN_CHECK(x.dim() == 3 && x.size(2) == width_, "nn::PackedAttention: a padded batch must be [batch, length, ",
             width_, "], got ", x.shape());
  const int64_t batch = x.size(0), length = x.size(1);
  const SequenceLayout layout = padded_layout(batch, length, key_mask, x.device());
  return forward(x.reshape({batch * length, width_}), layout).reshape(x.shape());
}

RowChain PackedAttention::steps(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                const SequenceLayout& memory_layout) const {
  const ProfileRange range(name());
  check_tokens(x, "x");
  check_tokens(memory, "memory");
  TERN_CHECK(!rotary_,
             "nn::PackedAttention: rotary embeddings are for self-attention; positions in x and in memory "
             "have no distance");
  const auto [query, key_value] = qkv_.forward_parts(x, memory, width_);
  const Tensor q = query.reshape({x.size(0), heads_, -1}), kv = key_value.reshape({memory.size(0), 2, kv_heads_, -1});
  RowChain chain(cross_attention(q, kv, layout, memory_layout, attention_options()));
  out_.append_to(chain);
  return chain;
}

Tensor PackedAttention::probabilities(const Tensor& x, const SequenceLayout& layout) const {
  check_tokens(x, "x");
  const int64_t n = layout.sequences(), length = layout.max_length;
  TERN_CHECK(x.size(0) == n * length, "nn::PackedAttention: probabilities() is for sequences of one length, got ",
             x.size(0), " tokens in ", n, " sequences of at most ", length);
  const auto [q, k, v] = projections(x);
  const Tensor positions =
      !rotary_ || layout.positions.defined() ? layout.positions : sequence_positions(layout, x.size(0));
  const auto by_head = [&](const Tensor& part) {  // [n, heads, length, size]
    return rotated(part, positions).reshape({n, length, part.size(1), -1}).transpose(1, 2);
  };
  const Tensor keys = repeat_interleave(by_head(k), heads_ / kv_heads_, 1);
  const Tensor scores = matmul(by_head(q), keys.transpose(-2, -1)) / std::sqrt(static_cast<double>(width_ / heads_));
  // What a query does not see has probability 0, and so has every key of a query that sees none.
  const Tensor place = arange(0, static_cast<double>(length), 1, {.device = x.device()});
  const Tensor distance = place.unsqueeze(1) - place;  // of a query from a key
  Tensor hidden = distance < (causal_ ? 0.0 : -static_cast<double>(length));
  if (window_ >= 0) hidden = logical_or(hidden, abs(distance) > static_cast<double>(window_));
  if (layout.key_mask.defined()) hidden = logical_or(hidden, (layout.key_mask == 0.0).reshape({n, 1, 1, length}));
  return masked_fill(softmax(masked_fill(scores, hidden, -std::numeric_limits<double>::infinity())), hidden, 0.0);
}

}  // namespace tern::nn
