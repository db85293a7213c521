// From labelled sentences to a trained classifier, a saved folder and predictions.
#include <tern/tern.h>

#include <cstdio>

using namespace tern;

struct PrintEpochs final : models::TrainObserver {
  void on_epoch(const models::EpochMetrics& m) override {
    std::printf("epoch %d: validation accuracy %.3f\n", static_cast<int>(m.epoch), m.validation.metric);
  }
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "sentiment";
  const data::TextSet texts = data::load_text("sentences");  // or "reviews.csv"
  const data::Split split = data::make_split(texts, "80/10/10", "", /*seed=*/42);
  const auto tokenizer = data::WordPiece::from_embedded();
  const auto tokens = std::make_shared<const data::TokenSet>(data::tokenize(texts, tokenizer, /*max_length=*/64));

  models::DistilBertConfig config = models::DistilBertConfig::preset("tiny");
  config.layers = 1;
  config.labels = texts.label_names;
  auto model = std::make_unique<models::DistilBert>(nn::Scope({.generator = Generator(42)}), config);

  models::TextTask task(*model, tokens, texts.labels, split.train, split.validation, tokenizer.pad_id(),
                        {.epochs = 3, .batch_tokens = 1024, .seed = 42});
  PrintEpochs observer;
  models::TrainOptions options;  // AdamW, linear schedule, clipping at norm 1
  options.lr = 1e-3;
  options.warmup = 0.1;
  options.dtype = autocast_dtype(cpu);
  models::train(task, options, observer);

  const models::Evaluation test =
      models::evaluate(*model, tokens, texts.labels, split.test, /*batch_tokens=*/4096, tokenizer.pad_id());
  models::TextPipeline(std::move(model), tokenizer).save(folder);

  const auto pipeline = models::TextPipeline::load(folder);
  pipeline.model().eval();
  for (const models::Prediction& p : pipeline.predict({"A wonderful film.", "Do not waste your money."}))
    std::printf("%s\n", pipeline.model().labels()[p.label].c_str());
  return test.metric > 0.7 ? 0 : 1;
}
