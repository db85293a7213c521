// ONNX files as models of texts and images: what they give beside the models that they were exported from, labels and
// heads, files that fix a size, and files that are no such model.

#include "tern/models/onnx/classifiers/onnx_models.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/models/bert/bert.h"
#include "tern/models/cnn/cnn.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/model_graph.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/onnx/export.h"
#include "tern/models/onnx/onnx.h"
#include "tern/models/text/sentence_embedder.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/golden_texts.h"
#include "tern/tests/models/onnx_writer.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::has;
using test::Message;
using Floats = std::vector<float>;

class OnnxModels : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << text;
  }
  void write(const std::string& name, const Message& model) const { write(name, model.bytes()); }
  /// A golden BERT with a head as m.onnx.
  std::unique_ptr<BertClassifier> write_bert(const std::string& name) const {
    auto model = BertClassifier::from_pretrained(kGolden + "bert/bert_classifier");
    model->eval();
    onnx::save(graph_of(*model), file(name));
    return model;
  }
  static void expect_near(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
    ASSERT_EQ(got.shape(), want.shape());
    const auto a = got.to_vector<double>(), b = want.to_vector<double>();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << i;
  }

  const test::TemporaryFolder folder_;
};

/// [rows, 2] of pixels: the means of the channels x a matrix. Channels last where `last`.
Message image_network(const std::vector<int64_t>& dims, bool last, const std::string& end = "") {
  const int64_t channels = std::max<int64_t>(1, dims[last ? 3 : 1]);
  Message graph;
  graph.message(
      1, test::onnx_node("ReduceMean", {"x", "axes"}, {"means"}).message(5, test::onnx_attribute("keepdims", 0)));
  graph.message(1, test::onnx_node("Gemm", {"means", "fc.weight", "fc.bias"}, {end.empty() ? "y" : "h"}));
  if (!end.empty()) graph.message(1, test::onnx_node(end, {"h"}, {"y"}));
  graph.text(2, "g");
  Floats weight;
  for (int64_t i = 0; i < 2 * channels; ++i) weight.push_back(0.5f * static_cast<float>(i) - 1);
  graph.message(5, test::onnx_floats("fc.weight", {channels, 2}, weight));
  graph.message(5, test::onnx_floats("fc.bias", {2}, {0.25f, -0.125f}));
  const std::vector<int64_t> axes = last ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 3};
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), axes.data(), 16);
  graph.message(5, Message().number(1, 2).number(2, 7).text(8, "axes").text(9, bytes));
  graph.message(11, test::onnx_value("x", dims)).message(12, test::onnx_value("y", {dims[0], 2}));
  return test::onnx_model(graph);
}

/// The same of [n, 3, h, w] by hand.
Tensor image_logits(const Tensor& means) {
  Floats weight;
  for (int64_t i = 0; i < 2 * means.size(1); ++i) weight.push_back(0.5f * static_cast<float>(i) - 1);
  return matmul(means, from_vector(weight, {means.size(1), 2})) + from_vector(Floats{0.25f, -0.125f}, {2});
}

/// [n, 2] of tokens [n, length]: the sum of the rows of a table where the mask is 1.
Message text_network(const std::vector<int64_t>& dims, bool masked, int64_t words = 7,
                     const std::vector<int64_t>& classes = {-1, 2}) {
  Message graph;
  graph.message(1, test::onnx_node("Gather", {"table", "input_ids"}, {"rows"}));
  if (masked) {
    graph.message(1, test::onnx_node("Cast", {"attention_mask"}, {"real"}).message(5, test::onnx_attribute("to", 1)));
    graph.message(1, test::onnx_node("Unsqueeze", {"real", "last"}, {"column"}));
    graph.message(1, test::onnx_node("Mul", {"rows", "column"}, {"kept"}));
  }
  graph.message(1, test::onnx_node("ReduceSum", {masked ? "kept" : "rows", "middle"}, {"sums"})
                       .message(5, test::onnx_attribute("keepdims", 0)));
  graph.message(1, test::onnx_node("MatMul", {"sums", "head"}, {"logits"}));
  graph.text(2, "g");
  Floats table;
  for (int64_t i = 0; i < 3 * words; ++i) table.push_back(0.25f * static_cast<float>(i % 11) - 1);
  graph.message(5, test::onnx_floats("table", {words, 3}, table));
  graph.message(5, test::onnx_floats("head", {3, 2}, {1, 0, 0.5f, -1, 0.25f, 2}));
  for (const auto& [name, axis] : {std::pair("last", int64_t{-1}), std::pair("middle", int64_t{1})}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &axis, 8);
    graph.message(5, Message().number(1, 1).number(2, 7).text(8, name).text(9, bytes));
  }
  graph.message(11, test::onnx_value("input_ids", dims, 7));
  if (masked) graph.message(11, test::onnx_value("attention_mask", dims, 7));
  graph.message(12, test::onnx_value("logits", classes));
  return test::onnx_model(graph);
}

