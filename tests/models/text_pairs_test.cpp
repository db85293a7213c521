// Pairs of texts through pipelines: the logits are those of transformers (tests/golden/make_pairs.py).

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tern/core/io/json.h"
#include "tern/data/tokenizers/pipeline/tokenizer_json.h"
#include "tern/models/bert/bert.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/models/text/text_task.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class TextPairs : public testing::Test {
 protected:
  TextPairs() {
    for (const json& pair : golden_["pairs"]) {
      first_.push_back(pair[0]);
      second_.push_back(pair[1]);
    }
  }

  TextPipeline pipeline(const std::string& name) const {
    const fs::path dir = folder_.path() / name;
    fs::create_directories(dir);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(kGolden + name + "/" + file, dir / file, fs::copy_options::overwrite_existing);
    if (name.ends_with("roberta_classifier"))
      std::ofstream(dir / "tokenizer.json") << golden_["roberta tokenizer"].dump();
    else
      fs::copy_file(kGolden + "sentences/vocab.txt", dir / "vocab.txt", fs::copy_options::overwrite_existing);
    TextPipeline loaded = TextPipeline::load(dir.string());
    loaded.model().eval();
    return loaded;
  }

  const json golden_ = read_json_object(kGolden + "pairs/logits.json");
  const int64_t most_ = golden_["max_length"].get<int64_t>();
  std::vector<std::string> first_, second_;
  test::TemporaryFolder folder_;
};

TEST_F(TextPairs, LogitsOfTransformers) {
  ASSERT_EQ(golden_["logits"].size(), 3u);
  for (const auto& [name, logits] : golden_["logits"].items()) {
    SCOPED_TRACE(name);
    const TextPipeline model = pipeline(name);
    for (const int64_t batch_tokens : {16384, 30}) {
      const std::vector<Prediction> found = model.predict_pairs(first_, second_, most_, batch_tokens);
      ASSERT_EQ(found.size(), logits.size());
      for (size_t i = 0; i < found.size(); ++i)
        for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(found[i].logits[k], logits[i][k].get<double>(), 1e-5) << i;
    }
    const Tensor by_hand = model.model().forward_head(model.pair_features(first_, second_, most_));
    EXPECT_NEAR(by_hand[7][1].item<double>(), logits[7][1].get<double>(), 1e-5);
  }
  const TextPipeline model = pipeline("bert/bert_classifier");
  EXPECT_TRUE(model.predict_pairs({}, {}).empty());
  EXPECT_NE(model.predict_pairs({"a cat"}, {""})[0].logits, model.predict({"a cat"})[0].logits);
  test::expect_contains(test::error_of([&] { model.predict_pairs({"a"}, {}); }), {"as many", "got 1 and 0"});
  test::expect_contains(test::error_of([&] { model.pair_features({}, {"a"}); }), {"as many", "got 0 and 1"});
}

/// Evaluation reads the types of a tokenized set, in packed batches; training also in padded ones.
TEST_F(TextPairs, EvaluationAndTrainingReadTheTypes) {
  const TextPipeline model = pipeline("bert/bert_classifier");
  data::TextSet set;
  for (size_t i = 0; i < first_.size(); ++i) set.add(first_[i], second_[i], static_cast<int32_t>(i % 3));
  data::TokenizeOptions options = data::tokenize_options(model.tokenizer(), most_);
  options.pair = pair_pattern(model.model(), model.tokenizer());
  options.tokenizer_key = "";
  const auto encode = [&](std::string_view text, std::vector<int32_t>& ids) { model.tokenizer().encode(text, ids); };
  const auto tokens = std::make_shared<const data::TokenSet>(data::tokenize(set, encode, options));
  double loss = 0;
  std::vector<int32_t> rows;
  for (size_t i = 0; i < first_.size(); ++i) {
    const std::vector<double> logits = golden_["logits"]["bert/bert_classifier"][i];
    double sum = 0;
    for (const double v : logits) sum += std::exp(v);
    loss += (std::log(sum) - logits[i % 3]) / static_cast<double>(first_.size());
    rows.push_back(static_cast<int32_t>(i));
  }
  EXPECT_NEAR(evaluate(model.model(), tokens, set.labels, rows, 40, 0).loss, loss, 1e-5);
  for (const int64_t batch_size : {0, 20}) {
    TextTask task(model.model(), tokens, set.labels, rows, {}, 0,
                  {.epochs = 1, .batch_size = batch_size, .batch_tokens = 400, .workers = 0});
    ASSERT_EQ(task.steps(0), 1);
    task.begin_epoch(0);
    ASSERT_TRUE(task.next_batch());
    EXPECT_NEAR(task.batch().loss().item<double>(), loss, 1e-5) << batch_size;
  }
}

TEST_F(TextPairs, TypesThatTheModelDoesNotHave) {
  const TextPipeline model = pipeline("bert/bert_classifier");
  const json root = read_json_object(kGolden + "pairs/tokens.json");
  for (const json& entry : root["tokenizers"]) {
    if (!entry.contains("tokenizer")) continue;
    const auto tokenizer = data::TokenizerJson::from_text(entry["tokenizer"].dump());
    const int32_t greatest = tokenizer.pair().greatest_type();
    const std::string error = test::error_of([&] { pair_pattern(model.model(), tokenizer); });
    if (greatest < 2)
      EXPECT_EQ(error, "no error");
    else
      test::expect_contains(error, {"the type " + std::to_string(greatest), "type_vocab_size"});
    EXPECT_EQ(pair_pattern(pipeline("distilbert_gelu").model(), tokenizer).greatest_type(), 0);
  }
}

}  // namespace
}  // namespace tern::models
