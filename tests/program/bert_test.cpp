// BERT and RoBERTa folders through the program: any tokenizer.json, every head, vectors of texts.

#include <numeric>
#include <random>

#include "tern/models/bert/bert.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

const std::string kBert = test::source_dir() + "/tests/golden/bert/";

/// Of 45 tokens, the number of the golden models' embeddings.
Json unigram() {
  Json vocabulary = Json::array();
  for (const char* token : {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}) vocabulary.push_back({token, 0.0});
  for (const char* word : {"▁", "▁the", "▁movie", "▁film", "▁awful", "▁great", "▁a", "▁it", "▁was"})
    vocabulary.push_back({word, -2.5});
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.push_back({std::string(1, letter), -5.0});
  for (const char* pair : {"ing", "ed", "er", "st", "on"}) vocabulary.push_back({pair, -4.25});
  Json added = Json::array();
  for (int id = 0; id < 5; ++id)
    added.push_back({{"id", id},
                     {"content", vocabulary[static_cast<size_t>(id)][0]},
                     {"single_word", false},
                     {"lstrip", id == 4},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const auto around = [](const char* token, int id) { return Json{{"id", token}, {"ids", {id}}, {"tokens", {token}}}; };
  return {
      {"version", "1.0"},
      {"truncation", {{"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Left"}}},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "Lowercase"}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}})},
        {"pair", Json::array()},
        {"special_tokens", {{"<s>", around("<s>", 0)}, {"</s>", around("</s>", 2)}}}}},
      {"decoder", nullptr},
      {"model", {{"type", "Unigram"}, {"unk_id", 3}, {"vocab", vocabulary}, {"byte_fallback", false}}}};
}

class BertProgram : public ProgramTest {
 protected:
  /// A golden folder with that tokenizer.
  void make(const std::string& golden, const std::string& name) const {
    fs::create_directories(file(name));
    for (const char* part : {"config.json", "model.safetensors"}) fs::copy(kBert + golden + "/" + part, file(name));
    write(name + "/tokenizer.json", unigram().dump());
    write(name + "/tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 14})");
  }
  /// What a model of the library gives for tokens, of which those from `second` on have the type 1.
  std::vector<double> logits(const std::string& name, const std::vector<int64_t>& ids, size_t second = SIZE_MAX) const {
    NoGrad off;
    const auto model = models::BertClassifier::from_pretrained(file(name).string());
    model->eval();
    std::vector<int64_t> types(ids.size());
    for (size_t i = second; i < types.size(); ++i) types[i] = 1;
    const Shape shape = {1, static_cast<int64_t>(ids.size())};
    return model->forward(data::padded_input(from_vector(ids, shape), {}, from_vector(types, shape)))
        .to_vector<double>();
  }
  /// The same with a template for pairs: <s> A </s> B </s>, the second text and its end of type 1.
  void make_for_pairs(const std::string& golden, const std::string& name) const {
    make(golden, name);
    Json tokenizer = unigram();
    Json pair = tokenizer["post_processor"]["single"];
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    pair.push_back({{"SpecialToken", {{"id", "</s>"}, {"type_id", 1}}}});
    tokenizer["post_processor"]["pair"] = pair;
    write(name + "/tokenizer.json", tokenizer.dump());
  }
  static void expect_near(const Json& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i].get<double>(), want[i], 1e-4);
  }
};