/// The same by hand of packed tokens.
Tensor text_logits(const std::vector<std::vector<int64_t>>& texts) {
  Floats all;
  for (const auto& text : texts) {
    float sums[3] = {};
    for (const int64_t token : text)
      for (int64_t d = 0; d < 3; ++d) sums[d] += 0.25f * static_cast<float>((3 * token + d) % 11) - 1;
    all.push_back(sums[0] + 0.5f * sums[1] + 0.25f * sums[2]);
    all.push_back(-sums[1] + 2 * sums[2]);
  }
  return from_vector(all, {std::ssize(texts), 2});
}

data::TokenInput packed_texts(const std::vector<std::vector<int64_t>>& texts) {
  std::vector<int64_t> ids, positions, first, lengths;
  for (const auto& text : texts) {
    first.push_back(std::ssize(ids));
    lengths.push_back(std::ssize(text));
    for (size_t i = 0; i < text.size(); ++i) {
      ids.push_back(text[i]);
      positions.push_back(static_cast<int64_t>(i));
    }
  }
  return {.tokens = from_vector(ids, {std::ssize(ids)}),
          .positions = from_vector(positions, {std::ssize(ids)}),
          .first_rows = from_vector(first, {std::ssize(texts)}),
          .layout = packed_layout(lengths)};
}

TEST_F(OnnxModels, ABertGivesItsLogitsPackedAndPadded) {
  const auto bert = write_bert("m.onnx");
  const auto model = load_pretrained<SequenceClassifier>(file("m.onnx"));
  EXPECT_EQ(model->token_types(), bert->token_types());
  EXPECT_EQ(family_of(file("m.onnx")).name, "onnx");
  EXPECT_EQ(kind_of_model(file("m.onnx")), ModelKind::kTexts);
  EXPECT_EQ(model->vocab_size(), bert->vocab_size());
  EXPECT_TRUE(model->is_training());
  model->eval();
  NoGrad off;
  const StateView expected = expected_of("bert/bert_classifier");
  for (const bool pack : {true, false}) {
    data::TokenInput input = input_of(expected, pack);
    expect_near(model->forward(input), bert->forward(input));
    input.token_types = {};
    expect_near(model->forward(input), bert->forward(input));
  }
  // Rows behind the last sequence and empty sequences, as batches of a fixed capacity have them.
  data::TokenInput input = packed_texts({{5, 6, 7}, {}, {8}});
  input.tokens = cat({input.tokens, zeros({9}, {.dtype = int64})}, 0);
  const Tensor logits = model->forward(input);
  expect_near(logits.slice(0, 0, 1), bert->forward(packed_texts({{5, 6, 7}})));
  expect_near(logits.slice(0, 2, 3), bert->forward(packed_texts({{8}})));
  EXPECT_TRUE(std::isfinite(sum(logits).item<double>()));
}

