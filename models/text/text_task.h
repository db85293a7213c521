#pragma once
// Training and evaluation on rows of a tokenized set.

#include <functional>
#include <memory>
#include <vector>

#include "tern/data/loaders/token_loader.h"
#include "tern/models/model.h"
#include "tern/models/trainer/planned_task.h"

namespace tern::models {

using TextObjective = Objective<data::TokenBatch>;
/// Changes a batch on the CPU, in training and evaluation: TokenLoaderOptions::transform.
using TextTransform = std::function<void(data::TokenBatch& batch)>;
/// What the model learns, by its label_kind(): cross entropy of a batch's labels, whose metric is the accuracy; or
/// binary cross entropy of several labels, with the micro F1, or the squared error of numbers, with R2. These read the
/// targets that text_targets() puts into a batch.
TextObjective text_objective(const SequenceClassifier& model);
/// Replaces a batch's labels by rows of targets, float32 [texts, columns]: those of data::TargetSet.
TextTransform text_targets(const Tensor& targets);

/// Packed batches for evaluation and prediction, longest sequences first, of about batch_tokens tokens.
data::TokenLoader evaluation_loader(const std::shared_ptr<const data::TokenSet>& tokens,
                                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows,
                                    int64_t batch_tokens, int32_t pad_id, const TextTransform& transform = {});

/// Loss and metric of text_objective() over the given rows, in batches of about batch_tokens tokens. labels may be
/// empty when `transform` gives targets.
Evaluation evaluate(SequenceClassifier& model, const std::shared_ptr<const data::TokenSet>& tokens,
                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows, int64_t batch_tokens,
                    int32_t pad_id, const EvaluateOptions& options = {}, const TextTransform& transform = {});

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
  TextTransform transform = {};
  EvaluateOptions validation = {};
  std::function<void()> between = {};  // called before each epoch that is planned ahead (data::BatchPlan); may throw
};

class TextTask final : public PlannedTask<data::TokenBatch> {
 public:
  /// text_objective(): one label for each text; or labels empty, and text_targets() in options.transform.
  TextTask(SequenceClassifier& model, const std::shared_ptr<const data::TokenSet>& tokens,
           const std::vector<int32_t>& labels, const std::vector<int32_t>& train_rows,
           std::vector<int32_t> validation_rows, int32_t pad_id, const TextTaskOptions& options);
  /// Anything else: the objective reads what options.transform puts into a batch. labels may be empty.
  TextTask(nn::Module& model, TextObjective objective, const std::shared_ptr<const data::TokenSet>& tokens,
           const std::vector<int32_t>& labels, const std::vector<int32_t>& train_rows,
           std::vector<int32_t> validation_rows, int32_t pad_id, const TextTaskOptions& options);

  /// Tokens.
  int64_t items(int64_t epoch, int64_t batch) const override;
  const data::BatchPlan& plan() const override { return loader_.plan(); }

 private:
  data::BatchSource<data::TokenBatch> training_batches(int64_t epoch, const data::BatchStripe& stripe) override;
  data::BatchSource<data::TokenBatch> evaluation_batches(const std::vector<int32_t>& rows) const override;

  std::shared_ptr<const data::TokenSet> tokens_;
  std::vector<int32_t> labels_;
  int32_t pad_id_;
  TextTaskOptions options_;
  data::TokenLoader loader_;
};

}  // namespace tern::models