TEST_F(BertProgram, AnyTokenizerIsTrainedWithAndSaved) {
  make("roberta_classifier", "model");
  expect_near(answer("predict model --jsonl", R"({"text": "The film was Qx"})")["logits"],
              logits("model", {0, 6, 8, 13, 5, 30, 37, 2}));
  expect_near(answer("predict model --jsonl", "{\"text\": \"\"}")["logits"], logits("model", {0, 2}));
  // Too long: the file's direction is Left, and tokenizer_config.json has the length.
  expect_near(
      answer("predict model --jsonl", R"({"text": "great awful the a a a a a a a a a it movie film"})")["logits"],
      logits("model", {0, 11, 11, 11, 11, 11, 11, 11, 11, 11, 12, 7, 8, 2}));
  write("data.csv", easy_csv(48));
  succeeds(
      "train bert --init model --data data.csv --out run --epochs 20 --lr 1e-2 --batch-size 8 --dropout 0 --threads 1 "
      "--quiet");
  EXPECT_EQ(listing("run").substr(0, 11), "config.json");
  EXPECT_EQ(json("run/tokenizer.json"), unigram());
  const Json config = json("run/tokenizer_config.json");
  EXPECT_EQ(config["model_max_length"], 14);
  EXPECT_EQ(config["truncation_side"], "left");
  EXPECT_EQ(config["cls_token"], "<s>");
  EXPECT_EQ(config["mask_token"], "<mask>");
  EXPECT_EQ(json("run/config.json")["architectures"][0], "RobertaForSequenceClassification");
  EXPECT_EQ(answer("predict run --jsonl", R"({"text": "a film that was great"})")["label"], "pos");
  EXPECT_EQ(answer("predict run --jsonl", R"({"text": "a film that was awful"})")["label"], "neg");
  EXPECT_GE(answer("eval run --json --quiet --data data.csv")["accuracy"].get<double>(), 0.9);
  EXPECT_TRUE(has(succeeds("info run").out, "RobertaForSequenceClassification"));
}

TEST_F(BertProgram, ATokenizerWithMoreTokensThanTheModel) {
  make("bert_classifier", "model");
  Json tokenizer = unigram();
  tokenizer["model"]["vocab"].push_back({"zz", -3.0});
  write("model/tokenizer.json", tokenizer.dump());
  expect_error(tern("predict model", "a film\n"), 1, {"the vocabulary has 46 tokens, the model's embedding 45"});
  write("model/tokenizer_config.json", R"({"tokenizer_class": "TokenizersBackend", "pad_token": "<none>"})");
  expect_error(tern("predict model", "a film\n"), 1, {"pad_token: the token <none> is not in tokenizer.json"});
  fs::remove(file("model/tokenizer.json"));
  write("model/vocab.json", "{}");
  expect_error(tern("predict model", "a film\n"), 1, {"vocab.json: Tern reads tokenizer.json"});
  fs::remove(file("model/vocab.json"));
  expect_error(tern("predict model", "a film\n"), 1, {"no tokenizer here"});
}

TEST_F(BertProgram, EveryHeadHasItsAnswers) {
  make("roberta_masked", "words");
  const Json masks = answer("predict words --jsonl --top 3", R"({"text": "the <mask> was <mask> a"})")["masks"];
  ASSERT_EQ(masks.size(), 2u);
  for (const Json& mask : masks) {
    ASSERT_EQ(mask["tokens"].size(), 3u);
    EXPECT_GE(mask["scores"][0].get<double>(), mask["scores"][1].get<double>());
  }
  const std::string line = succeeds("predict words", "the <mask> was\n").out;
  EXPECT_EQ(std::ranges::count(line, '\t'), 1);
  expect_error(tern("predict words", "no gap here\n"), 1, {"'no gap here' has no <mask>"});

  make("roberta_tagger", "tags");
  const Json tags = answer("predict tags --jsonl", R"({"text": "a Film"})");
  EXPECT_EQ(tags["tokens"], (Json{"▁a", "▁film"}));
  EXPECT_EQ(tags["labels"].size(), 2u);
  EXPECT_TRUE(tags["labels"][0].get<std::string>().starts_with("LABEL_"));
  EXPECT_EQ(std::ranges::count(succeeds("predict tags", "a film\n").out, '\t'), 3);

  make("roberta_model", "bare");
  expect_error(tern("predict bare", "a film\n"), 1, {"no classifier", "--features", "--init"});
  EXPECT_TRUE(has(succeeds("info bare").out, "RobertaModel"));
  expect_error(tern("eval bare --data sentences"), 1, {"another kind"});
}