TEST_F(OnnxModels, OperationsOfTextsAreThoseOfTheNetwork) {
  const auto bert = write_bert("m.onnx");
  write("config.json", R"({"max_position_embeddings": 12, "id2label": {"0": "a", "1": "b", "2": "c"}})");
  const auto model = load_pretrained<SequenceClassifier>(file("m.onnx"));
  ASSERT_GE(bert->max_positions(), 12);
  // The file computes the last layer for the first token alone, which is all of a text of one token.
  EXPECT_NEAR(model->forward_flops({1, 1}), bert->forward_flops({1, 1}), 1e-6 * bert->forward_flops({1}));
  EXPECT_LT(model->forward_flops({40}), 0.9 * bert->forward_flops({40}));
  EXPECT_GT(model->forward_flops({40}), 0.5 * bert->forward_flops({40}));
  EXPECT_GT(model->forward_flops({80}), 2.02 * model->forward_flops({40}));  // attention grows with the square
}

TEST_F(OnnxModels, TextsOfFilesThatFixSizes) {
  const std::vector<std::vector<int64_t>> texts = {{1, 2, 3}, {6}, {4, 5}, {2, 2, 2}, {0, 3}};
  NoGrad off;
  write("any.onnx", text_network({-1, -1}, true));
  write("batch.onnx", text_network({2, -1}, true, 7, {2, 2}));
  write("both.onnx", text_network({2, 4}, true, 7, {2, 2}));
  write("narrow.onnx", text_network({-1, 3}, true));
  for (const std::string name : {"any.onnx", "batch.onnx", "both.onnx", "narrow.onnx"}) {
    SCOPED_TRACE(name);
    const auto model = load_pretrained<SequenceClassifier>(file(name));
    expect_near(model->forward(packed_texts(texts)), text_logits(texts));
    expect_near(model->forward(packed_texts({{1, 2, 3}})), text_logits({{1, 2, 3}}));
    // An empty sequence, which fills up a batch, counts its first place: a mean or softmax of nothing would be NaN.
    expect_near(model->forward(packed_texts({{1, 2}, {}})), text_logits({{1, 2}, {0}}));
    EXPECT_EQ(model->vocab_size(), 7);
    EXPECT_EQ(model->labels(), (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
    EXPECT_EQ(model->max_positions(), name == "both.onnx" ? 4 : name == "narrow.onnx" ? 3 : 1 << 24);
  }
  const auto narrow = load_pretrained<SequenceClassifier>(file("narrow.onnx"));
  test::expect_contains(error_of([&] {
                          (void)narrow->forward(packed_texts({{1, 2, 3, 4}}));
                        }),
                        {"a text has 4 tokens", "'input_ids' takes 3"});
  // A file without a mask reads fillers too: the token of config.json, which the table has 0 for at no place.
  write("bare/m.onnx", text_network({-1, -1}, false));
  write("bare/config.json", R"({"pad_token_id": 3, "max_position_embeddings": 9})");
  const auto bare = load_pretrained<SequenceClassifier>(file("bare/m.onnx"));
  EXPECT_EQ(bare->max_positions(), 9);
  expect_near(bare->forward(packed_texts({{1, 2}, {4}})), text_logits({{1, 2}, {4, 3}}));
}

TEST_F(OnnxModels, ImagesOfFilesThatFixSizes) {
  test::Message unused;
  const Tensor images = test::fresh_normal({5, 3, 4, 4}, 1);
  const Tensor means = mean(images, {2, 3});
  const Tensor luma = matmul(means, from_vector(Floats{0.299f, 0.587f, 0.114f}, {3, 1}));
  NoGrad off;
  write("any.onnx", image_network({-1, 3, -1, -1}, false));
  write("one.onnx", image_network({1, 3, 4, 4}, false));
  write("last.onnx", image_network({-1, 4, 4, 3}, true));
  write("gray.onnx", image_network({2, 1, 4, 4}, false));
  for (const std::string name : {"any.onnx", "one.onnx", "last.onnx", "gray.onnx"}) {
    SCOPED_TRACE(name);
    const auto model = load_pretrained<ImageClassifier>(file(name));
    EXPECT_EQ(kind_of_model(file(name)), ModelKind::kImages);
    EXPECT_EQ(model->input().size, name == "any.onnx" ? 224 : 4);
    expect_near(model->forward(images), image_logits(name == "gray.onnx" ? luma : means));
    EXPECT_GT(model->forward_flops(), 0);
  }
  const auto one = load_pretrained<ImageClassifier>(file("one.onnx"));
  test::expect_contains(error_of([&] { (void)one->forward(zeros({1, 3, 4, 5})); }), {"4 x 4", "got 4 x 5"});
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("one.onnx"), {.image_size = 8}); }),
                        {"4 pixels a side", "--image-size"});
  test::expect_contains(error_of([&] { load_pretrained<SequenceClassifier>(file("one.onnx")); }), {"another kind"});
}

