// Damaged model folders: every command that loads one gives one clear error.

#include "tern/core/io/safetensors.h"
#include "tern/core/tensor.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

class ModelFolderTest : public ProgramTest {
 protected:
  /// Makes a new copy of the golden folder as "model".
  void restore() const {
    fs::remove_all(file("model"));
    fs::create_directories(file("model"));
    for (const std::string name : {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"})
      copy("curve/" + name, "model/" + name);
  }
  Result predict() const { return tern("predict model", "the movie\n"); }
  void expect_broken(const std::vector<std::string>& parts) const { expect_error(predict(), 1, parts); }
  void configure(const std::string& name, const Json& value) const {
    restore();
    Json config = json("curve/config.json");
    config[name] = value;
    write("model/config.json", config.dump());
  }
  StateView weights() const { return load_safetensors(kCurve + "/model.safetensors").tensors; }
  void save(const StateView& state) const {
    restore();
    save_safetensors(state, file("model/model.safetensors").string(), {});
  }
};

TEST_F(ModelFolderTest, MissingAndDamagedFiles) {
  restore();
  EXPECT_EQ(predict().status, 0) << predict().err;
  for (const std::string name : {"config.json", "model.safetensors", "vocab.txt"}) {
    restore();
    fs::remove(file("model/" + name));
    expect_broken({name == "vocab.txt" ? name : "model/" + name});
  }
  const std::string whole = read("curve/model.safetensors");
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    restore();
    write("model/model.safetensors", whole.substr(0, bytes));
    expect_broken({"model/model.safetensors"});
    for (const char* command : {"info model/model.safetensors", "info model", "eval model --data curve/data.csv",
                                "train distilbert --init model --data curve/data.csv --out run"})
      expect_error(tern(command), 1, {"model/model.safetensors"});
    EXPECT_FALSE(exists("run"));
  }
  restore();
  write("model/model.safetensors", whole + "x");
  expect_broken({"model/model.safetensors"});
  for (const std::string text : {"", "{", "[]", "5", "{\"dim\": }"}) {
    restore();
    write("model/config.json", text);
    expect_broken({"model/config.json"});
  }
  restore();
  write("model/vocab.txt", "a\n[UNK]\nb\n[PAD]\n");
  expect_broken({"vocabulary", "[SEP]"});
  std::string longer = read("curve/vocab.txt");
  for (int i = 0; i < 300; ++i) longer += "extra" + std::to_string(i) + "\n";
  write("model/vocab.txt", longer);
  expect_broken({"vocabulary", "205"});
}

TEST_F(ModelFolderTest, WeightsOfPyTorch) {
  restore();
  const Result expected = predict();
  EXPECT_EQ(expected.status, 0) << expected.err;
  fs::remove(file("model/model.safetensors"));
  for (const auto& entry : fs::directory_iterator(kGolden + "torch/parts"))
    fs::copy_file(entry.path(), file("model") / entry.path().filename());
  EXPECT_EQ(predict().out, expected.out);
  succeeds("info model");
  const std::string part = "model/pytorch_model-00002-of-00002.bin", whole = read(part);
  write(part, whole.substr(0, whole.size() / 2));
  expect_broken({part, "truncated"});
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 4;
  write(part, damaged);
  expect_broken({part, "tensor '", "checksum"});
  fs::remove(file(part));
  expect_broken({part, "No such file"});
  fs::copy_file(kGolden + "torch/hostile.pt", file("model/pytorch_model.bin"));
  expect_broken({"model/pytorch_model.bin", "posix.system", "never runs code"});
  EXPECT_FALSE(exists("hostile-was-here"));
}

TEST_F(ModelFolderTest, WhatAFileHolds) {
  const Result result = succeeds({"info", kGolden + "torch/checkpoint.pth"});
  for (const std::string line :
       {"format: PyTorch (zip)", "epoch: 7", "name: 'a \u00e9 \\x0a'", "args.lr: 0.001",
        "model.0.weight  float32  [3, 4]  48 bytes", "optimizer.state.0.exp_avg  float32  [3, 4]  48 bytes",
        "rng  uint8  [5]  5 bytes", "a model's weights: 8 tensors under model"})
    EXPECT_TRUE(has("\n" + result.out, "\n" + line + "\n")) << line << " not in " << result.out;
  const Result complex = tern({"info", kGolden + "torch/complex.pt"});
  EXPECT_TRUE(has(complex.out, "odd  cannot be read: complex64 [2]: Tern has no complex64"));
  const Result small = tern({"info", kGolden + "torch/dtypes.pt"});
  EXPECT_TRUE(has(small.out, "int8  int32  [3, 5]  60 bytes  (int8 in the file)"));
  const Result arrays = succeeds({"info", kGolden + "numpy/savez.npz"});
  for (const std::string line :
       {"format: NumPy (npz)", "a  float32  [2, 3]  24 bytes", "folder/b  int64  [3]  24 bytes",
        "small  int32  [2]  8 bytes  (int8 in the file)", "5 tensors, 12 elements, 64 bytes"})
    EXPECT_TRUE(has("\n" + arrays.out, "\n" + line + "\n")) << line << " not in " << arrays.out;
  EXPECT_TRUE(has(arrays.out, "text  cannot be read: the type '<U2'"));
  const Result curve = tern("info curve/model.safetensors");
  EXPECT_TRUE(has(curve.out, "metadata format: pt\n"));
  expect_error(tern("info curve/vocab.txt"), 1, {"vocab.txt", "neither a safetensors file nor one"});
  expect_error(tern({"info", kGolden + "torch/hostile.pkl"}), 1, {"hostile.pkl", "builtins.eval"});
}

TEST_F(ModelFolderTest, Configurations) {
  const struct {
    const char* name;
    Json value;
    std::vector<std::string> parts;
  } cases[] = {
      {"model_type", "gpt2", {"'gpt2'", "distilbert"}},
      {"dim", "wide", {"\"dim\"", "integer", "wide"}},
      {"dim", 18.5, {"\"dim\"", "integer"}},
      {"dim", -18, {"\"dim\"", "-18"}},
      {"dim", 0, {"\"dim\""}},
      {"dim", 1000000000000, {"\"dim\""}},
      {"dim", 20, {"word_embeddings", "expected"}},
      {"n_heads", 5, {"\"n_heads\""}},
      {"n_layers", 3, {"unexpected", "layer.3."}},
      {"n_layers", 5, {"missing", "layer.4."}},
      {"vocab_size", 206, {"word_embeddings"}},
      {"max_position_embeddings", 16, {"position_embeddings"}},
      {"activation", "silu", {"\"activation\"", "silu"}},
      {"dropout", 1.5, {"\"dropout\"", "1.5"}},
      {"dropout", "0.1", {"\"dropout\"", "number"}},
      {"hidden_size", 99, {"\"hidden_size\"", "99"}},
      {"num_labels", 5, {"classifier.weight", "expected [5, 18]"}},
      {"id2label", Json{{"0", "a"}, {"2", "b"}}, {"\"id2label\""}},
      {"label2id", Json{"a"}, {"\"label2id\""}},
      {"pad_token_id", 100000, {"\"pad_token_id\""}},
      {"problem_type", "ranking", {"problem_type", "ranking", "multi_label_classification"}},
      {"is_decoder", true, {"is_decoder"}},
      {"pruned_heads", Json{{"0", {1}}}, {"pruned"}},
      {"quantization_config", Json{{"bits", 4}}, {"quantization_config"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name + c.value.dump());
    configure(c.name, c.value);
    expect_broken(c.parts);
  }
  configure("transformers_version", "9.9.9");
  EXPECT_EQ(predict().status, 0);
  configure("window_size", 5);  // a key of one's own, as transformers allows
  EXPECT_EQ(predict().status, 0);
  EXPECT_TRUE(has(predict().err, "the field window_size is not known"));
  configure("id2label", Json{{"0", "a"}, {"1", "b"}, {"2", "a"}});
  EXPECT_EQ(predict().status, 0);
}

TEST_F(ModelFolderTest, TokenizersThatTernHasNot) {
  restore();
  write("model/tokenizer_config.json", R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  expect_broken({"the tokenizer_class \"BertJapaneseTokenizer\" needs it"});
  restore();
  write("model/added_tokens.json", R"({"<new>": 300})");
  expect_broken({"added_tokens.json", "<new>"});
  restore();
  EXPECT_TRUE(has(predict().err, "the model's vocab_size is 205, the vocabulary has 202 tokens"));
  EXPECT_EQ(tern("predict model --quiet", "the movie\n").err, "");
}

TEST_F(ModelFolderTest, TensorsThatDoNotFitAreAllNamed) {
  StateView state;
  for (const NamedTensor& entry : weights()) {
    if (entry.name == "classifier.bias" || entry.name.ends_with("layer.0.attention.k_lin.weight")) continue;
    if (entry.name == "pre_classifier.weight")
      state.push_back({entry.name, zeros({5, 5})});
    else if (entry.name == "pre_classifier.bias")
      state.push_back({entry.name, zeros({18}, {.dtype = DType::kInt64})});
    else
      state.push_back(entry);
  }
  state.push_back({"surprise.weight", zeros({2})});
  save(state);
  expect_broken({"missing: ", "classifier.bias", "distilbert.transformer.layer.0.attention.k_lin.weight",
                 "unexpected: ", "surprise.weight", "pre_classifier.weight is [5, 5], expected [18, 18]",
                 "pre_classifier.bias is int64"});
}

TEST_F(ModelFolderTest, HalfPrecisionFilesAreWidened) {
  StateView state;
  for (const NamedTensor& entry : weights()) state.push_back({entry.name, entry.tensor.to(DType::kFloat16)});
  restore();
  const std::string line = "{\"text\": \"the movie was great\"}\n";
  const Json a = answer("predict model --jsonl", line);
  save(state);
  const Json b = answer("predict model --jsonl", line);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(a["logits"][i], b["logits"][i], 1e-2);
}

/// --init from an encoder without a head, like a pretrained checkpoint.
TEST_F(ModelFolderTest, BareEncoderStartsANewHead) {
  StateView bare;
  for (const NamedTensor& entry : weights())
    if (entry.name.starts_with("distilbert.")) bare.push_back({entry.name.substr(11), entry.tensor});
  save(bare);
  expect_broken({"missing: ", "classifier.weight", "pre_classifier.bias"});
  write("two.csv", easy_csv(20));
  const Result result = succeeds("train distilbert --init model --data two.csv --out run --max-steps 1");
  EXPECT_TRUE(has(result.err, "classification head"));
  EXPECT_EQ(json("run/config.json")["id2label"], (Json{{"0", "neg"}, {"1", "pos"}}));
  EXPECT_EQ(load_safetensors(file("run/model.safetensors").string()).tensors.size(), weights().size());
}

/// The folder has the labels of the data in unsorted order: order and head are kept.
TEST_F(ModelFolderTest, LabelOrderOfTheFolderStays) {
  restore();
  const Result result =
      succeeds("train distilbert --init model --data curve/data.csv --out run --max-steps 1 --lr 0 --split all");
  EXPECT_FALSE(has(result.err, "classification head"));
  EXPECT_TRUE(has(result.err, "model: the head is kept: its labels are those of the data, in the model's order: "));
  EXPECT_EQ(json("run/config.json")["id2label"], json("curve/config.json")["id2label"]);
  const Words data = "--data curve/data.csv --json";
  EXPECT_EQ(tern("eval run" + data).out, tern("eval model" + data).out);
}

/// Training from a model and its evaluation match labels by one rule, and say what it gave.
TEST_F(ModelFolderTest, LabelsOfTheDataAndOfTheModel) {
  struct Case {
    Words model, data;  // labels
    bool keeps;
    std::string said;          // by train, after "head is kept: " or "is initialized: "
    Words stored;              // labels of the new model
    std::string refused = {};  // by eval; empty: it finds what the model found
  };
  const Case cases[] = {
      {"joy fear sad", "fear joy sad", true, "its labels are those of the data, in the model's order: joy, fear, sad",
       "joy fear sad"},
      {"joy fear sad", "Fear Joy SAD", true, "labels are matched without case: Fear = fear", "joy fear sad"},
      {"joy fear sad", "0 1 2", true, "numbers are the model's outputs: 0 = joy, 1 = fear, 2 = sad", "joy fear sad"},
      {"LABEL_0 LABEL_1 LABEL_2", "fear joy sad", true, "matched in order: fear = LABEL_0", "fear joy sad"},
      {"LABEL_0 LABEL_1 LABEL_2", "cat dog", false, "the model has 3 labels and the data 2 (LABEL_0, LABEL_1, LABEL_2)",
       "cat dog", "the data has the labels cat, dog, but the model has 3 outputs without names"},
      {"joy fear sad", "cat dog owl", false, "the data's label \"cat\" is none of the model's: joy, fear, sad",
       "cat dog owl", "unknown label \"cat\"; the model has: joy, fear, sad"},
      {"joy Joy sad", "JOY cat sad", false, "the data's label \"JOY\" is none of the model's", "JOY cat sad",
       "unknown label \"JOY\""},
      {"joy fear sad", "joy sad", false, "the model has 3 labels and the data 2 (joy, fear, sad)", "joy sad"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.model) + testing::PrintToString(c.data));
    restore();
    Json names = Json::object(), numbers = Json::object(), config = json("model/config.json");
    for (size_t i = 0; i < 3; ++i) names[std::to_string(i)] = c.model[i], numbers[c.model[i]] = i;
    config["id2label"] = names;
    config["label2id"] = numbers;
    write("model/config.json", config.dump());
    std::string csv = "label,text\n";
    for (int row = 0; row < 12; ++row)
      csv += c.data[static_cast<size_t>(row) % c.data.size()] + ",text " + std::to_string(row) + "\n";
    write("rows.csv", csv);
    fs::remove_all(file("run"));
    const Result trained = succeeds(
        "train distilbert --init model --data rows.csv --out run --max-steps 1 --lr 0 --split all --dtype fp32");
    const std::string head =
        c.keeps ? "model: the head is kept: "
                : "model: a new classification head for " + std::to_string(c.data.size()) + " labels is initialized: ";
    EXPECT_TRUE(has(trained.err, head)) << trained.err;
    EXPECT_TRUE(has(trained.err, c.said)) << trained.err;
    EXPECT_EQ(json("run/config.json")["id2label"].size(), c.stored.size());
    for (size_t i = 0; i < c.stored.size(); ++i)
      EXPECT_EQ(json("run/config.json")["id2label"][std::to_string(i)], c.stored[i]);
    const StateView before = load_safetensors(file("model/model.safetensors").string()).tensors;
    for (const NamedTensor& entry : load_safetensors(file("run/model.safetensors").string()).tensors)
      for (const NamedTensor& old : before)
        if (entry.name == old.name && entry.name == "classifier.weight") {
          EXPECT_EQ(entry.tensor.shape() == old.tensor.shape() &&
                        entry.tensor.to_vector<float>() == old.tensor.to_vector<float>(),
                    c.keeps);
        }
    const Result now = succeeds("eval run --data rows.csv --json"), first = tern("eval model --data rows.csv --json");
    if (!c.refused.empty()) {
      expect_error(first, 1, {c.refused});
    } else if (c.keeps) {
      EXPECT_EQ(Json::parse(first.out)["accuracy"], Json::parse(now.out)["accuracy"]);
      EXPECT_EQ(Json::parse(first.out)["loss"], Json::parse(now.out)["loss"]);
      EXPECT_EQ(has(c.said, "those of the data"), !has(first.err, "match") && !has(first.err, "numbers are"));
    }
  }
}

TEST_F(ModelFolderTest, AModelThatIsNotOnThisMachine) {
  expect_error(
      tern("train distilbert --init distilbert-base-uncased --data curve/data.csv"), 1,
      {"distilbert-base-uncased: no such folder", "HF_HUB_OFFLINE is set", "tern fetch distilbert-base-uncased"});
  const Result typo = tern("train distilbert --init ./modle --data curve/data.csv");
  expect_error(typo, 1, {"./modle: no such folder"});
  EXPECT_FALSE(has(typo.err, "hub"));
  expect_error(tern("train vit --data photos/cats"), 1, {"\"photos/cats\": there is no such folder"});
  expect_error(tern("train vit --data curve/data.csv"), 1, {"\"curve/data.csv\" is not a folder"});
  expect_error(tern("train distilbert --data revews.csv"), 1, {"revews.csv"});
  expect_error(tern("train distilbert --data reviews"), 1, {"\"reviews\": there is no such file or folder"});
  expect_error(tern("train distilbert --data curve/vocab.txt"), 1, {"vocab.txt\" is a file of another kind"});
}

}  // namespace
}  // namespace tern::program
