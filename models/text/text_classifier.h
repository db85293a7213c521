#pragma once
// A text classifier as a user meets it: model, tokenizer and label names of one folder.

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
  int64_t label = 0;  // of the largest logit
  double score = 0;   // its softmax probability
  std::vector<double> logits;
};

/// DistilBERT with its tokenizer: a folder with config.json, model.safetensors (or pytorch_model.bin),
/// vocab.txt (or tokenizer.json).
class TextClassifier {
 public:
  TextClassifier(std::unique_ptr<DistilBert> model, data::WordPiece tokenizer);
  /// Throws Error when the vocabulary has more tokens than the model has rows.
  static TextClassifier load(const std::string& dir, const FromPretrainedOptions& options = {});
  /// Writes everything that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  DistilBert& model() const {
    TERN_CHECK(model_, "TextClassifier: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const data::WordPiece& tokenizer() const { return tokenizer_; }

  /// Predictions of the texts, in their order. Packed by length into batches of about batch_tokens tokens; texts are
  /// cut to max_length tokens (0: what the model takes).
  std::vector<TextPrediction> predict(const std::vector<std::string>& texts, int64_t max_length = 0,
                                      int64_t batch_tokens = 16384) const;

 private:
  std::unique_ptr<DistilBert> model_;
  data::WordPiece tokenizer_;
};

/// Loss and accuracy over the given rows. Runs without recording, in batches of about batch_tokens tokens, longest
/// sequences together; puts the model into evaluation mode and back. Ends early, with numbers to throw away, when
/// `should_stop`, asked after every batch, says so.
Evaluation evaluate(DistilBert& model, const std::shared_ptr<const data::TokenSet>& tokens,
                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows, int64_t batch_tokens,
                    int32_t pad_id, DType dtype = DType::kFloat32, const std::function<bool()>& should_stop = {});

/// The tokens of a batch when what was trained in batches of batch_tokens is evaluated.
int64_t evaluation_tokens(int64_t batch_tokens);

/// How the texts are batched for training.
struct TextTaskOptions {
  int64_t epochs = 3;
  int64_t batch_size = 0;       // sequences, padded to the longest; or
  int64_t batch_tokens = 8192;  // packed
  bool shuffle = true;
  bool group_by_length = false;  // with batch_size: batches of similar lengths, less padding
  int workers = 2;
  uint64_t seed = 42;
  DType dtype = DType::kFloat32;           // of validation
  std::function<bool()> should_stop = {};  // ends a validation early
};

/// Training of a text classifier on rows of a tokenized set.
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
  /// A batch on its way to the model's device.
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
  std::optional<Stream> copies_;  // CUDA: batches travel beside the steps
  std::optional<Travelling> current_, ahead_;
};

}  // namespace tern::models
