// Learning problems other than one label for each text: numbers, and a label for each token. Everything about them is
// in this file: a module with its head, the targets, the loss, the metric.

#include <gtest/gtest.h>

#include <cmath>
#include <ranges>

#include "tern/core/ops/ops.h"
#include "tern/models/text/text_task.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"

namespace tern::models {
namespace {

constexpr int64_t kVocabulary = 31, kWidth = 5;
constexpr int32_t kRows = 40;

/// Outputs for every token: a row of a table, through a linear head.
class Words final : public nn::Module {
 public:
  Words(const nn::Scope& s, int64_t outputs)
      : Module(s), word(sub("word"), kVocabulary, kWidth), head(sub("head"), kWidth, outputs) {}
  Tensor forward(const Tensor& tokens) const { return head.forward(word.forward(tokens)); }

  /// The same for one token, in double precision.
  std::vector<double> by_hand(int64_t token) const {
    const auto table = find(state_dict(), "word.weight").to_vector<double>();
    const auto weight = find(state_dict(), "head.weight").to_vector<double>();
    std::vector<double> outputs = find(state_dict(), "head.bias").to_vector<double>();
    for (size_t out = 0; out < outputs.size(); ++out)
      for (size_t k = 0; k < kWidth; ++k)
        outputs[out] += weight[out * kWidth + k] * table[static_cast<size_t>(token) * kWidth + k];
    return outputs;
  }

