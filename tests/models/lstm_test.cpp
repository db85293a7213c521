// The LSTM classifier of texts: what it computes, its files, and the program with it.

#include "tern/models/lstm/lstm.h"

#include <fstream>

#include "tern/core/ops/ops.h"
#include "tern/models/cli/program.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/state.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using test::error_of;
using test::has;

LstmConfig small_config(const std::string& pooling, bool bidirectional) {
  LstmConfig config;
  config.vocab_size = 20;
  config.max_positions = 9;
  config.embedding = 5;
  config.hidden = 6;
  config.layers = 2;
  config.pooling = pooling;
  config.bidirectional = bidirectional;
  config.initializer_range = 1;
  config.labels = {"a", "b", "c"};
  return config;
}

nn::Scope fresh_scope(DType dtype = float64) {
  return nn::Scope({.dtype = dtype, .generator = test::fresh_generator()});
}

data::TokenInput packed_input(const Tensor& tokens, const std::vector<int64_t>& lengths) {
  data::TokenInput input;
  input.tokens = tokens;
  input.layout = packed_layout(lengths);
  std::vector<int64_t> first;
  for (const int64_t offset : input.layout.offsets.to_vector<int64_t>()) first.push_back(offset);
  first.pop_back();
  input.first_rows = from_vector(first, {static_cast<int64_t>(first.size())});
  return input;
}

void expect_close(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  EXPECT_LE(max(abs(got - expected)).item<double>(), 1e-12);
}

/// The logits of one sequence from the model's weights, by nn::LSTM on this sequence alone.
Tensor logits_of(const LstmClassifier& model, const Tensor& tokens) {
  const LstmConfig& config = model.config();
  const StateView state = model.state_dict();
  nn::LSTM lstm(fresh_scope(), config.embedding, config.hidden,
                {.layers = config.layers, .bidirectional = config.bidirectional});
  StateView own;
  for (const NamedTensor& entry : state)
    if (entry.name.starts_with("lstm.")) own.push_back({entry.name.substr(5), entry.tensor});
  lstm.load_state_dict(own);
  const nn::RecurrentOutput found = lstm.forward(index_select(find(state, "word.weight"), 0, tokens));
  const int64_t last = found.output.size(0) - 1;
  const Tensor pooled = config.pooling == "max"    ? max(found.output, {0})
                        : config.pooling == "mean" ? mean(found.output, {0})
                        : config.bidirectional ? cat({found.output[last].slice(0, 0, 6), found.output[0].slice(0, 6)})
                                               : found.output[last];
  return linear(pooled.unsqueeze(0), find(state, "classifier.weight"), find(state, "classifier.bias"));
}

TEST(LstmClassifier, IsEmbeddingLstmPoolingAndClassifier) {
  auto random = fresh_random();
  for (const std::string pooling : {"max", "mean", "last"})
    for (const bool bidirectional : {true, false}) {
      SCOPED_TRACE(pooling + (bidirectional ? ", both directions" : ""));
      LstmClassifier model(fresh_scope(), small_config(pooling, bidirectional));
      model.eval();
      std::vector<int64_t> ids(12);
      for (int64_t& id : ids) id = static_cast<int64_t>(random() % 20);
      const Tensor tokens = from_vector(ids, {12});
      const Tensor logits = model.forward(packed_input(tokens, {4, 1, 7}));
      expect_close(logits[0], logits_of(model, tokens.slice(0, 0, 4))[0]);
      expect_close(logits[1], logits_of(model, tokens.slice(0, 4, 5))[0]);
      expect_close(logits[2], logits_of(model, tokens.slice(0, 5))[0]);
      const Tensor features = model.features(packed_input(tokens, {4, 1, 7}));
      EXPECT_EQ(features.shape(), (Shape{3, model.config().pooled()}));
      EXPECT_EQ(model.forward_head(features).to_vector<double>(), logits.to_vector<double>());
      // Padding is left out.
      const Tensor rows = zeros({3, 7}, {.dtype = int64}), mask = zeros({3, 7}, {.dtype = int64});
      for (const auto& [row, begin, end] : {std::array<int64_t, 3>{0, 0, 4}, {1, 4, 5}, {2, 5, 12}}) {
        rows[row].slice(0, 0, end - begin).copy_(tokens.slice(0, begin, end));
        mask[row].slice(0, 0, end - begin).fill_(1);
      }
      expect_close(model.forward(data::padded_input(rows, mask)), logits);
    }
}

