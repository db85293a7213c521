#include "tern/models/text/text_task.h"

#include <algorithm>
#include <limits>

#include "tern/data/datasets/target_set.h"

namespace tern::models {
namespace {

/// Longest sequences first: batches have similar lengths, and a lack of memory shows in the first batch.
std::vector<int32_t> by_length(std::vector<int32_t> rows, const std::vector<int32_t>& lengths) {
  std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return rows;
}

data::BatchPlan training_plan(const data::TokenSet& tokens, const std::vector<int32_t>& rows,
                              const TextTaskOptions& options) {
  data::BatchPlanOptions plan;
  plan.batch_size = options.batch_size;
  plan.batch_tokens = options.batch_size > 0 ? 0 : options.batch_tokens;
  plan.shuffle = options.shuffle;
  plan.group_by_length = options.group_by_length;
  plan.seed = options.seed;
  return {rows, tokens.lengths(), plan, options.epochs, options.between};
}

}  // namespace

TextObjective text_objective(const SequenceClassifier& model) {
  const auto forward = [&model](const data::TokenBatch& batch) { return model.forward(batch); };
  TextObjective objective = model.label_kind() == data::LabelKind::kSeveral  ? several_labels<data::TokenBatch>(forward)
                            : model.label_kind() == data::LabelKind::kNumber ? numbers<data::TokenBatch>(forward)
                                                                             : single_label<data::TokenBatch>(forward);
  objective.fixed_shapes = !model.reads_lengths();
  return objective;
}

TextTransform text_targets(const Tensor& targets) {
  return data::row_targets(targets, std::numeric_limits<float>::quiet_NaN());
}

data::TokenLoader evaluation_loader(const std::shared_ptr<const data::TokenSet>& tokens,
                                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows,
                                    int64_t batch_tokens, int32_t pad_id, const TextTransform& transform) {
  const std::vector<int32_t> lengths = tokens->lengths();
  int64_t longest = 1;
  for (const int32_t row : rows) longest = std::max<int64_t>(longest, lengths[static_cast<size_t>(row)]);
  const data::BatchPlanOptions plan{.batch_tokens = std::max(batch_tokens, longest), .shuffle = false, .window = 1};
  return {tokens,
          labels,
          data::BatchPlan(by_length(rows, lengths), lengths, plan, 1),
          {.pad_id = pad_id, .workers = 1, .transform = transform}};
}

Evaluation evaluate(SequenceClassifier& model, const std::shared_ptr<const data::TokenSet>& tokens,
                    const std::vector<int32_t>& labels, const std::vector<int32_t>& rows, int64_t batch_tokens,
                    int32_t pad_id, const EvaluateOptions& options, const TextTransform& transform) {
  const data::TokenLoader loader = evaluation_loader(tokens, labels, rows, batch_tokens, pad_id, transform);
  return evaluate(model, text_objective(model),
                  data::source_of(loader.epoch(0, own_batches(options, loader.steps(0))), model.device()), options);
}

int64_t evaluation_tokens(int64_t batch_tokens) { return std::clamp<int64_t>(batch_tokens, 4096, 16384); }

TextTask::TextTask(SequenceClassifier& model, const std::shared_ptr<const data::TokenSet>& tokens,
                   const std::vector<int32_t>& labels, const std::vector<int32_t>& train_rows,
                   std::vector<int32_t> validation_rows, int32_t pad_id, const TextTaskOptions& options)
    : TextTask(model, text_objective(model), tokens, labels, train_rows, std::move(validation_rows), pad_id, options) {}

TextTask::TextTask(nn::Module& model, TextObjective objective, const std::shared_ptr<const data::TokenSet>& tokens,
                   const std::vector<int32_t>& labels, const std::vector<int32_t>& train_rows,
                   std::vector<int32_t> validation_rows, int32_t pad_id, const TextTaskOptions& options)
    : PlannedTask(model, std::move(objective), std::move(validation_rows), options.validation),
      tokens_(tokens),
      labels_(labels),
      pad_id_(pad_id),
      options_(options),
      loader_(tokens_, labels_, training_plan(*tokens_, train_rows, options),
              {.pad_id = pad_id,
               .fixed_capacity = fixed_shapes(),
               .workers = options.workers,
               .transform = options.transform}) {}

int64_t TextTask::items(int64_t epoch, int64_t batch) const {
  int64_t tokens = 0;
  const std::shared_ptr<const data::EpochPlan> planned = plan().epoch(epoch);
  for (const int32_t row : planned->batch(batch)) tokens += static_cast<int64_t>(tokens_->row(row).size());
  return tokens;
}

data::BatchSource<data::TokenBatch> TextTask::training_batches(int64_t epoch, const data::BatchStripe& stripe) {
  return data::source_of(loader_.epoch(epoch, stripe), device());
}

data::BatchSource<data::TokenBatch> TextTask::evaluation_batches(const std::vector<int32_t>& rows) const {
  const data::TokenLoader loader =
      evaluation_loader(tokens_, labels_, rows, evaluation_tokens(options_.batch_tokens), pad_id_, options_.transform);
  return data::source_of(loader.epoch(0, own_batches(options_.validation, loader.steps(0))), device());
}

}  // namespace tern::models
