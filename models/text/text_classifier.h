#pragma once
// Text classifier API: model, tokenizer and label names in one folder.

#include <memory>
#include <string>
#include <vector>

#include "tern/core/stream.h"
#include "tern/data/loader_tokens.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/trainer/trainer.h"

namespace tern::models {

struct TextPrediction {
  int64_t label = 0;  // index of the largest logit
  double score = 0;   // its softmax probability
  std::vector<double> logits;
};

/// DistilBERT with its tokenizer, stored as a folder with config.json, model.safetensors (or pytorch_model.bin) and
/// vocab.txt (or tokenizer.json).
class TextClassifier {
 public:
  TextClassifier(std::unique_ptr<DistilBert> model, data::WordPiece tokenizer);
  /// Throws Error if the vocabulary has more tokens than the model's embedding has rows.
  static TextClassifier load(const std::string& dir, const FromPretrainedOptions& options = {});
  /// Writes all files that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  DistilBert& model() const {
    TERN_CHECK(model_, "TextClassifier: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const data::WordPiece& tokenizer() const { return tokenizer_; }

  /// Predictions in the order of the texts. Texts are sorted by length and packed into batches of about batch_tokens
  /// tokens, and truncated to max_length tokens (0: the model's maximum).
  std::vector<TextPrediction> predict(const std::vector<std::string>& texts, int64_t max_length = 0,
                                      int64_t batch_tokens = 16384) const;

 private:
  std::unique_ptr<DistilBert> model_;
  data::WordPiece tokenizer_;
};

/// Loss and accuracy over the given rows. Records no gradients; batches of about batch_tokens tokens, longest sequences
/// first; sets evaluation mode and restores the mode afterwards. `should_stop` is called after every batch; if it
/// returns true, evaluation ends early with meaningless numbers.
Evaluation evaluate(DistilBert& model, const std::shared_ptr<const data::TokenSet>& tokens,
                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows, int64_t batch_tokens,
                    int32_t pad_id, DType dtype = DType::kFloat32, const std::function<bool()>& should_stop = {});

/// Tokens per evaluation batch for training batches of batch_tokens.
int64_t evaluation_tokens(int64_t batch_tokens);

/// Batching of texts for training.
struct TextTaskOptions {
  int64_t epochs = 3;
  int64_t batch_size = 0;       // sequences per batch, padded to the longest; or
  int64_t batch_tokens = 8192;  // tokens per batch, packed
  bool shuffle = true;
  bool group_by_length = false;  // with batch_size: batches of similar lengths, less padding
  int workers = 2;
  uint64_t seed = 42;
  DType dtype = DType::kFloat32;           // for validation
  std::function<bool()> should_stop = {};  // checked to end a validation early
};

/// Trains a text classifier on rows of a tokenized set.
class TextTask final : public TrainingTask {
 public:
  TextTask(DistilBert& model, std::shared_ptr<const data::TokenSet> tokens, std::vector<int32_t> labels,
           const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows, int32_t pad_id,
           const TextTaskOptions& options);

  nn::Module& module() override { return model_; }
  int64_t epochs() const override { return loader_.epochs(); }
  int64_t steps(int64_t epoch) const override { return loader_.steps(epoch); }
  void begin_epoch(int64_t epoch, const data::BatchStripe& stripe = {}) override;
  bool next_batch() override;
  TrainingBatch batch() const override;
  Tensor loss(const TrainingBatch& batch) override;
  bool fixed_shapes() const override { return fixed_; }
  int64_t items(int64_t epoch, int64_t batch) const override;
  int64_t examples(int64_t epoch, int64_t batch) const override {
    return static_cast<int64_t>(plan().epoch(epoch).batch(batch).size());
  }
  bool keyed_dropout() const override { return true; }
  bool can_validate() const override { return !validation_rows_.empty(); }
  Evaluation validate() override;
  const data::BatchPlan& plan() const { return loader_.plan(); }

 private:
  /// A batch that is being copied to the model's device.
  struct Travelling {
    data::TokenBatch batch;
    Event arrival;
  };
  void fetch_ahead();

  DistilBert& model_;
  const bool fixed_;
  std::shared_ptr<const data::TokenSet> tokens_;
  std::vector<int32_t> labels_, validation_rows_;
  int32_t pad_id_;
  TextTaskOptions options_;
  data::TokenLoader loader_;
  std::optional<data::BatchStream<data::TokenBatch>> stream_;
  std::optional<Stream> copies_;  // CUDA: copies overlap with the steps
  std::optional<Travelling> current_, ahead_;
};

}  // namespace tern::models