TEST_F(OnnxModels, WhatTheNetworkEndsInIsLeftOut) {
  const Tensor images = test::fresh_normal({3, 3, 4, 4}, 2), logits = image_logits(mean(images, {2, 3}));
  NoGrad off;
  for (const std::string end : {"Softmax", "LogSoftmax", "Sigmoid"}) {
    SCOPED_TRACE(end);
    write("m.onnx", image_network({-1, 3, 4, 4}, false, end));
    const auto model = load_pretrained<ImageClassifier>(file("m.onnx"));
    expect_near(model->forward(images), logits);
    EXPECT_EQ(model->label_kind(), end == "Sigmoid" ? data::LabelKind::kSeveral : data::LabelKind::kOne);
    // Images are trained with one label each.
    EXPECT_EQ(load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b"}})->label_kind(), data::LabelKind::kOne);
    // The file that is written still ends in it.
    model->save_pretrained(file("saved"));
    const Tensor out = onnx::load(file("saved/model.onnx"))->forward(images);
    expect_near(out, end == "Softmax"   ? softmax(logits, 1)
                     : end == "Sigmoid" ? sigmoid(logits)
                                        : log(softmax(logits, 1)));
  }
}

TEST_F(OnnxModels, SeveralLabelsOfAnImage) {
  write("m.onnx", image_network({-1, 3, 4, 4}, false, "Sigmoid"));
  write("preprocessor_config.json", R"({"image_mean": 0, "image_std": 1, "size": 4})");
  const auto pipeline = ImagePipeline::load(file("m.onnx"));
  data::Image image(4, 4, 3);
  std::ranges::fill(image.pixels, 51);  // 0.2
  const Tensor logits = image_logits(full({1, 3}, 0.2));
  const auto found = pipeline.predict({image});
  ASSERT_EQ(found.size(), 1u);
  std::vector<int64_t> over;
  for (int64_t i = 0; i < 2; ++i)
    if (logits.to_vector<float>()[static_cast<size_t>(i)] > 0) over.push_back(i);
  EXPECT_EQ(found[0].labels, over);
  EXPECT_NEAR(found[0].logits[1], logits.to_vector<float>()[1], 1e-6);
  test::expect_contains(error_of([&] { (void)pipeline.predict({image}, test_time_views("flip")); }), {"one label"});
}

TEST_F(OnnxModels, LabelsAndHeads) {
  write("m.onnx", image_network({-1, 3, 4, 4}, false, "Softmax"));
  const Tensor images = test::fresh_normal({3, 3, 4, 4}, 3), logits = image_logits(mean(images, {2, 3}));
  std::string said;
  const Log log = [&](const std::string& line) { said += line + "\n"; };
  NoGrad off;
  // Placeholders take the names of as many labels; another number needs another head.
  auto model = load_pretrained<ImageClassifier>(file("m.onnx"), {.labels = {"cat", "dog"}, .log = log});
  EXPECT_EQ(model->labels(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_TRUE(has(said, "mean and deviation of ImageNet's")) << said;
  expect_near(model->forward(images), logits);
  test::expect_contains(error_of([&] {
                          load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b", "c"}});
                        }),
                        {"gives 2 numbers for 3 labels"});
  said.clear();
  model =
      load_pretrained<ImageClassifier>(file("m.onnx"), {.labels = {"a", "b", "c"}, .allow_new_head = true, .log = log});
  test::expect_contains(said, {"a new classification head for 3 labels", "2 labels and the data 3"});
  const Tensor fresh = model->forward(images);
  EXPECT_EQ(fresh.shape(), (Shape{3, 3}));
  EXPECT_EQ(find(model->state_dict(), "fc.weight").shape(), (Shape{3, 3}));
  // The folder that is written is read again as it was, and so is a folder with the file alone in onnx/.
  model->save_pretrained(file("run"));
  fs::remove(file("m.onnx"));  // the source is not needed any more
  model->save_pretrained(file("run"));
  const auto again = load_pretrained<ImageClassifier>(file("run"));
  EXPECT_EQ(again->labels(), model->labels());
  EXPECT_EQ(again->record(), model->record());
  EXPECT_EQ(again->forward(images).to_vector<float>(), fresh.to_vector<float>());
  fs::create_directory(file("run/onnx"));
  fs::rename(file("run/model.onnx"), file("run/onnx/model.onnx"));
  for (const char* path : {"run", "run/onnx/model.onnx"})
    EXPECT_EQ(load_pretrained<ImageClassifier>(file(path))->labels(), model->labels()) << path;
  write("run/config.json", R"({"id2label": {"0": "x", "1": "y"}})");
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("run")); }),
                        {"config.json", "2 labels", "gives 3 numbers"});
}