TEST_F(BertProgram, VectorsAndSimilarities) {
  make("roberta_model", "bare");
  const std::string texts = "a film\nit was great\n";
  const auto vectors = [&](const std::string& options) {
    std::vector<std::vector<double>> rows;
    for (const std::string& line : lines_of(succeeds("predict bare --features " + options, texts).out)) {
      std::istringstream in(line);
      rows.emplace_back(std::istream_iterator<double>(in), std::istream_iterator<double>());
    }
    return rows;
  };
  const auto mean = vectors("");
  ASSERT_EQ(mean.size(), 2u);
  ASSERT_EQ(mean[0].size(), 24u);
  EXPECT_EQ(vectors("--pool mean"), mean);
  EXPECT_NE(vectors("--pool cls"), mean);
  EXPECT_NE(vectors("--pool max"), mean);
  const auto dot = [](const auto& a, const auto& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); };
  const double cosine = dot(mean[0], mean[1]) / std::sqrt(dot(mean[0], mean[0]) * dot(mean[1], mean[1]));
  EXPECT_NEAR(std::stod(succeeds("predict bare --similarity", "a film\tit was great\n").out), cosine, 1e-5);
  const Json pair = {{"text", "a film"}, {"text_pair", "it was great"}};
  EXPECT_NEAR(answer("predict bare --similarity --jsonl", pair.dump())["similarity"].get<double>(), cosine, 1e-5);
  // More pairs than a group has texts, with texts that are long and short by turns.
  std::string many;
  for (int i = 0; i < 300; ++i) many += std::string(static_cast<size_t>(i % 5), 'a') + " film\tit was great\n";
  const std::vector<std::string> answers = lines_of(succeeds("predict bare --similarity", many).out);
  ASSERT_EQ(answers.size(), 300u);
  for (size_t i = 5; i < 300; ++i) EXPECT_NEAR(std::stod(answers[i]), std::stod(answers[i - 5]), 1e-5) << i;
  expect_error(tern("predict bare --similarity", "one text\n"), 1, {"stdin:1", "two texts with one tab"});
  expect_error(tern("predict bare --similarity", "a\tb\tc\n"), 1, {"two texts with one tab"});
  expect_error(tern("predict bare --similarity --jsonl", "{\"text\": \"a\"}\n"), 1, {"\"text_pair\""});
  expect_error(tern("predict bare --pool mean", "a\n"), 2, {"--pool is for --features and --similarity"});
  expect_error(tern("predict bare --features --pool median", "a\n"), 2, {"median", "mean"});
  expect_error(tern("predict bare --features --similarity", "a\tb\n"), 2, {"exclude each other"});
}

