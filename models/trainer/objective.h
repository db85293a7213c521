#pragma once
// What is learnt: a model's output for a batch, the loss, and what validation counts. One struct serves labels,
// numbers, labels of tokens and masked words.

#include <functional>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/loss/cross_entropy.h"
#include "tern/data/loaders/prefetch.h"
#include "tern/models/trainer/evaluation.h"
#include "tern/models/trainer/step_input.h"
#include "tern/nn/module.h"

namespace tern::models {

template <class Batch>
struct Objective {
  /// The model's output, of any shape.
  std::function<Tensor(const Batch& batch)> forward;
  /// The mean over the batch's examples, recorded for backward.
  std::function<Tensor(const Tensor& output, const Batch& batch)> loss;
  /// The score of a float32 output, for validation. The epoch with the greatest mean metric is the best.
  std::function<Score(const Tensor& output, const Batch& batch)> score;
  /// The examples that the loss of a batch of these rows is the mean of; empty: one for each row. Batches of one step
  /// are weighted by it.
  std::function<int64_t(std::span<const int32_t> rows)> examples = {};
  /// A metric that is no mean: a function of all Score::outcomes; Score::metric is then not read.
  double (*metric_of)(const Outcomes& outcomes) = nullptr;
  /// False: forward reads lengths on the host, so that batches are not filled up to one shape and steps not captured.
  bool fixed_shapes = true;
};

/// Cross entropy, the number of right answers, and the labels that were predicted. logits: float32 [n, labels]; labels:
/// int64 [n], where kIgnoredLabel (data/samples/batch_tensors.h) is no example. A row with NaN or an infinity, or of
/// -infinity alone, has no softmax: it is not finite, and no answer.
Score score_labels(const Tensor& logits, const Tensor& labels);

/// One label for each example, in the batch's member `labels`.
template <class Batch>
Objective<Batch> single_label(std::function<Tensor(const Batch& batch)> forward) {
  return {.forward = std::move(forward),
          .loss = [](const Tensor& logits, const Batch& batch) { return cross_entropy(logits, batch.labels); },
          .score = [](const Tensor& logits, const Batch& batch) { return score_labels(logits, batch.labels); }};
}

// Targets float32 [n, columns] of outputs [n, columns]; a row of NaN, which only fills a batch, is no example.
/// The mean over examples and labels of binary cross entropy (targets 0 and 1 of logits), and the squared error of
/// numbers: the losses of transformers' multi_label_classification and regression. 0 without examples. Throw Error when
/// the shapes differ.
Tensor several_labels_loss(const Tensor& logits, const Tensor& targets);
Tensor numbers_loss(const Tensor& output, const Tensor& targets);
/// The same losses of float32 outputs, and the outcomes. A row with an output that is NaN or infinite is not finite.
Score score_several_labels(const Tensor& logits, const Tensor& targets);
Score score_numbers(const Tensor& output, const Tensor& targets);

/// Any number of labels for each example: 0 or 1 for each, in the batch's member `labels`.
template <class Batch>
Objective<Batch> several_labels(std::function<Tensor(const Batch& batch)> forward) {
  return {.forward = std::move(forward),
          .loss = [](const Tensor& logits, const Batch& batch) { return several_labels_loss(logits, batch.labels); },
          .score = [](const Tensor& logits, const Batch& batch) { return score_several_labels(logits, batch.labels); },
          .metric_of = micro_f1};
}

/// Numbers, in the batch's member `labels`.
template <class Batch>
Objective<Batch> numbers(std::function<Tensor(const Batch& batch)> forward) {
  return {.forward = std::move(forward),
          .loss = [](const Tensor& output, const Batch& batch) { return numbers_loss(output, batch.labels); },
          .score = [](const Tensor& output, const Batch& batch) { return score_numbers(output, batch.labels); },
          .metric_of = comparable_r2};
}

struct EvaluateOptions {
  DType dtype = DType::kFloat32;           // of autocast; float32: none
  std::function<bool()> should_stop = {};  // called after every batch; true ends it early with meaningless numbers
  // With several processes each evaluates the batches of own_batches(), and the result is that of all, with the same
  // bits for any number of them. All of them evaluate the same rows. Null: this process alone.
  dist::Communicator* group = nullptr;
};

/// The batches that this process computes of an evaluation of so many.
data::BatchStripe own_batches(const EvaluateOptions& options, int64_t batches);

/// Loss and metric over the batches of a source: this process's. Records no gradients; sets evaluation mode and
/// restores the mode afterwards.
template <class Batch>
Evaluation evaluate(nn::Module& model, const Objective<Batch>& objective, const data::BatchSource<Batch>& next,
                    const EvaluateOptions& options = {}) {
  const NoGrad off;
  const bool training = model.is_training();
  model.eval();
  Tally tally;
  while (const std::optional<Batch> batch = next()) {
    const Tensor output =
        autocast(model.device(), options.dtype, [&] { return objective.forward(*batch); }).to(DType::kFloat32);
    tally.add(objective.score(output, *batch));
    if (!options.should_stop || !options.should_stop()) continue;
    tally.stop();
    break;
  }
  model.train(training);
  return tally.result(options.group, objective.metric_of);
}

}  // namespace tern::models