/// As SqueezeNet and DenseNet end: the classes are channels.
TEST_F(OnnxModels, AConvolutionMayBeTheHead) {
  const auto network = [](int64_t groups) {
    Message graph;
    Message conv = test::onnx_node("Conv", {"x", "head.weight", "head.bias"}, {"c"});
    graph.message(1, conv.message(5, test::onnx_attribute("group", groups)));
    graph.message(1, test::onnx_node("Relu", {"c"}, {"r"}));
    graph.message(1, test::onnx_node("GlobalAveragePool", {"r"}, {"y"})).text(2, "g");
    graph.message(5,
                  test::onnx_floats("head.weight", {3, 3 / groups, 1, 1}, Floats(static_cast<size_t>(9 / groups), 1)));
    graph.message(5, test::onnx_floats("head.bias", {3}, {0, 1, -1}));
    graph.message(11, test::onnx_value("x", {-1, 3, 2, 2})).message(12, test::onnx_value("y", {-1, 3, 1, 1}));
    return test::onnx_model(graph);
  };
  write("m.onnx", network(1));
  const auto model = load_pretrained<ImageClassifier>(file("m.onnx"), {.labels = {"a", "b"}, .allow_new_head = true});
  const Tensor weight = find(model->state_dict(), "head.weight"), bias = find(model->state_dict(), "head.bias");
  EXPECT_EQ(weight.shape(), (Shape{2, 3, 1, 1}));
  EXPECT_EQ(bias.shape(), (Shape{2}));
  EXPECT_LE(max(abs(weight)).item<double>(), 1 / std::sqrt(3.0));
  NoGrad off;
  const Tensor images = test::fresh_normal({2, 3, 2, 2}, 6);
  expect_near(model->forward(images), mean(relu(conv2d(images, weight, bias)), {2, 3}));
  model->save_pretrained(file("run"));
  expect_near(load_pretrained<ImageClassifier>(file("run"))->forward(images), model->forward(images), 0);
  write("m.onnx", network(3));  // each class reads one channel: not a layer that can be made anew
  test::expect_contains(error_of([&] {
                          load_pretrained<Model>(file("m.onnx"), {.labels = {"a", "b"}, .allow_new_head = true});
                        }),
                        {"the model has 3 labels and the data 2", "cannot be replaced"});
}