TEST(LstmClassifier, DropoutIsInTrainingAlone) {
  LstmClassifier model(fresh_scope(), small_config("max", true));
  const data::TokenInput input = packed_input(ones({5}, {.dtype = int64}), {5});
  const auto differs = [&] { return max(abs(model.forward(input) - model.forward(input))).item<double>() > 0; };
  model.train();
  EXPECT_TRUE(differs());
  model.eval();
  EXPECT_FALSE(differs());
}

TEST(LstmClassifier, FilesAndErrors) {
  const test::TemporaryFolder folder;
  for (const bool bidirectional : {true, false}) {
    const LstmClassifier model(fresh_scope(float32), small_config("mean", bidirectional));
    model.save_pretrained(folder / "model");
    const auto loaded = load_pretrained<SequenceClassifier>(folder / "model");
    EXPECT_EQ(loaded->config_json(), model.config_json());
    EXPECT_EQ(test::names_of(loaded->state_dict()), test::names_of(model.state_dict()));
    for (const NamedTensor& entry : model.state_dict())
      EXPECT_EQ(find(loaded->state_dict(), entry.name).to_vector<float>(), entry.tensor.to_vector<float>());
    EXPECT_EQ(loaded->labels(), (std::vector<std::string>{"a", "b", "c"}));
  }
  const LstmClassifier model(fresh_scope(), small_config("max", true));
  EXPECT_TRUE(has(error_of([&] { model.forward(packed_input(ones({10}, {.dtype = int64}), {10})); }), "at most 9"));
  EXPECT_TRUE(has(error_of([] { LstmClassifier(fresh_scope(), small_config("max", true)).set_recompute(1); }),
                  "leave --recompute out"));
  const auto broken = [](const char* from, const char* to) {
    std::string json = small_config("max", true).to_json();
    json.replace(json.find(from), std::string(from).size(), to);
    return error_of([&] { LstmConfig::from_json(json, "config.json"); });
  };
  EXPECT_TRUE(has(broken("\"pooling\": \"max\"", "\"pooling\": \"sum\""), "must be max, mean or last, got 'sum'"));
  EXPECT_TRUE(has(broken("\"hidden_size\": 6", "\"hidden_size\": 0"), "hidden_size"));
  EXPECT_TRUE(has(broken("\"pooling\"", "\"pools\""), "pools"));
  EXPECT_TRUE(has(broken("\"pad_token_id\": 0", "\"pad_token_id\": 20"), "outside the vocabulary of 20"));
  EXPECT_TRUE(has(broken("\"model_type\": \"lstm\"", "\"model_type\": \"gru\""), "'gru'"));
  EXPECT_TRUE(has(error_of([] { LstmConfig::preset("tiny"); }), "expected small or large"));
  EXPECT_EQ(LstmConfig::preset("large").layers, 2);
}

TEST(LstmClassifier, CountsItsOperations) {
  const LstmClassifier one(fresh_scope(), small_config("max", false));
  // 7 tokens: 4 gates of 6 from 5 + 6 and 6 + 6 numbers; a classifier of 3 from 6.
  EXPECT_EQ(one.forward_flops({4, 3}), 7 * 2 * 4 * 6 * (11 + 12) + 2 * (2 * 6 * 3));
}

/// The program trains it on the embedded sentences, evaluates it, predicts with it and says what it is.
TEST(LstmClassifier, TheProgramTrainsIt) {
  const test::TemporaryFolder folder;
  const auto output_of = [](const std::vector<std::string>& command) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(cli::run_program(command), 0) << command[0];
    return testing::internal::GetCapturedStdout();
  };
  const std::string run = folder / "run";
  const std::string trained = output_of({"train", "lstm", "--data", "sentences", "--out", run, "--epochs", "4",
                                         "--threads", "1", "--dtype", "fp32", "--quiet"});
  const size_t at = trained.find("test accuracy ");
  ASSERT_NE(at, std::string::npos) << trained;
  EXPECT_GT(std::stod(trained.substr(at + 14)), 70) << trained;  // guessing: 50 %
  EXPECT_TRUE(has(output_of({"eval", run, "--threads", "1", "--quiet"}), "accuracy"));
  EXPECT_TRUE(has(output_of({"info", run}), "lstm"));
  std::ofstream(folder / "lines.txt") << "This is wonderful, I love it.\nA terrible, awful waste of money.\n";
  const std::string answers = output_of({"predict", run, folder / "lines.txt", "--quiet"});
  EXPECT_EQ(answers.substr(0, 3), "pos") << answers;
  EXPECT_TRUE(has(answers, "\nneg")) << answers;
}

}  // namespace
}  // namespace tern::models