TEST_F(BertProgram, PairsAreOneSequence) {
  make_for_pairs("bert_classifier", "model");
  const std::vector<double> expected = logits("model", {0, 11, 7, 2, 12, 8, 2}, 4);
  EXPECT_NE(expected, logits("model", {0, 11, 7, 2, 12, 8, 2}));
  const std::string pair = R"({"text": "a movie", "text_pair": "it film"})";
  expect_near(answer("predict model --jsonl", pair)["logits"], expected);
  expect_near(answer("predict model --jsonl --pairs", pair)["logits"], expected);
  // The longer text is cut first, here at the left.
  expect_near(
      answer("predict model --jsonl --max-length 6", R"({"text": "it", "text_pair": "a a a movie film"})")["logits"],
      logits("model", {0, 12, 2, 7, 8, 2}, 3));
  const std::string line = succeeds("predict model --pairs", "a movie\tit film\n\tfilm\n").out;
  ASSERT_EQ(lines_of(line).size(), 2u);
  write("rows.tsv", "sentence1\tsentence2\na movie\tit film\n\tfilm\n");
  write("rows.jsonl", R"({"premise": "a movie", "hypothesis": "it film"})"
                      "\n"
                      R"({"premise": "", "hypothesis": "film"})");
  for (const char* name : {"rows.tsv", "rows.jsonl"}) EXPECT_EQ(succeeds({"predict", "model", name}).out, line);
  EXPECT_EQ(answer("predict model --jsonl --features", pair)["features"].size(), 24u);
  EXPECT_NE(answer("predict model --jsonl --features", pair),
            answer("predict model --jsonl --features", R"({"text": "a movie it film"})"));
  // RoBERTa's one type is 0.
  make_for_pairs("roberta_classifier", "roberta");
  expect_near(answer("predict roberta --jsonl", pair)["logits"], logits("roberta", {0, 11, 7, 2, 12, 8, 2}));

  const Json tokens = answer("tokenize --jsonl --special --vocab model/tokenizer.json", pair);
  EXPECT_EQ(tokens["ids"], (Json{0, 11, 7, 2, 12, 8, 2}));
  EXPECT_EQ(tokens["token_types"], (Json{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(answer("tokenize --jsonl --vocab model/tokenizer.json", pair)["token_types"], (Json{0, 0, 1, 1}));
  EXPECT_EQ(succeeds("tokenize --special --max-length 5 --vocab model/tokenizer.json rows.tsv").out,
            "0 7 2 8 2\n0 2 8 2\n");
}

TEST_F(BertProgram, PairsThatAreRefused) {
  make_for_pairs("bert_classifier", "model");
  expect_error(tern("predict model --pairs", "one text\n"), 1, {"stdin:1", "two texts with one tab"});
  expect_error(tern("predict model --pairs --jsonl", "{\"text\": \"a\"}\n"), 1, {"stdin:1", "\"text_pair\""});
  expect_error(tern("predict model --jsonl", "{\"text\": \"a\", \"text_pair\": 3}\n"), 1, {"\"text_pair\""});
  Result mixed = tern("predict model --jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\", \"text_pair\": \"c\"}\n");
  EXPECT_EQ(lines_of(mixed.out).size(), 1u);
  mixed.out.clear();
  expect_error(mixed, 1, {"'b': two texts after inputs of one", "separate calls"});
  write("single.csv", "text\na\n");
  expect_error(tern("predict model --pairs single.csv"), 1, {"single.csv: expected two texts a row"});
  make("bert_classifier", "without");
  expect_error(tern("predict without --pairs", "a\tb\n"), 1, {"tokenizer.json", "no template for a pair of texts"});
  make_for_pairs("roberta_tagger", "tags");
  expect_error(tern("predict tags --pairs", "a\tb\n"), 1, {"tags: the input has pairs of texts", "classifiers"});
}

/// The label says which of the two texts has the word: only their types and places tell.
TEST_F(BertProgram, PairsAreTrainedOnAndEvaluated) {
  make_for_pairs("bert_classifier", "model");
  std::mt19937_64 fixed(5);  // a run that must learn
  std::string rows = "question,sentence,label\n";
  const std::vector<std::string> words = {"movie", "film", "it", "was", "a"};
  for (int row = 0; row < 120; ++row) {
    std::string texts[2];
    for (std::string& text : texts)
      for (uint64_t i = fixed() % 3; i > 0; --i) text += words[fixed() % words.size()] + " ";
    const uint64_t which = fixed() % 2;
    texts[which] += "great";
    rows += texts[0] + "," + texts[1] + "," + (which == 0 ? "first" : "second") + "\n";
  }
  write("pairs.csv", rows);
  const Result trained = succeeds(
      "train bert --init model --data pairs.csv --out run --epochs 30 --lr 1e-2 --batch-size 8 --dropout 0 --threads "
      "1");
  EXPECT_TRUE(has(trained.err, "data: rows are pairs of texts"));
  EXPECT_EQ(answer("predict run --jsonl", R"({"text": "it was great", "text_pair": "a film"})")["label"], "first");
  EXPECT_EQ(answer("predict run --jsonl", R"({"text": "it was", "text_pair": "a great film"})")["label"], "second");
  const Json evaluated = answer("eval run --json --quiet --data pairs.csv");
  EXPECT_GE(evaluated["accuracy"].get<double>(), 0.9);
  // The loss of eval is that of the logits of predict.
  double loss = 0;
  int64_t row = 0;
  const std::vector<std::string> lines = lines_of(rows);
  for (const Json& found : json_lines(succeeds("predict run pairs.csv --jsonl").out)) {
    const auto logits = found["logits"].get<std::vector<double>>();
    double sum = 0;
    for (const double v : logits) sum += std::exp(v);
    loss += std::log(sum) - logits[lines[static_cast<size_t>(++row)].ends_with("first") ? 0 : 1];
  }
  ASSERT_EQ(row, 120);
  EXPECT_NEAR(evaluated["loss"].get<double>(), loss / 120, 1e-5);
}

}  // namespace
}  // namespace tern::program