TEST_F(OnnxModels, MetadataAndFilesBesideTheModel) {
  const Message network = image_network({-1, 3, 4, 4}, false);
  const auto with = [&](const std::string& key, const std::string& value) {
    return Message(network).message(14, Message().text(1, key).text(2, value));
  };
  write("m.onnx", with("labels", R"(["no", "yes"])"));
  EXPECT_EQ(load_pretrained<Model>(file("m.onnx"))->labels(), (std::vector<std::string>{"no", "yes"}));
  for (const char* other : {R"(["a", "b", "c"])", "a,b", R"([1, 2])", ""}) {
    write("m.onnx", with("labels", other));
    EXPECT_EQ(load_pretrained<Model>(file("m.onnx"))->labels()[1], "LABEL_1") << other;
  }
  write("m.onnx", with("preprocessor_config", R"({"image_mean": [0.1, 0.2, 0.3], "size": {"height": 4, "width": 4}})"));
  const auto pipeline = ImagePipeline::load(file("m.onnx"));
  EXPECT_EQ(pipeline.preprocessing().size, 4);
  EXPECT_FLOAT_EQ(pipeline.preprocessing().normalization.mean[2], 0.3f);
  write("preprocessor_config.json", R"({"image_mean": [0.4, 0.4, 0.4], "size": {"height": 4, "width": 4}})");
  EXPECT_FLOAT_EQ(ImagePipeline::load(file("m.onnx")).preprocessing().normalization.mean[2], 0.4f);
  write("config.json", R"({"architecture": "some_net", "num_classes": 2, "label_names": ["ant", "bee"],
                           "pretrained_cfg": {"input_size": [3, 4, 4]}})");
  EXPECT_EQ(load_pretrained<Model>(file("m.onnx"))->labels()[1], "bee");
}

/// The golden BERT of a kind as a file that gives something for each token.
TEST_F(OnnxModels, StatesLabelsAndWordsOfTokens) {
  const StateView expected = expected_of("bert/bert_model");
  const Tensor ids = find(expected, "input_ids");
  const auto bert = Bert::from_pretrained(kGolden + "bert/bert_model");
  bert->eval();
  NoGrad off;
  const auto write_file = [&](const std::string& name, const std::string& output, const auto& forward) {
    const Tensor ones_of = ones({2, 4}, {.dtype = int64});
    fs::create_directories(fs::path(file(name)).parent_path());
    onnx::save(trace(
                   [&](const std::vector<Tensor>& in) {
                     const Tensor rows = forward(data::padded_input(in[0], in[1]));
                     return std::vector<Tensor>{rows.reshape({in[0].size(0), in[0].size(1), -1})};
                   },
                   {ones_of, ones_of.clone()},
                   {.names = bert->state_dict(),
                    .dynamic = {{0, 0, "b"}, {0, 1, "l"}, {1, 0, "b"}, {1, 1, "l"}},
                    .input_names = {"input_ids", "attention_mask"},
                    .output_names = {output}}),
               file(name));
  };
  data::TokenInput input = input_of(expected, true);
  input.token_types = {};
  const auto states = [&](const data::TokenInput& in) { return bert->hidden_states(in); };
  write_file("enc.onnx", "last_hidden_state", states);
  const auto encoder = load_pretrained<TextModel>(file("enc.onnx"));
  expect_near(encoder->hidden_states(input), bert->hidden_states(input));
  test::expect_contains(error_of([&] { load_pretrained<SequenceClassifier>(file("enc.onnx")); }), {"another kind"});

  const Tensor head = test::fresh_normal({bert->hidden_states(input).size(1), bert->vocab_size()}, 4);
  const auto words = [&](const data::TokenInput& in) { return matmul(bert->hidden_states(in), head); };
  write_file("words.onnx", "logits", words);
  const auto masked = load_pretrained<MaskedWordModel>(file("words.onnx"));
  const Tensor rows = from_vector<int64_t>({2, 0}, {2});
  expect_near(masked->forward(input, rows), words(input).index({rows}));

  const auto tags = [&](const data::TokenInput& in) { return words(in).slice(1, 0, 3); };
  write_file("tags/m.onnx", "logits", tags);
  write("tags/config.json", R"({"architectures": ["BertForTokenClassification"],
                                "id2label": {"0": "O", "1": "B", "2": "I"}})");
  const auto tagger = load_pretrained<TokenClassifier>(file("tags/m.onnx"));
  EXPECT_EQ(tagger->labels()[1], "B");
  expect_near(tagger->forward(input), tags(input));
  tagger->save_pretrained(file("tags/saved"));
  expect_near(load_pretrained<TokenClassifier>(file("tags/saved"))->forward(input), tags(input));
}

