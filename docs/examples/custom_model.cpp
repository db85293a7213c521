// A custom model on packed text, with a custom training loop.
#include <tern/tern.h>

#include <cstdio>

using namespace tern;

class Sentiment final : public nn::Module {
 public:
  Sentiment(const nn::Scope& s, int64_t vocabulary, int64_t width)
      : Module(s),
        word_(sub("word"), vocabulary, width, {.weight_init = nn::init::normal(0, 0.02)}),
        attention_(sub("attention"), width, /*heads=*/4),
        norm_(sub("norm"), width),
        dropout_(sub("dropout"), 0.1),
        head_(sub("head"), width, 2) {}

  // Rows are the tokens of all sequences, one after another; the layout says where each begins.
  Tensor forward(const data::TokenInput& input) const {
    const Tensor x = word_.forward(input.tokens);  // [rows, width]
    const Tensor attended = attention_.forward(x, input.layout);
    const Tensor y = norm_.forward(attended, x, dropout_.options(input.layout.row_keys));  // norm(x + dropout(..))
    return head_.forward(index_select(y, 0, input.first_rows));                            // [sequences, 2]
  }

 private:
  nn::Embedding word_;
  nn::PackedAttention attention_;
  nn::LayerNorm norm_;
  nn::Dropout dropout_;
  nn::Linear head_;
};

int main() {
  const data::TextSet texts = data::load_text("sentences");
  const data::Split split = data::make_split(texts, "", "", 42);
  const auto tokenizer = data::WordPiece::from_embedded();
  const auto tokens = std::make_shared<const data::TokenSet>(data::tokenize(texts, tokenizer, 64));

  constexpr int64_t kEpochs = 3;
  const data::BatchPlan plan(split.train, tokens->lengths(), {.batch_tokens = 1024, .seed = 42}, kEpochs);
  const data::TokenLoader loader(tokens, texts.labels, plan, {.pad_id = tokenizer.pad_id()});

  Sentiment model(nn::Scope({.generator = Generator(42)}), tokenizer.vocab_size(), 64);
  std::printf("%s", nn::summary(model).c_str());
  optim::AdamW optimizer(optim::no_decay_groups(model.parameters(), 0.01), {.lr = 3e-3});
  const auto schedule = optim::linear_schedule({.total_steps = plan.total_steps(), .warmup = 0.1});
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch)
    for (const data::TokenBatch& batch : loader.epoch(epoch)) {
      schedule.apply(optimizer, step++);
      cross_entropy(model.forward(batch), batch.labels).backward();
      optimizer.step({.max_norm = 1.0, .skip_non_finite = true});
      optimizer.zero_grad();
    }

  NoGrad off;
  model.eval();
  const data::BatchPlan order(split.test, tokens->lengths(), {.batch_tokens = 4096, .shuffle = false}, 1);
  double hits = 0;
  for (const data::TokenBatch& batch : data::TokenLoader(tokens, texts.labels, order).epoch(0))
    hits += sum(eq(argmax(model.forward(batch)), batch.labels)).item<double>();
  const double accuracy = hits / static_cast<double>(split.test.size());
  std::printf("test accuracy %.1f %%\n", 100 * accuracy);
  return accuracy > 0.7 ? 0 : 1;
}
