#include "tern/models/text/text_pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/pickle.h"
#include "tern/core/ops/ops.h"
#include "tern/data/tokenizers/read_tokenizer.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/text/text_task.h"

namespace tern::models {

int64_t token_limit(const TextModel& model, const data::Tokenizer& tokenizer, int64_t max_length) {
  int64_t limit = model.max_positions();
  for (const int64_t other : {max_length, tokenizer.limits().max_length})
    if (other > 0) limit = std::min(limit, other);
  return limit;
}

data::PairPattern pair_pattern(const TextModel& model, const data::Tokenizer& tokenizer) {
  const data::PairPattern pattern = tokenizer.pair();
  if (model.token_types() == 1) return pattern.without_types();
  TERN_CHECK(pattern.greatest_type() < model.token_types(), "the tokenizer gives tokens of a pair the type ",
             pattern.greatest_type(), ", the model has ", model.token_types(),
             " types (type_vocab_size): they do not belong together");
  return pattern;
}

int32_t filler(const data::Tokenizer& tokenizer) { return tokenizer.special(data::SpecialToken::kPadding).value_or(0); }

void check_vocabulary(const TextModel& model, const data::Tokenizer& tokenizer, const std::string& name,
                      const Log& log) {
  const int64_t rows = model.vocab_size(), tokens = tokenizer.vocab_size();
  TERN_CHECK(tokens <= rows, "the vocabulary has ", tokens, " tokens, the model's embedding ", rows,
             ": they do not belong together");
  if (log && tokens < rows && rows < std::numeric_limits<int64_t>::max())
    log(name + ": the model's vocab_size is " + std::to_string(rows) + ", the vocabulary has " +
        std::to_string(tokens) + " tokens; the other embeddings are not used");
}

namespace {

void require_as_many(const std::vector<std::string>& texts, const std::vector<std::string>& pairs) {
  TERN_CHECK(texts.size() == pairs.size(), "TextPipeline: pairs of texts need as many second texts as first ones, got ",
             texts.size(), " and ", pairs.size());
}

data::TokenSet tokens_of_texts(const data::Tokenizer& tokenizer, const std::vector<std::string>& texts, size_t limit) {
  data::TokenSet tokens;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer.encode_special(text, limit);
    TERN_CHECK(!ids.empty(), "the text '", tern::detail::printable(text),
               "' has no tokens, and the tokenizer puts none around a text");
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    tokens.offsets.push_back(static_cast<int64_t>(tokens.ids.size()));
  }
  return tokens;
}

data::TokenSet tokens_of_pairs(const data::Tokenizer& tokenizer, const data::PairPattern& pattern,
                               const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                               size_t limit) {
  data::TokenSet tokens;
  data::TypedIds joined;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int32_t> first, second;
    tokenizer.encode(texts[i], first);
    tokenizer.encode(pairs[i], second);
    pattern.append(std::move(first), std::move(second), limit, tokenizer.limits().cuts_left, joined);
    TERN_CHECK(std::ssize(joined.ids) > tokens.offsets.back(), "the texts '", tern::detail::printable(texts[i]),
               "' and '", tern::detail::printable(pairs[i]),
               "' have no tokens, and the tokenizer puts none around a text");
    tokens.offsets.push_back(std::ssize(joined.ids));
  }
  tokens.ids = std::move(joined.ids);
  if (pattern.greatest_type() > 0) tokens.types = std::move(joined.types);
  return tokens;
}

}  // namespace

void for_each_batch(const TextModel& model, const data::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                    const std::vector<std::string>& pairs, int64_t limit, int64_t batch_tokens,
                    const std::function<void(const data::TokenBatch& batch)>& use) {
  const auto most = static_cast<size_t>(limit);
  const auto tokens = std::make_shared<const data::TokenSet>(
      pairs.empty() ? tokens_of_texts(tokenizer, texts, most)
                    : tokens_of_pairs(tokenizer, pair_pattern(model, tokenizer), texts, pairs, most));
  if (texts.empty()) return;
  std::vector<int32_t> rows(texts.size());
  std::iota(rows.begin(), rows.end(), 0);
  const data::TokenLoader loader = evaluation_loader(tokens, {}, rows, batch_tokens, filler(tokenizer));
  for (const data::TokenBatch& batch : loader.epoch(0)) use(batch.to(model.device()));
}

TextPipeline::TextPipeline(std::unique_ptr<SequenceClassifier> model, std::shared_ptr<const data::Tokenizer> tokenizer,
                           const std::string& name, const Log& log)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)) {
  TERN_CHECK(tokenizer_, "TextPipeline: there is no tokenizer: a null pointer was given");
  check_vocabulary(this->model(), *tokenizer_, name, log);
}

TextPipeline TextPipeline::load(const std::string& path, const BuildOptions& options) {
  return {load_pretrained<SequenceClassifier>(path, options), data::read_tokenizer(folder_of_model(path)), path,
          options.log};
}

void TextPipeline::save(const std::string& dir) const {
  tokenizer_->save(dir, token_limit(model(), *tokenizer_));
  model().save_pretrained(dir);
}

std::vector<Prediction> TextPipeline::predict(const std::vector<std::string>& texts, int64_t max_length,
                                              int64_t batch_tokens) const {
  return predict_any(texts, {}, max_length, batch_tokens);
}

std::vector<Prediction> TextPipeline::predict_pairs(const std::vector<std::string>& texts,
                                                    const std::vector<std::string>& pairs, int64_t max_length,
                                                    int64_t batch_tokens) const {
  require_as_many(texts, pairs);
  return predict_any(texts, pairs, max_length, batch_tokens);
}

std::vector<Prediction> TextPipeline::predict_any(const std::vector<std::string>& texts,
                                                  const std::vector<std::string>& pairs, int64_t max_length,
                                                  int64_t batch_tokens) const {
  NoGrad off;
  std::vector<Prediction> predictions(texts.size());
  const int64_t limit = token_limit(model(), *tokenizer_, max_length);
  for_each_batch(model(), *tokenizer_, texts, pairs, limit, batch_tokens, [&](const data::TokenBatch& batch) {
    std::vector<Prediction> found = predictions_of(model().forward(batch), model().label_kind());
    for (size_t i = 0; i < found.size(); ++i) predictions[static_cast<size_t>(batch.rows[i])] = std::move(found[i]);
  });
  return predictions;
}

Tensor TextPipeline::features(const std::vector<std::string>& texts, int64_t max_length, int64_t batch_tokens) const {
  return features_of_any(texts, {}, max_length, batch_tokens);
}

Tensor TextPipeline::pair_features(const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                                   int64_t max_length, int64_t batch_tokens) const {
  require_as_many(texts, pairs);
  return features_of_any(texts, pairs, max_length, batch_tokens);
}

Tensor TextPipeline::features_of_any(const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                                     int64_t max_length, int64_t batch_tokens) const {
  NoGrad off;
  std::vector<Tensor> found(texts.size());
  const int64_t limit = token_limit(model(), *tokenizer_, max_length);
  for_each_batch(model(), *tokenizer_, texts, pairs, limit, batch_tokens, [&](const data::TokenBatch& batch) {
    const Tensor features = model().features(batch).to(DType::kFloat32).to(Device());
    for (size_t i = 0; i < batch.rows.size(); ++i)
      found[static_cast<size_t>(batch.rows[i])] = features[static_cast<int64_t>(i)];
  });
  return texts.empty() ? Tensor() : stack(found, 0);
}

}  // namespace tern::models