TEST_F(OnnxModels, ExternalDataAndANewHead) {
  Message graph;
  graph.message(1, test::onnx_node("ReduceMean", {"x"}, {"m"})
                       .message(5, test::onnx_list("axes", {2, 3}))
                       .message(5, test::onnx_attribute("keepdims", 0)));
  graph.message(1, test::onnx_node("Gemm", {"m", "w", "b"}, {"y"})).text(2, "g");
  const auto outside = [](const std::string& name, const std::vector<int64_t>& dims, const std::string& offset,
                          const std::string& length) {
    Message tensor;
    for (const int64_t size : dims) tensor.number(1, static_cast<uint64_t>(size));
    tensor.number(2, 1).text(8, name);
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"location", "m.data"}, {"offset", offset}, {"length", length}})
      tensor.message(13, Message().text(1, key).text(2, value));
    return tensor.number(14, 1);
  };
  graph.message(5, outside("w", {3, 2}, "0", "24")).message(5, outside("b", {2}, "24", "8"));
  graph.message(11, test::onnx_value("x", {-1, 3, 2, 2})).message(12, test::onnx_value("y", {-1, 2}));
  write("in/m.onnx", test::onnx_model(graph, 13));
  const Floats numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  write("in/m.data", std::string(reinterpret_cast<const char*>(numbers.data()), 32));
  const auto model =
      load_pretrained<ImageClassifier>(file("in/m.onnx"), {.labels = {"a", "b", "c"}, .allow_new_head = true});
  const Tensor images = test::fresh_normal({2, 3, 2, 2}, 5);
  NoGrad off;
  const Tensor before = model->forward(images);
  fs::remove_all(file("in"));
  model->save_pretrained(file("out"));
  expect_near(load_pretrained<ImageClassifier>(file("out"))->forward(images), before, 0);
}

TEST_F(OnnxModels, FilesThatAreNoSuchModel) {
  const auto refused = [&](const Message& model) {
    write("m.onnx", model);
    return error_of([&] { load_pretrained<Model>(file("m.onnx")); });
  };
  Message two;
  two.message(1, test::onnx_node("Add", {"x", "z"}, {"y"})).text(2, "g");
  two.message(11, test::onnx_value("x", {-1, 3})).message(11, test::onnx_value("z", {3}));
  two.message(12, test::onnx_value("y", {-1, 3}));
  test::expect_contains(refused(test::onnx_model(two)),
                        {"the inputs x float [n, 3], z float [3]", "outputs y float [n, 3]", "onnx::load()"});
  EXPECT_NE(error_of([&] { kind_of_model(file("m.onnx")); }), "no error");
  EXPECT_TRUE(has(refused(image_network({-1, 5, 4, 4}, false)), "1 or 3 channels"));
  EXPECT_TRUE(has(refused(image_network({-1, 3, 4, 6}, false)), "[batch, channels, size, size]"));
  write("m.onnx", image_network({-1, 3, 4, 4}, false));
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("m.onnx"), {.dropout = 0.5}); }), {"--dropout"});
  test::expect_contains(error_of([&] { load_pretrained<Model>(file("m.onnx"), {.dtype = bfloat16}); }),
                        {"cannot be bfloat16", "--dtype bf16"});
  const auto model = load_pretrained<Model>(file("m.onnx"));
  test::expect_contains(error_of([&] { model->set_recompute(1); }), {"--recompute"});
  test::expect_contains(error_of([&] { family_of(file("none.onnx")); }), {"none.onnx: no such folder or file"});
  EXPECT_FALSE(onnx_files(folder_ / "rows.csv"));
  EXPECT_EQ(folder_of_model(file("m.onnx")), folder_.path().string());
  EXPECT_EQ(folder_of_model("some/folder"), "some/folder");
}

}  // namespace
}  // namespace tern::models
