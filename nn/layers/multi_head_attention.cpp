#include "tern/nn/layers/multi_head_attention.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

int64_t checked_width(int64_t width, int64_t heads) {
  TERN_CHECK(width > 0 && heads > 0 && width % heads == 0,
             "nn::MultiHeadAttention: width must be a positive multiple of heads, got width ", width, " and ", heads,
             " heads");
  return width;
}

/// torch.nn.MultiheadAttention: Xavier over the fused matrix, torch.nn.Linear's default for the output, zero biases.
LinearOptions projection(const MultiHeadAttentionOptions& options, const Initializer& weight_init) {
  return {.bias = options.bias,
          .weight_init = options.weight_init ? options.weight_init : weight_init,
          .bias_init = init::zeros(),
          .weight = {}};
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const Scope& s, int64_t width, int64_t heads,
                                       const MultiHeadAttentionOptions& options)
    : Module(s),
      width_(checked_width(width, heads)),
      heads_(heads),
      dropout_(options.dropout),
      causal_(options.causal),
      window_(options.window),
      qkv_(sub("qkv"), width, 3 * width, projection(options, init::xavier_uniform())),
      out_(sub("out"), width, width, projection(options, {})) {
  TERN_CHECK(dropout_ >= 0 && dropout_ <= 1, "nn::MultiHeadAttention: dropout must lie in [0, 1], got ", dropout_);
  TERN_CHECK(window_ >= -1, "nn::MultiHeadAttention: window must be -1 (none) or >= 0, got ", window_);
}

AttentionOptions MultiHeadAttention::attention_options() const {
  AttentionOptions options;
  options.causal = causal_;
  options.window = window_;
  options.dropout = is_training() ? dropout_ : 0;
  options.generator = &generator();
  return options;
}

void MultiHeadAttention::check_tokens(const Tensor& x, const char* what) const {
  TERN_CHECK(x.dim() == 2 && x.size(1) == width_, "nn::MultiHeadAttention: ", what, " must be [tokens, ", width_,
             "], got ", x.shape());
}

Tensor self_attention(const Tensor& x, const Linear& qkv, int64_t heads, const SequenceLayout& layout,
                      const AttentionOptions& options) {
  if (grad_enabled())  // each with its own place in a profile
    return tern::self_attention(qkv.forward(x).reshape({x.size(0), 3, heads, -1}), layout, options);
  return tern::self_attention(x, qkv.weight(), qkv.bias_or_none(), heads, layout, options);
}

Tensor MultiHeadAttention::forward(const Tensor& x, const SequenceLayout& layout) const {
  const ProfileRange range(name());
  check_tokens(x, "x");
  return out_.forward(self_attention(x, qkv_, heads_, layout, attention_options()));
}

Tensor MultiHeadAttention::forward(const Tensor& x, const Tensor& key_mask) const {
  const ProfileRange range(name());
  TERN_CHECK(x.dim() == 3 && x.size(2) == width_, "nn::MultiHeadAttention: a padded batch must be [batch, length, ",
             width_, "], got ", x.shape());
  const int64_t batch = x.size(0), length = x.size(1);
  const SequenceLayout layout = padded_layout(batch, length, key_mask, x.device());
  return forward(x.reshape({batch * length, width_}), layout).reshape(x.shape());
}

Tensor MultiHeadAttention::forward(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                   const SequenceLayout& memory_layout) const {
  const ProfileRange range(name());
  check_tokens(x, "x");
  check_tokens(memory, "memory");
  const auto rows = [&](int64_t begin, int64_t end) {
    return std::pair(qkv_.weight().tensor().slice(0, begin, end),
                     qkv_.bias() ? qkv_.bias()->tensor().slice(0, begin, end) : Tensor());
  };
  const auto [query_weight, query_bias] = rows(0, width_);
  const auto [memory_weight, memory_bias] = rows(width_, 3 * width_);
  const int64_t size = width_ / heads_;
  const Tensor q = linear(x, query_weight, query_bias).reshape({x.size(0), heads_, size});
  const Tensor kv = linear(memory, memory_weight, memory_bias).reshape({memory.size(0), 2, heads_, size});
  const Tensor mixed = attention(q, kv.select(1, 0), kv.select(1, 1), layout, memory_layout, attention_options());
  return out_.forward(mixed.reshape({x.size(0), width_}));
}

}  // namespace tern::nn
