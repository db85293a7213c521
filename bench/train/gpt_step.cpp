#include "tern/bench/train/gpt_step.h"

#include "tern/nn/nn.h"

namespace tern::bench {

namespace {

class Block final : public nn::Module {
 public:
  Block(const nn::Scope& s, const GptConfig& c)
      : Module(s),
        norm1_(sub("norm1"), c.width),
        attention_(sub("attention"), c.width, c.heads,
                   {.bias = false, .causal = true, .kv_heads = c.kv_heads, .rotary = RotaryOptions{}}),
        norm2_(sub("norm2"), c.width),
        feed_(sub("feed"), c.width, 8 * c.width / 3) {}

  Tensor forward(const Tensor& x, const SequenceLayout& layout) const {
    const Tensor y = x + attention_.forward(norm1_.forward(x), layout);
    return y + feed_.forward(norm2_.forward(y));
  }

 private:
  nn::RMSNorm norm1_;
  nn::PackedAttention attention_;
  nn::RMSNorm norm2_;
  nn::GatedFeedForward feed_;
};

}  // namespace

class GptStep::Model final : public nn::Module {
 public:
  Model(const nn::Scope& s, const GptConfig& c)
      : Module(s),
        embedding_(sub("embedding"), c.characters, c.width, {.weight_init = nn::init::normal(0, 0.02)}),
        blocks_(sub("blocks"), c.layers, c),
        norm_(sub("norm"), c.width),
        head_(sub("head"), c.width, c.characters, {.bias = false}) {}

  /// ids: [tokens] of whole sequences; result: [tokens, characters].
  Tensor forward(const Tensor& ids, const SequenceLayout& layout) const {
    Tensor x = embedding_.forward(ids);
    for (const Block& block : blocks_) x = block.forward(x, layout);
    return head_.forward(norm_.forward(x));
  }

 private:
  nn::Embedding embedding_;
  nn::ModuleList<Block> blocks_;
  nn::RMSNorm norm_;
  nn::Linear head_;
};

GptStep::GptStep(const ModelOptions& options, int64_t batch, int64_t length)
    : ModelStep(options),
      length_(length),
      model_(std::make_unique<Model>(nn::Scope({.device = options.device, .generator = Generator(1)}), config_)),
      layout_(padded_layout(batch, length, {}, options.device)) {
  layout_.positions = sequence_positions(layout_, batch * length);
  prepare(*model_);
}
GptStep::~GptStep() = default;

void GptStep::run(const Tensor& ids, const Tensor& next) { ModelStep::run({ids}, next); }

Tensor GptStep::logits(const std::vector<Tensor>& batch) { return model_->forward(batch[0], layout_); }

double GptStep::flops() const {
  const GptConfig& c = config_;
  const auto of = [](int64_t in, int64_t out) { return 2.0 * static_cast<double>(in * out); };
  const int64_t kv_width = c.width / c.heads * c.kv_heads, hidden = 8 * c.width / 3;
  const double block = 2 * of(c.width, c.width) + 2 * of(c.width, kv_width) + 3 * of(c.width, hidden);
  const double attention = 2 * of(c.width, length_) / 2;  // half of the pairs are causal
  return 3 * (static_cast<double>(c.layers) * (block + attention) + of(c.width, c.characters));
}

}  // namespace tern::bench
