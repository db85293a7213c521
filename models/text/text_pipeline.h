#pragma once
// A text classifier as it is used: model, tokenizer and label names in one folder.

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/loaders/token_loader.h"
#include "tern/data/tokenizers/tokenizer.h"
#include "tern/models/log.h"
#include "tern/models/prediction.h"
#include "tern/models/pretrained.h"

namespace tern::models {

/// The most tokens of a text: max_length (0: any number), but at most what the model takes and the tokenizer's files
/// say.
int64_t token_limit(const TextModel& model, const data::Tokenizer& tokenizer, int64_t max_length = 0);
/// How the model reads two texts: by the tokenizer's pair(), without types where the model has none, as transformers
/// does for DistilBERT and RoBERTa. Throws Error where the tokenizer gives a type that the model does not have.
data::PairPattern pair_pattern(const TextModel& model, const data::Tokenizer& tokenizer);
/// The token that fills up batches, which no result depends on: [PAD], or 0 without one.
int32_t filler(const data::Tokenizer& tokenizer);
/// Throws Error if the vocabulary has more tokens than the model's embedding has rows; says in a line of `log` if it
/// has fewer.
void check_vocabulary(const TextModel& model, const data::Tokenizer& tokenizer, const std::string& name = "",
                      const Log& log = {});
/// Calls `use` for packed batches on the model's device that have each text once, cut to `limit` tokens; batch.rows are
/// the texts' numbers. pairs: empty, or the second text of each sequence.
void for_each_batch(const TextModel& model, const data::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                    const std::vector<std::string>& pairs, int64_t limit, int64_t batch_tokens,
                    const std::function<void(const data::TokenBatch& batch)>& use);

/// A model of a text family with its tokenizer, stored as a folder with config.json, model.safetensors (or
/// pytorch_model.bin) and the tokenizer's files (data::read_tokenizer).
class TextPipeline {
 public:
  /// Throws Error if the vocabulary has more tokens than the model's embedding has rows; says in a line of `log`, with
  /// the name, if it has fewer.
  TextPipeline(std::unique_ptr<SequenceClassifier> model, std::shared_ptr<const data::Tokenizer> tokenizer,
               const std::string& name = "", const Log& log = {});
  template <std::derived_from<data::Tokenizer> T>
  TextPipeline(std::unique_ptr<SequenceClassifier> model, T tokenizer)
      : TextPipeline(std::move(model), std::make_shared<const T>(std::move(tokenizer))) {}
  /// Of a folder, or of an ONNX file with the tokenizer in its folder.
  static TextPipeline load(const std::string& path, const BuildOptions& options = {});
  /// Writes all files that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  SequenceClassifier& model() const {
    TERN_CHECK(model_, "TextPipeline: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }

  /// Predictions in the order of the texts. Texts are sorted by length and packed into batches of about batch_tokens
  /// tokens, and truncated to max_length tokens (0: the model's maximum).
  std::vector<Prediction> predict(const std::vector<std::string>& texts, int64_t max_length = 0,
                                  int64_t batch_tokens = 16384) const;
  /// The same of pairs of texts: texts[i] and pairs[i] are one sequence, joined by pair_pattern(). Of a pair that is
  /// too long the longer text is cut first. Throws Error unless there are as many of both.
  std::vector<Prediction> predict_pairs(const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                                        int64_t max_length = 0, int64_t batch_tokens = 16384) const;
  /// SequenceClassifier::features() of the texts in their order, float32 [texts, width] on the CPU; undefined without
  /// texts. Batches are predict()'s.
  Tensor features(const std::vector<std::string>& texts, int64_t max_length = 0, int64_t batch_tokens = 16384) const;
  /// The same of pairs, as predict_pairs() reads them.
  Tensor pair_features(const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                       int64_t max_length = 0, int64_t batch_tokens = 16384) const;

 private:
  /// pairs: empty, or as many as texts.
  std::vector<Prediction> predict_any(const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                                      int64_t max_length, int64_t batch_tokens) const;
  Tensor features_of_any(const std::vector<std::string>& texts, const std::vector<std::string>& pairs,
                         int64_t max_length, int64_t batch_tokens) const;

  std::unique_ptr<SequenceClassifier> model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
};

}  // namespace tern::models
