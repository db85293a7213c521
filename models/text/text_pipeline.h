#pragma once
// A text classifier as it is used: model, tokenizer and label names in one folder.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/loaders/token_loader.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/models/prediction.h"
#include "tern/models/pretrained.h"

namespace tern::models {

/// A model of a text family with its tokenizer, stored as a folder with config.json, model.safetensors (or
/// pytorch_model.bin) and vocab.txt (or tokenizer.json).
class TextPipeline {
 public:
  /// Throws Error if the vocabulary has more tokens than the model's embedding has rows.
  TextPipeline(std::unique_ptr<SequenceClassifier> model, data::WordPiece tokenizer);
  static TextPipeline load(const std::string& dir, const BuildOptions& options = {});
  /// Writes all files that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  SequenceClassifier& model() const {
    TERN_CHECK(model_, "TextPipeline: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const data::WordPiece& tokenizer() const { return tokenizer_; }

  /// Predictions in the order of the texts. Texts are sorted by length and packed into batches of about batch_tokens
  /// tokens, and truncated to max_length tokens (0: the model's maximum).
  std::vector<Prediction> predict(const std::vector<std::string>& texts, int64_t max_length = 0,
                                  int64_t batch_tokens = 16384) const;
  /// SequenceClassifier::features() of the texts in their order, float32 [texts, width] on the CPU; undefined without
  /// texts. Batches are predict()'s.
  Tensor features(const std::vector<std::string>& texts, int64_t max_length = 0, int64_t batch_tokens = 16384) const;

 private:
  /// Calls `use` for batches on the model's device that have each text once; batch.rows are the texts' numbers.
  void for_each_batch(const std::vector<std::string>& texts, int64_t max_length, int64_t batch_tokens,
                      const std::function<void(const data::TokenBatch& batch)>& use) const;

  std::unique_ptr<SequenceClassifier> model_;
  data::WordPiece tokenizer_;
};

}  // namespace tern::models
