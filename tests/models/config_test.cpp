#include "tern/models/distilbert/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tern/kernels/base/check.h"

namespace tern::models {
namespace {

using Json = nlohmann::json;

DistilBertConfig parse(const Json& json) { return DistilBertConfig::from_json(json.dump(), "config.json"); }

TEST(DistilBertConfig, DefaultsAreTheLibrarys) {
  const DistilBertConfig config = parse(Json::object());
  EXPECT_EQ(config.vocab_size, 30522);
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_EQ(config.width, 768);
  EXPECT_EQ(config.layers, 6);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.hidden, 3072);
  EXPECT_EQ(config.activation, "gelu");
  EXPECT_EQ(config.dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.1);
  EXPECT_EQ(config.classifier_dropout, 0.2);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_EQ(config.padding_id, 0);
  EXPECT_EQ(config.labels, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
}

TEST(DistilBertConfig, RoundTrip) {
  DistilBertConfig config = DistilBertConfig::preset("small");
  config.labels = {"z", "\xc3\xa9toile", "a \"quoted\""};
  config.padding_id = -1;
  config.activation = "relu";
  config.sinusoidal_positions = true;
  config.classifier_dropout = 0.25;
  config.max_positions = 77;
  const DistilBertConfig back = DistilBertConfig::from_json(config.to_json(), "x");
  EXPECT_EQ(back.to_json(), config.to_json());
  EXPECT_EQ(back.labels, config.labels);
  EXPECT_EQ(back.padding_id, -1);
  EXPECT_EQ(back.width, 256);
  EXPECT_EQ(back.max_positions, 77);
  EXPECT_TRUE(back.sinusoidal_positions);
}

TEST(DistilBertConfig, LabelsFromAnyOfTheirFields) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(parse({{"num_labels", 3}}).labels, (Labels{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(parse({{"id2label", {{"1", "b"}, {"0", "a"}}}}).labels, (Labels{"a", "b"}));
  EXPECT_EQ(parse({{"label2id", {{"b", 0}, {"a", 1}}}}).labels, (Labels{"b", "a"}));
  EXPECT_EQ(parse({{"id2label", nullptr}, {"num_labels", 1}}).labels, (Labels{"LABEL_0"}));
  Json many = Json::object();
  for (int i = 0; i < 12; ++i) many[std::to_string(i)] = "l" + std::to_string(i);  // "10" sorts before "2"
  EXPECT_EQ(parse({{"id2label", many}}).labels[10], "l10");
  for (const Json& wrong :
       {Json{{"num_labels", 0}}, Json{{"id2label", {{"x", "a"}}}}, Json{{"id2label", {{"0", "a"}, {"00", "b"}}}},
        Json{{"id2label", {{"0", "a"}, {"2", "b"}}}}, Json{{"id2label", Json::object()}},
        Json{{"id2label", {"a", "b"}}}, Json{{"id2label", {{"0", {"a"}}}}}, Json{{"label2id", 3}}})
    EXPECT_THROW(parse(wrong), Error) << wrong;
}

/// As transformers 5.24 reads them.
TEST(DistilBertConfig, LabelsThatDisagree) {
  using Labels = std::vector<std::string>;
  const Json two = {{"0", "a"}, {"1", "b"}};
  EXPECT_EQ(parse({{"id2label", two}, {"label2id", {{"a", 1}, {"b", 0}}}}).labels, (Labels{"a", "b"}));
  EXPECT_EQ(parse({{"id2label", two}, {"label2id", {{"LABEL_0", 0}, {"LABEL_1", 1}, {"x", 2}}}}).labels,
            (Labels{"a", "b"}));
  EXPECT_EQ(parse({{"id2label", two}, {"num_labels", 3}}).labels, (Labels{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(parse({{"id2label", two}, {"num_labels", 2}}).labels, (Labels{"a", "b"}));
  EXPECT_EQ(parse({{"id2label", two}, {"_num_labels", 5}}).labels, (Labels{"a", "b"}));  // of the oldest files
  EXPECT_EQ(parse({{"id2label", {{"0", 7}, {"1", true}}}}).labels, (Labels{"7", "true"}));
  const Labels placeholders = {"LABEL_0", "LABEL_1"};
  EXPECT_EQ(parse({{"label2id", {{"a", 0}, {"b", 1}, {"c", 2}}}}).labels, placeholders);
  EXPECT_EQ(parse({{"label2id", {{"a", 0}, {"b", 1}, {"c", 2}}}, {"num_labels", 3}}).labels, (Labels{"a", "b", "c"}));
  for (const Json& numbers : {Json{{"a", 5}}, Json{{"a", "0"}, {"b", "1"}}, Json{{"a", 0}, {"b", 0}},
                              Json{{"a", 1}, {"b", 2}}, Json{{"a", 0.0}, {"b", 1.0}}})
    EXPECT_EQ(parse({{"label2id", numbers}}).labels, placeholders) << numbers;

  const DistilBertConfig twice = parse({{"id2label", {{"0", "a"}, {"1", "b"}, {"2", "a"}}}});
  EXPECT_EQ(twice.labels, (Labels{"a", "b", "a"}));
  const Json written = Json::parse(twice.to_json());
  EXPECT_EQ(written["id2label"].size(), 3u);
  EXPECT_EQ(written["label2id"], (Json{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(parse(written).labels, twice.labels);
}

TEST(DistilBertConfig, RejectsWhatItWouldHaveToIgnore) {
  // tests/program/model_folder_test.cpp has what is wrong with other fields, and what the errors say.
  for (const Json& wrong :
       {Json{{"quantization_config", {{"quant_method", "awq"}}}}, Json{{"dim", 514}, {"n_heads", 1}},
        Json{{"auto_map", {{"AutoModel", "m.Model"}}}}, Json{{"dropout", -0.1}}, Json{{"n_layers", 0}},
        Json{{"vocab_size", 1e9}}, Json{{"initializer_range", -1}}})
    EXPECT_THROW(parse(wrong), Error) << wrong;
  for (const char* text : {"", "null", "[1]", "{", "{\"dim\": 18446744073709551615}"})
    EXPECT_THROW(DistilBertConfig::from_json(text, "x"), Error) << text;
  EXPECT_THROW(DistilBertConfig::preset("large"), Error);
}

TEST(DistilBertConfig, KeysOfOnesOwnAreIgnoredAndSaid) {
  std::string said;
  const auto log = [&](const std::string& line) { said += line; };
  DistilBertConfig::from_json(R"({"dims": 5, "is_decoder": false, "pruned_heads": {}, "mine": [1]})", "here", log);
  EXPECT_EQ(said, "here: the fields dims, mine are not known and ignored, as in transformers");
  said.clear();
  DistilBertConfig::from_json(R"({"dim": 192, "quantization_config": null})", "here", log);
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace tern::models
