// ONNX files as models of texts: what they give beside the models that they were exported from, files that fix sizes,
// have no mask, or give something for each token.

#include "tern/models/bert/bert.h"
#include "tern/models/model_graph.h"
#include "tern/tests/models/onnx_models.h"

namespace tern::models {
namespace {

/// A golden BERT with a head as m.onnx.
std::unique_ptr<BertClassifier> write_bert(const std::string& path) {
  auto model = BertClassifier::from_pretrained(kGolden + "bert/bert_classifier");
  model->eval();
  onnx::save(graph_of(*model), path);
  return model;
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
  const auto bert = write_bert(file("m.onnx"));
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
  const auto bert = write_bert(file("m.onnx"));
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
  // A file without a mask that fixes the length reads fillers: the token of config.json.
  write("bare/m.onnx", text_network({-1, 3}, false));
  write("bare/config.json", R"({"pad_token_id": 3, "max_position_embeddings": 9})");
  const auto bare = load_pretrained<SequenceClassifier>(file("bare/m.onnx"));
  EXPECT_EQ(bare->max_positions(), 3);
  expect_near(bare->forward(packed_texts({{1, 2}, {4}})), text_logits({{1, 2, 3}, {4, 3, 3}}));
}

/// Without a mask a filler would be text: sequences of one length are run together.
TEST_F(OnnxModels, TextsWithoutAMaskDoNotDependOnEachOther) {
  write("m.onnx", text_network({-1, -1}, false));
  const auto model = load_pretrained<SequenceClassifier>(file("m.onnx"));
  EXPECT_TRUE(model->reads_lengths());
  const std::vector<std::vector<int64_t>> texts = {{1, 2, 3}, {6}, {4, 5}, {2, 2, 2}, {5}};
  NoGrad off;
  expect_near(model->forward(packed_texts(texts)), text_logits(texts));
  const Tensor ids = from_vector<int64_t>({1, 2, 6, 0, 4, 5}, {3, 2}),
               mask = from_vector<int64_t>({1, 1, 1, 0, 1, 1}, {3, 2});
  expect_near(model->forward(data::padded_input(ids, mask)), text_logits({{1, 2}, {6}, {4, 5}}));
}

/// Batches of a step may be narrower than its longest sequence.
TEST_F(OnnxModels, PaddedBatchesOfOneStepHaveWidthsOfTheirOwn) {
  write("m.onnx", text_network({-1, -1}, true));
  const auto model = load_pretrained<SequenceClassifier>(file("m.onnx"));
  const Tensor ids = from_vector<int64_t>({1, 2, 6, 0}, {2, 2}), mask = from_vector<int64_t>({1, 1, 1, 0}, {2, 2});
  data::TokenInput input = data::padded_input(ids, mask);
  input.layout.max_length = 5;
  NoGrad off;
  expect_near(model->forward(input), text_logits({{1, 2}, {6}}));
}

TEST_F(OnnxModels, PositionsBeginWhereTheFamilyHasThem) {
  Message graph;  // the sum of the positions, and 1
  graph.message(1, test::onnx_node("Cast", {"position_ids"}, {"p"}).message(5, test::onnx_attribute("to", 1)));
  graph.message(1, test::onnx_node("Cast", {"input_ids"}, {"i"}).message(5, test::onnx_attribute("to", 1)));
  graph.message(1, test::onnx_node("Mul", {"i", "zero"}, {"z"})).message(1, test::onnx_node("Add", {"p", "z"}, {"s"}));
  graph.message(1, test::onnx_node("MatMul", {"s", "w"}, {"logits"})).text(2, "g");
  graph.message(5, test::onnx_floats("zero", {1}, {0})).message(5, test::onnx_floats("w", {3, 2}, {1, 0, 1, 0, 1, 0}));
  graph.message(11, test::onnx_value("input_ids", {-1, 3}, 7))
      .message(11, test::onnx_value("position_ids", {-1, 3}, 7));
  graph.message(12, test::onnx_value("logits", {-1, 2}));
  write("m.onnx", test::onnx_model(graph));
  NoGrad off;
  const auto sum_of = [&] {
    return load_pretrained<SequenceClassifier>(file("m.onnx"))
        ->forward(packed_texts({{4, 5, 6}}))
        .to_vector<float>()[0];
  };
  EXPECT_EQ(sum_of(), 3);
  write("config.json", R"({"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 5})");
  EXPECT_EQ(sum_of(), 9);
  load_pretrained<Model>(file("m.onnx"))->save_pretrained(file("saved"));
  EXPECT_EQ(
      load_pretrained<SequenceClassifier>(file("saved"))->forward(packed_texts({{4, 5, 6}})).to_vector<float>()[0], 9);
  EXPECT_EQ(load_pretrained<TextModel>(file("saved"))->max_positions(), 3);
}

TEST_F(OnnxModels, ResultsOfOtherShapesThanTheFileSays) {
  NoGrad off;
  const auto refused = [&](const std::vector<int64_t>& declared) {
    write("m.onnx", text_network({-1, -1}, true, 7, declared));
    return error_of([&] {
      (void)load_pretrained<SequenceClassifier>(file("m.onnx"))->forward(packed_texts({{1}, {2}}));
    });
  };
  EXPECT_EQ(refused({-1, 2}), "no error");
  EXPECT_EQ(refused({-1, -1}), "no error");
  test::expect_contains(refused({-1, 5}), {"'logits' is", "[2, 2]", "[2, 5] are expected"});
  EXPECT_EQ(refused({-1, int64_t{1} << 40}), "no error");  // not believed: a call decides
  Message graph;                                           // one row for all images
  graph.message(1, test::onnx_node("ReduceMean", {"x", "axes"}, {"y"}).message(5, test::onnx_attribute("keepdims", 0)));
  std::string bytes(24, '\0');
  const int64_t axes[] = {0, 2, 3};
  std::memcpy(bytes.data(), axes, 24);
  graph.text(2, "g").message(5, Message().number(1, 3).number(2, 7).text(8, "axes").text(9, bytes));
  graph.message(11, test::onnx_value("x", {-1, 3, 4, 4})).message(12, test::onnx_value("y", {-1, 3}));
  write("i.onnx", test::onnx_model(graph));
  const auto model = load_pretrained<ImageClassifier>(file("i.onnx"));
  test::expect_contains(error_of([&] { (void)model->forward(zeros({2, 3, 4, 4})); }), {"'y' is", "[3]", "[2, 3]"});
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

}  // namespace
}  // namespace tern::models
