// TextPipeline: predictions do not depend on the rest of the batch; evaluation agrees with them.

#include "tern/models/text/text_pipeline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/places.h"

namespace tern::models {
namespace {

const std::string kModel = test::source_dir() + "/tests/golden/train_curve";

std::vector<std::string> texts(size_t n) {
  std::vector<std::string> result;
  for (size_t i = 0; i < n; ++i) {
    std::string text;
    for (size_t j = 0; j < i * 5 % 40; ++j) text += j % 3 == 0 ? "movie " : j % 3 == 1 ? "great " : "plot! ";
    result.push_back(text);
  }
  return result;
}

TEST(TextPipeline, PredictionsAreOfTheirTextAlone) {
  const TextPipeline pipeline = TextPipeline::load(kModel);
  pipeline.model().eval();
  const std::vector<std::string> all = texts(50);
  const std::vector<Prediction> one = pipeline.predict(all), small = pipeline.predict(all, 0, 16);
  ASSERT_EQ(one.size(), 50u);
  for (size_t i = 0; i < all.size(); ++i) {
    const Prediction alone = pipeline.predict({all[i]})[0];
    ASSERT_EQ(alone.logits.size(), 3u);
    double sum = 0;
    for (size_t k = 0; k < 3; ++k) {
      // About twenty roundings of numbers below 1.
      EXPECT_NEAR(one[i].logits[k], alone.logits[k], 20 * 0x1p-24);
      EXPECT_NEAR(small[i].logits[k], alone.logits[k], 20 * 0x1p-24);
      EXPECT_LE(alone.logits[k], alone.logits[static_cast<size_t>(alone.label)]);
      sum += std::exp(alone.logits[k] - alone.logits[static_cast<size_t>(alone.label)]);
    }
    EXPECT_NEAR(alone.score, 1 / sum, 1e-6);
  }
  EXPECT_TRUE(pipeline.predict({}).empty());
  // Truncated to the model's 32 positions, and to fewer on request.
  EXPECT_EQ(pipeline.predict({texts(8)[7] + " great"})[0].logits, pipeline.predict({texts(8)[7] + " plot"})[0].logits);
  EXPECT_EQ(pipeline.predict({"movie great"}, 3)[0].logits, pipeline.predict({"movie plot"}, 3)[0].logits);
  EXPECT_NE(pipeline.predict({"movie great"})[0].logits, pipeline.predict({"movie plot"})[0].logits);
}

/// They are the text's own, in the order of the texts, and the classifier's last layer makes logits of them.
TEST(TextPipeline, Features) {
  const TextPipeline pipeline = TextPipeline::load(kModel);
  pipeline.model().eval();
  const std::vector<std::string> all = texts(50);
  const Tensor features = pipeline.features(all);
  ASSERT_EQ(features.dim(), 2);
  ASSERT_EQ(features.size(0), 50);
  const StateView state = pipeline.model().state_dict();
  const Tensor by_hand = linear(features, find(state, "classifier.weight"), find(state, "classifier.bias"));
  EXPECT_EQ(pipeline.model().forward_head(features).to_vector<float>(), by_hand.to_vector<float>());
  const std::vector<Prediction> predictions = pipeline.predict(all);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < 3; ++k)
      EXPECT_NEAR(by_hand[static_cast<int64_t>(i)][static_cast<int64_t>(k)].item<double>(), predictions[i].logits[k],
                  20 * 0x1p-24);
  EXPECT_EQ(min(features).item<float>(), 0);  // behind ReLU
  EXPECT_GT(max(features).item<float>(), 0);
  EXPECT_FALSE(pipeline.features({}).defined());
}

TEST(TextPipeline, EvaluateAgreesWithPredict) {
  const TextPipeline pipeline = TextPipeline::load(kModel);
  const std::vector<std::string> all = texts(31);
  auto tokens = std::make_shared<data::TokenSet>();
  std::vector<int32_t> labels, rows;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto ids = pipeline.tokenizer().encode_special(all[i], 32);
    tokens->ids.insert(tokens->ids.end(), ids.begin(), ids.end());
    tokens->offsets.push_back(static_cast<int64_t>(tokens->ids.size()));
    labels.push_back(static_cast<int32_t>(i % 3));
    if (i % 4 != 0) rows.push_back(static_cast<int32_t>(i));
  }
  pipeline.model().eval();
  const auto predictions = pipeline.predict(all);
  double loss = 0;
  int correct = 0;
  for (const int32_t row : rows) {
    const Prediction& p = predictions[static_cast<size_t>(row)];
    double sum = 0;
    for (const double logit : p.logits) sum += std::exp(logit);
    loss += std::log(sum) - p.logits[static_cast<size_t>(labels[static_cast<size_t>(row)])];
    correct += p.label == labels[static_cast<size_t>(row)];
  }
  pipeline.model().train();
  for (const int64_t batch : {1, 64, 100000}) {
    const Evaluation result = evaluate(pipeline.model(), tokens, labels, rows, batch, 0);
    EXPECT_EQ(result.examples, static_cast<int64_t>(rows.size()));
    EXPECT_NEAR(result.loss, loss / static_cast<double>(rows.size()), 40 * 0x1p-24);
    EXPECT_EQ(result.metric, correct / static_cast<double>(rows.size()));
    EXPECT_TRUE(pipeline.model().is_training());  // restored; evaluation ran without dropout
  }
  const Evaluation none = evaluate(pipeline.model(), tokens, labels, {}, 64, 0);
  EXPECT_EQ(none.examples, 0);
  EXPECT_TRUE(std::isnan(none.loss) && std::isnan(none.metric));
  int asked = 0;
  evaluate(pipeline.model(), tokens, labels, rows, 1, 0, {.should_stop = [&] { return ++asked == 2; }});
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace tern::models