  nn::Embedding word;
  nn::Linear head;
};

/// Rows of 1 to 9 random tokens.
std::shared_ptr<const data::TokenSet> random_rows() {
  std::mt19937_64 random = fresh_random(1);
  auto tokens = std::make_shared<data::TokenSet>();
  for (int32_t row = 0; row < kRows; ++row) {
    for (uint64_t i = 0; i <= random() % 9; ++i) tokens->ids.push_back(static_cast<int32_t>(random() % kVocabulary));
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
  }
  return tokens;
}

std::vector<int32_t> rows(int32_t begin, int32_t end) {
  const auto all = std::views::iota(begin, end);
  return {all.begin(), all.end()};
}

/// The mean loss that training reports for each epoch.
class Losses final : public TrainObserver {
 public:
  void on_step(const StepMetrics& m) override {
    by_epoch.resize(static_cast<size_t>(m.epoch), 0);
    by_epoch.back() += m.loss;
  }
  std::vector<double> by_epoch;
};

/// Sums over rows, computed in the test.
struct Sums {
  double loss = 0, metric = 0;
  int64_t examples = 0;
};
using Rows = std::span<const int32_t>;

/// Compares every batch of an epoch, and the validation of rows 30 and above.
void expect_as_by_hand(TextTask& task, int64_t epoch, const std::function<Sums(Rows)>& by_hand) {
  const auto near = [](double got, double want) { return std::abs(got - want) <= 1e-5 * (1 + std::abs(want)); };
  task.begin_epoch(epoch);
  for (int64_t step = 0; step < task.steps(epoch); ++step) {
    ASSERT_TRUE(task.next_batch());
    const Sums want = by_hand(task.plan().epoch(epoch)->batch(step));
    EXPECT_EQ(task.examples(epoch, step), want.examples);
    if (want.examples == 0) continue;
    EXPECT_PRED2(near, task.batch().loss().item<double>(), want.loss / static_cast<double>(want.examples));
  }
  EXPECT_FALSE(task.next_batch());
  const Sums want = by_hand(rows(30, kRows));
  const Evaluation found = task.validate();
  EXPECT_EQ(found.examples, want.examples);
  EXPECT_PRED2(near, found.loss, want.loss / static_cast<double>(want.examples));
  EXPECT_PRED2(near, found.metric, want.metric / static_cast<double>(want.examples));
}

// --- Regression: a number for each text, read from its first token.

double target_of(const data::TokenSet& tokens, int32_t row) { return 0.1 * tokens.row(row)[0] - 1; }

TextTask regression(Words& model, const std::shared_ptr<const data::TokenSet>& tokens, TextTaskOptions options) {
  options.transform = [tokens](data::TokenBatch& batch) {
    std::vector<float> targets(static_cast<size_t>(batch.sequences()));
    for (size_t i = 0; i < batch.rows.size(); ++i) targets[i] = static_cast<float>(target_of(*tokens, batch.rows[i]));
    batch.labels = from_vector(targets, {batch.sequences()});
  };
  TextObjective objective;
  objective.forward = [&model](const data::TokenBatch& batch) {
    return index_select(model.forward(batch.tokens), 0, batch.first_rows).squeeze(1);
  };
  objective.loss = [](const Tensor& output, const data::TokenBatch& batch) { return mse_loss(output, batch.labels); };
  objective.score = [](const Tensor& output, const data::TokenBatch& batch) -> Score {
    const Tensor error = output - batch.labels;
    return {.loss = sum(error * error).item<double>(),
            .metric = -sum(abs(error)).item<double>(),
            .examples = batch.sequences()};
  };
  return {model, objective, tokens, {}, rows(0, 30), rows(30, kRows), 0, options};
}

TEST(Tasks, RegressionIsByHand) {
  Words model(nn::Scope({.generator = test::fresh_generator(2)}), 1);
  const auto tokens = random_rows();
  const auto by_hand = [&](Rows batch) {
    Sums sums;
    for (const int32_t row : batch) {
      const double error = model.by_hand(tokens->row(row)[0])[0] - target_of(*tokens, row);
      sums.loss += error * error;
      sums.metric -= std::abs(error);
      ++sums.examples;
    }
    return sums;
  };
  for (const int64_t batch_size : {0, 7}) {
    TextTask task = regression(model, tokens, {.epochs = 2, .batch_size = batch_size, .batch_tokens = 23});
    expect_as_by_hand(task, 1, by_hand);
  }
}

// --- Token labels: the kind of every token, but none for token 0.

int64_t kind_of(int64_t token) { return token == 0 ? data::kIgnoredLabel : token % 3; }

TextTask token_labels(Words& model, const std::shared_ptr<const data::TokenSet>& tokens, TextTaskOptions options) {
  options.transform = [](data::TokenBatch& batch) {
    std::vector<int64_t> kinds;
    const std::vector<int64_t> ids = batch.tokens.to_vector<int64_t>(),
                               keys = batch.layout.row_keys.to_vector<int64_t>();
    const int64_t rows = batch.layout.offsets.to_vector<int64_t>().back();
    const auto mask = batch.padded() ? batch.layout.key_mask.to_vector<int64_t>() : std::vector<int64_t>(ids.size(), 1);
    for (size_t i = 0; i < ids.size(); ++i)
      kinds.push_back(static_cast<int64_t>(i) < rows && keys[i] >= 0 && mask[i] ? kind_of(ids[i])
                                                                                : data::kIgnoredLabel);
    batch.labels = from_vector(kinds, {batch.tokens.size(0)});
  };
  auto objective =
      single_label<data::TokenBatch>([&model](const data::TokenBatch& batch) { return model.forward(batch.tokens); });
  objective.examples = [tokens](Rows batch) {
    int64_t labelled = 0;
    for (const int32_t row : batch)
      for (const int32_t token : tokens->row(row)) labelled += token != 0;
    return labelled;
  };
  return {model, objective, tokens, {}, rows(0, 30), rows(30, kRows), 0, options};
}

TEST(Tasks, TokenLabelsAreByHand) {
  Words model(nn::Scope({.generator = test::fresh_generator(4)}), 3);
  const auto tokens = random_rows();
  const auto by_hand = [&](Rows batch) {
    Sums sums;
    for (const int32_t row : batch)
      for (const int32_t token : tokens->row(row)) {
        if (token == 0) continue;
        const std::vector<double> logits = model.by_hand(token);
        double sum = 0;
        for (const double logit : logits) sum += std::exp(logit);
        sums.loss += std::log(sum) - logits[static_cast<size_t>(kind_of(token))];
        sums.metric += std::max_element(logits.begin(), logits.end()) - logits.begin() == kind_of(token);
        ++sums.examples;
      }
    return sums;
  };
  for (const int64_t batch_size : {0, 7}) {
    TextTask task = token_labels(model, tokens, {.epochs = 1, .batch_size = batch_size, .batch_tokens = 23});
    expect_as_by_hand(task, 0, by_hand);
  }
}

/// A step of several batches is that of their tokens together, however many each has.
TEST(Tasks, TokenLabelsAreWeightedByTheirTokens) {
  const auto tokens = random_rows();
  Losses whole, in_parts;
  for (Losses* losses : {&whole, &in_parts}) {
    Words model(nn::Scope({.generator = test::fresh_generator(5)}), 3);
    const bool parts = losses == &in_parts;
    TextTask task = token_labels(model, tokens, {.epochs = 1, .batch_size = parts ? 5 : 15, .shuffle = false});
    train(task, {.optimizer = "sgd", .lr = 0.1, .accumulate = parts ? 3 : 1}, *losses);
  }
  ASSERT_EQ(whole.by_epoch.size(), 1u);
  EXPECT_NEAR(in_parts.by_epoch[0], whole.by_epoch[0], 1e-5);
}

TEST(Tasks, BothAreLearnt) {
  for (const auto& [name, task_of, outputs] :
       {std::tuple("regression", &regression, 1), {"labels", &token_labels, 3}}) {
    SCOPED_TRACE(name);
    Words model(nn::Scope({.generator = Generator(3)}), outputs);  // a fixed seed: the loss must fall so far
    TextTask task = task_of(model, random_rows(), {.epochs = 60, .batch_tokens = 40});
    Losses losses;
    const TrainResult result = train(task, {.lr = 0.05}, losses);
    EXPECT_LT(losses.by_epoch.back(), 0.1 * losses.by_epoch.front());
    EXPECT_EQ(result.best.metric, task.validate().metric);  // the best epoch's weights are left
  }
}

/// A captured step keeps its tensors in fixed places; the loss is that of what is in them, and leaves the batch as it
/// is.
TEST(StepInput, OtherTensorsTakeThePlacesOfTheBatchs) {
  struct Pairs {
    Tensor x, y;
    SequenceLayout layout;
    std::vector<Tensor*> tensors() { return {&x, &y}; }
  };
  const auto number = [](double value) { return full({}, value); };
  Pairs pairs{number(3), number(5), {}};
  pairs.layout.max_length = 7;
  const StepInput input(pairs, [](const Pairs& batch) {
    return batch.x * 10 + batch.y + static_cast<double>(100 * batch.layout.max_length);
  });
  EXPECT_EQ(input.max_length, 7);
  ASSERT_EQ(input.tensors.size(), 2u);
  EXPECT_EQ(input.tensors[1].item<double>(), 5);
  EXPECT_EQ(input.loss_of(std::vector{number(1), number(2)}, 4).item<double>(), 412);
  EXPECT_EQ(StepInput(input).loss().item<double>(), 735);
}

}  // namespace
}  // namespace tern::models
