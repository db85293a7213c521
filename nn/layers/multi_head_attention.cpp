#include "tern/nn/layers/multi_head_attention.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
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
LinearOptions projection(const MultiHeadAttentionOptions& options, bool bias, const Initializer& weight_init) {
  return {.bias = options.bias && bias,
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
      qkv_(sub("qkv"), width, 3 * width, projection(options, options.qkv_bias, init::xavier_uniform())),
      out_(sub("out"), width, width, projection(options, true, {})) {
  TERN_CHECK(dropout_ >= 0 && dropout_ <= 1, "nn::MultiHeadAttention: dropout must be in [0, 1], got ", dropout_);
  TERN_CHECK(window_ >= -1, "nn::MultiHeadAttention: window must be -1 (none) or >= 0, got ", window_);
}

AttentionOptions MultiHeadAttention::attention_options() const {
  return {.causal = causal_, .window = window_, .dropout = is_training() ? dropout_ : 0, .generator = &generator()};
}

void MultiHeadAttention::check_tokens(const Tensor& x, const char* what) const {
  TERN_CHECK(x.dim() == 2 && x.size(1) == width_, "nn::MultiHeadAttention: ", what, " must be [tokens, ", width_,
             "], got ", x.shape());
}

Tensor MultiHeadAttention::forward(const Tensor& x, const SequenceLayout& layout) const {
  return hooked(x, [&](const Tensor& input) { return steps(input, layout).result(); });
}

Tensor MultiHeadAttention::forward(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                   const SequenceLayout& memory_layout) const {
  return hooked(x, [&](const Tensor& input) { return steps(input, layout, memory, memory_layout).result(); });
}

RowChain MultiHeadAttention::chain(const Tensor& x, const SequenceLayout& layout) const {
  return has_hooks() ? RowChain(forward(x, layout)) : steps(x, layout);
}

RowChain MultiHeadAttention::chain(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                   const SequenceLayout& memory_layout) const {
  return has_hooks() ? RowChain(forward(x, layout, memory, memory_layout)) : steps(x, layout, memory, memory_layout);
}

RowChain MultiHeadAttention::steps(const Tensor& x, const SequenceLayout& layout) const {
  const ProfileRange range(name());
  check_tokens(x, "x");
  RowChain chain(x);
  qkv_.append_to(chain);
  chain.self_attention(heads_, layout, attention_options());
  out_.append_to(chain);
  return chain;
}

Tensor MultiHeadAttention::forward(const Tensor& x, const Tensor& key_mask) const {
  const ProfileRange range(name());
  TERN_CHECK(x.dim() == 3 && x.size(2) == width_, "nn::MultiHeadAttention: a padded batch must be [batch, length, ",
             width_, "], got ", x.shape());
  const int64_t batch = x.size(0), length = x.size(1);
  const SequenceLayout layout = padded_layout(batch, length, key_mask, x.device());
  return forward(x.reshape({batch * length, width_}), layout).reshape(x.shape());
}

RowChain MultiHeadAttention::steps(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                                   const SequenceLayout& memory_layout) const {
  const ProfileRange range(name());
  check_tokens(x, "x");
  check_tokens(memory, "memory");
  const auto [query, key_value] = qkv_.forward_parts(x, memory, width_);
  const Tensor q = query.reshape({x.size(0), heads_, -1}), kv = key_value.reshape({memory.size(0), 2, heads_, -1});
  RowChain chain(cross_attention(q, kv, layout, memory_layout, attention_options()));
  out_.append_to(chain);
  return chain;
}

Tensor MultiHeadAttention::probabilities(const Tensor& x, const SequenceLayout& layout) const {
  check_tokens(x, "x");
  const int64_t n = layout.sequences(), size = width_ / heads_;
  const Tensor qkv = qkv_.forward(x).reshape({n, layout.max_length, 3, heads_, size});
  const auto part = [&](int64_t i) { return qkv.select(2, i).transpose(1, 2); };
  return softmax(matmul(part(0), part(1).transpose(-2, -1)) / std::sqrt(static_cast<double>(size)));
}

}  // namespace tern::nn
