#include "tern/models/text/text_pipeline.h"

#include <algorithm>
#include <numeric>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/models/text/text_task.h"

namespace tern::models {

TextPipeline::TextPipeline(std::unique_ptr<SequenceClassifier> model, data::WordPiece tokenizer)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)) {
  TERN_CHECK(tokenizer_.vocab_size() <= this->model().vocab_size(), "the vocabulary has ", tokenizer_.vocab_size(),
             " tokens, the model's embedding ", this->model().vocab_size(), ": they do not belong together");
}

TextPipeline TextPipeline::load(const std::string& dir, const BuildOptions& options) {
  auto model = load_pretrained<SequenceClassifier>(dir, options);
  TextPipeline pipeline(std::move(model), data::WordPiece::from_folder(dir));
  const int64_t rows = pipeline.model().vocab_size(), tokens = pipeline.tokenizer().vocab_size();
  if (options.log && tokens < rows)
    options.log(dir + ": the model's vocab_size is " + std::to_string(rows) + ", the vocabulary has " +
                std::to_string(tokens) + " tokens; the other embeddings are not used");
  return pipeline;
}

void TextPipeline::save(const std::string& dir) const {
  tokenizer_.save(dir, model().max_positions());
  model().save_pretrained(dir);
}

void TextPipeline::for_each_batch(const std::vector<std::string>& texts, int64_t max_length, int64_t batch_tokens,
                                  const std::function<void(const data::TokenBatch& batch)>& use) const {
  const int64_t limit = max_length > 0 ? std::min(max_length, model().max_positions()) : model().max_positions();
  auto tokens = std::make_shared<data::TokenSet>();
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer_.encode_special(text, static_cast<size_t>(limit));
    tokens->ids.insert(tokens->ids.end(), ids.begin(), ids.end());
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
  }
  if (texts.empty()) return;
  std::vector<int32_t> rows(texts.size());
  std::iota(rows.begin(), rows.end(), 0);
  const data::TokenLoader loader = evaluation_loader(tokens, {}, rows, batch_tokens, tokenizer_.pad_id());
  for (const data::TokenBatch& batch : loader.epoch(0)) use(batch.to(model().device()));
}

std::vector<Prediction> TextPipeline::predict(const std::vector<std::string>& texts, int64_t max_length,
                                              int64_t batch_tokens) const {
  NoGrad off;
  std::vector<Prediction> predictions(texts.size());
  for_each_batch(texts, max_length, batch_tokens, [&](const data::TokenBatch& batch) {
    std::vector<Prediction> found = predictions_of(model().forward(batch), model().label_kind());
    for (size_t i = 0; i < found.size(); ++i) predictions[static_cast<size_t>(batch.rows[i])] = std::move(found[i]);
  });
  return predictions;
}

Tensor TextPipeline::features(const std::vector<std::string>& texts, int64_t max_length, int64_t batch_tokens) const {
  NoGrad off;
  std::vector<Tensor> found(texts.size());
  for_each_batch(texts, max_length, batch_tokens, [&](const data::TokenBatch& batch) {
    const Tensor features = model().features(batch).to(DType::kFloat32).to(Device());
    for (size_t i = 0; i < batch.rows.size(); ++i)
      found[static_cast<size_t>(batch.rows[i])] = features[static_cast<int64_t>(i)];
  });
  return texts.empty() ? Tensor() : stack(found, 0);
}

}  // namespace tern::models
