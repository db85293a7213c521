// Vectors of texts compared with sentence-transformers (tests/golden/make_sentences.py).

#include "tern/models/text/sentence_embedder.h"

#include <filesystem>

#include "tern/tests/errors.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/models/golden_texts.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kSentences = kGolden + "sentences/";

void write_json(const fs::path& path, const json& value) { std::ofstream(path) << value.dump(); }
json read_json(const fs::path& path) { return json::parse(std::ifstream(path)); }

/// A folder of a small BERT with a vocabulary, and the modules of the golden chain if they are wanted.
class SentenceFolder : public ::testing::Test {
 protected:
  void make(bool modules) {
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy(kGolden + "bert/bert_model/" + name, folder_ / name, fs::copy_options::overwrite_existing);
    fs::copy(kSentences + "vocab.txt", folder_ / "vocab.txt", fs::copy_options::overwrite_existing);
    write_json(folder_ / "tokenizer_config.json", {{"tokenizer_class", "BertTokenizer"}, {"model_max_length", 12}});
    if (!modules) return;
    for (const char* name : {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
                             "1_Pooling", "2_Dense", "3_Normalize"})
      fs::copy(kSentences + name, folder_ / name, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  std::string dir() const { return folder_.path().string(); }
  void change(const std::string& file, const char* path, const json& value) {
    json all = read_json(folder_ / file);
    all[json::json_pointer(path)] = value;
    write_json(folder_ / file, all);
  }
  const std::vector<std::string> texts_ = read_json(kSentences + "texts.json").get<std::vector<std::string>>();
  const StateView expected_ = load_safetensors(kSentences + "expected.safetensors").tensors;
  test::TemporaryFolder folder_;
};

void expect_equal(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  EXPECT_LE(distance(got.to_vector<double>(), want.to_vector<double>()), 3e-6 * l2(want.to_vector<double>())) << what;
}

TEST_F(SentenceFolder, EveryPooling) {
  make(false);
  for (const std::string& name : pool_mode_names()) {
    const auto embedder = SentenceEmbedder::load(dir(), pool_mode(name, "test"));
    expect_equal(embedder.embed(texts_), find(expected_, name), name);
    // In batches of one text each.
    expect_equal(embedder.embed(texts_, 0, 1), find(expected_, name), name);
  }
  const auto embedder = SentenceEmbedder::load(dir());
  expect_equal(embedder.embed(texts_), find(expected_, "mean"), "the default");
  expect_equal(embedder.similarity(find(expected_, "mean"), find(expected_, "max")), find(expected_, "cosine"),
               "cosine");
  EXPECT_FALSE(embedder.embed({}).defined());
  test::expect_error([] { pool_mode("median", "--pool"); }, {"--pool: the pooling mode 'median'", "cls, max, mean"});
}

TEST_F(SentenceFolder, ModulesInTheirOrder) {
  make(true);
  EXPECT_TRUE(SentenceEmbedder::has_modules(dir()));
  expect_equal(SentenceEmbedder::load(dir()).embed(texts_), find(expected_, "chain"), "chain");
  // The switches of older files, in the order in which sentence-transformers concatenates them: max before mean.
  write_json(folder_ / "1_Pooling/config.json",
             {{"word_embedding_dimension", 24}, {"pooling_mode_mean_tokens", true}, {"pooling_mode_max_tokens", true}});
  json modules = read_json(folder_ / "modules.json");
  modules.erase(3), modules.erase(2);
  write_json(folder_ / "modules.json", modules);
  expect_equal(SentenceEmbedder::load(dir()).embed(texts_), cat({find(expected_, "max"), find(expected_, "mean")}, 1),
               "max and mean");
  expect_equal(SentenceEmbedder::load(dir(), PoolMode::kCls).embed(texts_), find(expected_, "cls"), "cls");
}

TEST_F(SentenceFolder, SettingsOfTheTransformer) {
  make(true);
  write_json(folder_ / "modules.json", json::array({read_json(folder_ / "modules.json")[0]}));
  const Tensor mean = SentenceEmbedder::load(dir()).embed(texts_);
  expect_equal(mean, find(expected_, "mean"), "a transformer alone");
  const auto shorter = [&](int64_t length) { return SentenceEmbedder::load(dir()).embed(texts_, length); };
  change("sentence_bert_config.json", "/max_seq_length", 5);
  EXPECT_EQ(SentenceEmbedder::load(dir()).embed(texts_).to_vector<float>(), shorter(5).to_vector<float>());
  EXPECT_NE(SentenceEmbedder::load(dir()).embed(texts_).to_vector<float>(), mean.to_vector<float>());
  change("sentence_bert_config.json", "/max_seq_length", 12);
  // do_lower_case is what a tokenizer that keeps case needs.
  change("tokenizer_config.json", "/do_lower_case", false);
  EXPECT_NE(SentenceEmbedder::load(dir()).embed(texts_).to_vector<float>(), mean.to_vector<float>());
  change("sentence_bert_config.json", "/do_lower_case", true);
  EXPECT_EQ(SentenceEmbedder::load(dir()).embed(texts_).to_vector<float>(), mean.to_vector<float>());
  // A prompt is text in front of each text.
  change("config_sentence_transformers.json", "/prompts/query", "a dog ");
  change("config_sentence_transformers.json", "/default_prompt_name", "query");
  std::vector<std::string> longer;
  for (const std::string& text : texts_) longer.push_back("a dog " + text);
  const Tensor prompted = SentenceEmbedder::load(dir()).embed(texts_);
  change("config_sentence_transformers.json", "/default_prompt_name", nullptr);
  EXPECT_EQ(prompted.to_vector<float>(), SentenceEmbedder::load(dir()).embed(longer).to_vector<float>());
}

TEST_F(SentenceFolder, OtherSimilarities) {
  make(true);
  const Tensor a = from_vector(std::vector<float>{1, 2, 3, 4}, {2, 2}),
               b = from_vector(std::vector<float>{1, 0, 0, 8}, {2, 2});
  const auto values = [&](const char* name) {
    change("config_sentence_transformers.json", "/similarity_fn_name", name);
    return SentenceEmbedder::load(dir()).similarity(a, b).to_vector<float>();
  };
  EXPECT_EQ(values("dot"), (std::vector<float>{1, 32}));
  EXPECT_EQ(values("euclidean"), (std::vector<float>{-2, -5}));
  EXPECT_EQ(values("manhattan"), (std::vector<float>{-2, -7}));
  EXPECT_NEAR(values("cosine")[1], 0.8f, 1e-6);
}

TEST_F(SentenceFolder, ErrorsNameWhatThereIsNot) {
  const auto error = [&](const char* file, const char* path, const json& value, const std::vector<std::string>& parts) {
    make(true);
    change(file, path, value);
    test::expect_error([&] { SentenceEmbedder::load(dir()); }, parts);
  };
  error("modules.json", "/3/type", "sentence_transformers.models.WeightedLayerPooling",
        {"modules.json", "WeightedLayerPooling is not implemented"});
  error("modules.json", "/0/type", "sentence_transformers.models.CLIPModel", {"the first module is a CLIPModel"});
  error("modules.json", "/1/type", "x.Normalize", {"module 1 is a Normalize"});
  error("modules.json", "/2/type", "x.Pooling", {"module 2 is a Pooling"});
  error("modules.json", "/1/path", "../1_Pooling", {"leads out of the folder"});
  error("modules.json", "/1/path", "none", {"none/config.json"});
  error("modules.json", "/1/path", nullptr, {"must have a \"type\" and a \"path\""});
  error("1_Pooling/config.json", "/pooling_mode", "median", {"'median' is unknown"});
  error("1_Pooling/config.json", "/include_prompt", false, {"include_prompt"});
  error("2_Dense/config.json", "/activation_function", "mine.Act", {"activation_function \"mine.Act\""});
  error("2_Dense/config.json", "/use_residual", true, {"use_residual"});
  error("2_Dense/config.json", "/bias", false, {"expected linear.weight [outputs, 48] and no linear.bias"});
  error("sentence_bert_config.json", "/max_seq_length", 0, {"max_seq_length"});
  error("sentence_bert_config.json", "/modality_config/text/method_output_name", "pooler_output", {"pooler_output"});
  error("config_sentence_transformers.json", "/similarity_fn_name", "jaccard", {"jaccard"});
  error("config_sentence_transformers.json", "/default_prompt_name", "nothing", {"default_prompt_name"});
  make(true);
  std::ofstream(folder_ / "modules.json") << "{}";
  test::expect_error([&] { SentenceEmbedder::load(dir()); }, {"expected a list of modules"});
}

TEST(Pooling, PaddedRowsAreLeftOut) {
  const Tensor ids = full({2, 3}, 1, {.dtype = DType::kInt64});
  const Tensor mask = from_vector(std::vector<int64_t>{1, 1, 0, 1, 1, 1}, {2, 3});
  const data::TokenInput input = data::padded_input(ids, mask);
  const Tensor states = from_vector(std::vector<float>{1, 3, 100, -4, -8, -6}, {6, 1});
  const auto pooled = [&](PoolMode mode) { return pool(states, input, mode).to_vector<float>(); };
  EXPECT_EQ(pooled(PoolMode::kMean), (std::vector<float>{2, -6}));
  EXPECT_EQ(pooled(PoolMode::kMax), (std::vector<float>{3, -4}));
  EXPECT_EQ(pooled(PoolMode::kCls), (std::vector<float>{1, -4}));
  EXPECT_EQ(pooled(PoolMode::kLastToken), (std::vector<float>{3, -6}));
  EXPECT_NEAR(pooled(PoolMode::kWeightedMean)[0], 7.0 / 3, 1e-6);
  EXPECT_NEAR(pooled(PoolMode::kMeanSqrtLength)[1], -18 / std::sqrt(3.0), 1e-5);
  const Tensor empty = from_vector(std::vector<int64_t>{1, 1, 0, 0, 0, 0}, {2, 3});
  test::expect_error([&] { pool(states, data::padded_input(ids, empty), PoolMode::kMean); },
                     {"sequence 1 has no token"});
}

}  // namespace
}  // namespace tern::models
