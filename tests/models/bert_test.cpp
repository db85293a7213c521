// BERT and RoBERTa with each head, compared with transformers (tests/golden/make_bert.py): logits, hidden states, every
// gradient, training; checkpoints in all their spellings.

#include "tern/models/bert/bert.h"

#include <filesystem>

#include "tern/models/hf_config.h"
#include "tern/optim/optim.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/models/golden_texts.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

constexpr double kRelative = 1e-5;  // of the largest value; PyTorch's float32 has 2e-6

/// A model and the logits of its head.
struct Headed {
  std::unique_ptr<Model> model;
  std::function<Tensor(const data::TokenInput& input)> forward;
};

template <class M>
Headed headed(const std::string& dir, Tensor (M::*forward)(const data::TokenInput&) const) {
  auto model = load_pretrained<M>(dir);
  const M* const raw = model.get();
  return {std::move(model), [=](const data::TokenInput& input) { return (raw->*forward)(input); }};
}

/// By the architecture in config.json.
Headed load(const std::string& dir) {
  auto model = load_pretrained<Model>(dir);
  const Model* const raw = model.get();
  if (dynamic_cast<const Bert*>(raw)) return headed(dir, &Bert::pooled);
  if (dynamic_cast<const BertClassifier*>(raw)) return headed(dir, &BertClassifier::forward);
  if (dynamic_cast<const BertTagger*>(raw)) return headed(dir, &BertTagger::forward);
  const auto* const words = dynamic_cast<const BertMaskedWords*>(raw);
  TERN_CHECK(words, dir, ": the model is a ", raw->type_name());
  return {std::move(model), [=](const data::TokenInput& input) { return words->forward(input); }};
}

std::vector<double> values_of(const Tensor& x) { return x.to_vector<double>(); }

void expect_close(const Tensor& got, const Tensor& want, const std::string& what, double floor = 0) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const std::vector<double> reference = values_of(want);
  double largest = floor;
  for (const double value : reference) largest = std::max(largest, std::abs(value));
  const std::vector<double> values = values_of(got);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_LE(std::abs(values[i] - reference[i]), kRelative * largest) << what << " at " << i;
}

class BertGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string, bool>> {
 protected:
  std::string dir() const { return "bert/" + std::get<0>(GetParam()) + "_" + std::get<1>(GetParam()); }
  bool pack() const { return std::get<2>(GetParam()); }
  bool of_tokens() const { return std::get<1>(GetParam()) == "tagger" || std::get<1>(GetParam()) == "masked"; }
  const StateView expected_ = expected_of(dir());
  const Tensor mask_ = find(expected_, "attention_mask");
  const data::TokenInput input_ = input_of(expected_, pack());

  /// A tensor [batch, length, ...] as rows of the input.
  Tensor rows(const Tensor& x) const {
    std::vector<int64_t> shape = {x.size(0) * x.size(1)};
    if (x.dim() == 3) shape.push_back(x.size(2));
    const Tensor flat = x.reshape(Shape(shape));
    return pack() ? rows_kept(flat, mask_) : flat;
  }
  Tensor labels() const {
    const Tensor labels = find(expected_, "labels");
    return of_tokens() ? rows(labels) : labels;
  }
};

TEST_P(BertGolden, LogitsStatesAndGradients) {
  const Headed bert = load(kGolden + dir());
  bert.model->eval();
  const Tensor logits = bert.forward(input_), want = find(expected_, "logits");
  expect_close(logits.detach(), of_tokens() ? rows(want) : want, "logits");
  {
    NoGrad off;
    const Tensor states = dynamic_cast<const TextModel&>(*bert.model).hidden_states(input_);
    const Tensor kept = pack() ? states : rows_kept(states, mask_);
    const Tensor states_want = find(expected_, "last_hidden_state");
    expect_close(kept, rows_kept(states_want.reshape({-1, states_want.size(2)}), mask_), "last_hidden_state");
  }
  const Tensor loss = cross_entropy(logits, labels());
  EXPECT_NEAR(loss.item<double>(), find(expected_, "loss").item<double>(), kRelative);
  loss.backward();
  StateView gradients;
  for (const NamedTensor& p : bert.model->parameters()) gradients.push_back({p.name, p.tensor.grad()});
  const BertConfig config = BertConfig::from_json(read_model_text(kGolden + dir(), "config.json"), dir());
  size_t compared = 0;
  for (const NamedTensor& gradient : to_checkpoint_names(bert_key_map(config), gradients)) {
    const Tensor reference = find(expected_, "grad/" + gradient.name);
    ASSERT_TRUE(reference.defined()) << gradient.name;
    expect_close(gradient.tensor, reference, gradient.name, 0.1);  // of keys' biases they are zero but for rounding
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<size_t>(std::ranges::count_if(
                          expected_, [](const NamedTensor& entry) { return entry.name.starts_with("grad/"); })));
}

TEST_P(BertGolden, TwentyTrainingSteps) {
  const Headed bert = load(kGolden + dir());
  bert.model->eval();  // no dropout
  optim::AdamW optimizer(bert.model->parameters(), {.lr = 1e-3, .weight_decay = 0});
  for (const double want : values_of(find(expected_, "losses"))) {
    const Tensor loss = cross_entropy(bert.forward(input_), labels());
    ASSERT_NEAR(loss.item<double>(), want, 1e-4);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
}

TEST_P(BertGolden, SavedFoldersHaveTheSameTensors) {
  const std::string source = kGolden + dir();
  const test::TemporaryFolder folder;
  const Headed bert = load(source);
  bert.model->save_pretrained(folder.path().string());
  const StateView before = load_safetensors(source + "/model.safetensors").tensors;
  const StateView after = load_safetensors(folder / "model.safetensors").tensors;
  EXPECT_EQ(before.size(), after.size());
  for (const NamedTensor& entry : before) {
    const Tensor saved = find(after, entry.name);
    ASSERT_TRUE(saved.defined()) << entry.name;
    EXPECT_EQ(values_of(saved), values_of(entry.tensor)) << entry.name;
  }
  const auto json = [](const std::string& at) { return nlohmann::json::parse(read_model_text(at, "config.json")); };
  const nlohmann::json given = json(source), written = json(folder.path().string());
  for (const auto& [key, value] : written.items()) EXPECT_EQ(value, given.value(key, value)) << key;
}

INSTANTIATE_TEST_SUITE_P(Bert, BertGolden,
                         ::testing::Combine(::testing::Values("bert", "roberta"),
                                            ::testing::Values("model", "classifier", "tagger", "masked"),
                                            ::testing::Bool()));

/// A copy of a golden folder with other tensors and fields of config.json.
class ChangedFolder {
 public:
  explicit ChangedFolder(const std::string& name) {
    config = nlohmann::json::parse(read_model_text(kGolden + name, "config.json"));
    tensors = load_safetensors(kGolden + name + "/model.safetensors").tensors;
  }
  std::string write() const {
    std::ofstream(folder_ / "config.json") << config.dump();
    save_safetensors(tensors, folder_ / "model.safetensors");
    return folder_.path().string();
  }
  nlohmann::json config;
  StateView tensors;

 private:
  test::TemporaryFolder folder_;
};

Tensor classifier_logits(const std::string& dir) {
  NoGrad off;
  auto model = BertClassifier::from_pretrained(dir);
  model->eval();
  return model->forward(input_of(expected_of("bert/bert_classifier"), false));
}

TEST(BertNames, OldNamesOfNormsAndFurtherTensors) {
  ChangedFolder changed("bert/bert_classifier");
  for (NamedTensor& entry : changed.tensors) {
    const size_t at = entry.name.find("LayerNorm.");
    if (at == std::string::npos) continue;
    entry.name = entry.name.substr(0, at) + (entry.name.ends_with("weight") ? "LayerNorm.gamma" : "LayerNorm.beta");
  }
  changed.tensors.push_back({"bert.embeddings.position_ids", zeros({1, 16}, {.dtype = DType::kInt64})});
  changed.tensors.push_back({"cls.seq_relationship.weight", zeros({2, 24})});
  changed.tensors.push_back({"cls.predictions.bias", zeros({45})});
  EXPECT_EQ(values_of(classifier_logits(changed.write())),
            values_of(classifier_logits(kGolden + "bert/bert_classifier")));
}

TEST(BertNames, BareEncodersBecomeClassifiersWithANewHead) {
  const std::string bare = kGolden + "bert/bert_model", masked = kGolden + "bert/bert_masked";
  test::expect_error([&] { BertClassifier::from_pretrained(bare); }, {"missing: classifier.weight, classifier.bias"});
  std::string said;
  const BuildOptions options{
      .labels = {"a", "b", "c", "d"}, .allow_new_head = true, .log = [&](const std::string& line) { said += line; }};
  const auto model = load_pretrained<SequenceClassifier>(bare, options);
  EXPECT_EQ(model->labels().size(), 4u);
  EXPECT_NE(said.find("a new classification head for 4 labels"), std::string::npos) << said;
  const StateView state = model->state_dict();
  EXPECT_EQ(values_of(find(state, "pooler.weight")),
            values_of(find(load_safetensors(bare + "/model.safetensors").tensors, "pooler.dense.weight")));
  // Neither pooler nor classifier: the encoder's states are the same for every way in.
  const auto head = load_pretrained<SequenceClassifier>(masked, options);
  const auto states = load_pretrained<TextModel>(masked, {.encoder_only = true});
  NoGrad off;
  head->eval();
  states->eval();
  const data::TokenInput input = input_of(expected_of("bert/bert_masked"), true);
  EXPECT_EQ(values_of(head->hidden_states(input)), values_of(states->hidden_states(input)));
}

TEST(BertNames, TheBiasOfMaskedWordsHasTwoNames) {
  ChangedFolder changed("bert/bert_masked");
  for (NamedTensor& entry : changed.tensors)
    if (entry.name == "cls.predictions.bias") entry.name = "cls.predictions.decoder.bias";
  changed.tensors.push_back({"cls.predictions.decoder.weight", zeros({45, 24})});
  changed.config["architectures"] = {"BertForPreTraining"};
  const auto model = BertMaskedWords::from_pretrained(changed.write());
  const auto plain = BertMaskedWords::from_pretrained(kGolden + "bert/bert_masked");
  model->eval(), plain->eval();
  NoGrad off;
  const data::TokenInput input = input_of(expected_of("bert/bert_masked"), true);
  const Tensor rows = from_vector(std::vector<int64_t>{9, 0, 4}, {3});
  expect_close(model->forward(input, rows), index_select(plain->forward(input), 0, rows), "words");
}

TEST(BertConfigs, ErrorsNameTheField) {
  const auto error = [](const char* field, const nlohmann::json& value, const std::string& text,
                        const char* name = "bert/bert_masked") {
    ChangedFolder changed(name);
    changed.config[field] = value;
    const std::string dir = changed.write();
    test::expect_error([&] { load_pretrained<Model>(dir); }, {text});
  };
  error("position_embedding_type", "relative_key", "\"position_embedding_type\" is 'relative_key'");
  error("hidden_act", "gelu_new", "\"hidden_act\" must be gelu or relu, got 'gelu_new'");
  error("is_decoder", true, "a decoder is not implemented");
  error("tie_word_embeddings", false, "\"tie_word_embeddings\" is false");
  error("num_attention_heads", 5, "\"hidden_size\" 24 is not a multiple");
  error("architectures", "BertModel", "\"architectures\" must be a list");
  error("classifier_dropout", 2, "\"classifier_dropout\" must be in [0, 1]");
  error("vocab_size", 46, "expected [46, 24]");
  error("pad_token_id", nullptr, "\"pad_token_id\" is null", "bert/roberta_model");
  error("pad_token_id", 15, "leaves no position", "bert/roberta_model");
}

TEST(BertConfigs, SequencesAreBoundedByPositions) {
  const auto model = BertClassifier::from_pretrained(kGolden + "bert/roberta_classifier");
  EXPECT_EQ(model->max_positions(), 14);  // two rows of 16 come before the first token's
  NoGrad off;
  model->eval();
  EXPECT_EQ(model->forward(data::padded_input(full({1, 14}, 5, {.dtype = DType::kInt64}))).size(1), 3);
  test::expect_error(
      [&] {
        model->forward(data::padded_input(full({1, 15}, 5, {.dtype = DType::kInt64})));
      },
      {"at most 14"});
}

TEST(BertDropout, IsTheSamePackedAndPadded) {
  for (const char* name : {"bert/bert_classifier", "bert/roberta_classifier"}) {
    const StateView expected = expected_of(name);
    std::vector<std::vector<double>> logits;
    for (const bool pack : {false, true}) {
      auto model = BertClassifier::from_pretrained(kGolden + name, {.generator = Generator(11)});
      data::TokenInput input = input_of(expected, pack);
      std::vector<int64_t> keys, positions = input.positions.to_vector<int64_t>();
      const std::vector<int64_t> offsets = input.layout.offsets.to_vector<int64_t>();
      for (size_t s = 0; s + 1 < offsets.size(); ++s)
        for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row)
          keys.push_back(static_cast<int64_t>(s) << 32 | positions[static_cast<size_t>(row)]);
      input.layout.row_keys = from_vector(keys, {static_cast<int64_t>(keys.size())});
      logits.push_back(values_of(model->forward(input)));
    }
    EXPECT_LE(distance(logits[0], logits[1]), kRelative * l2(logits[0]));
    EXPECT_GT(distance(logits[0], values_of(find(expected, "logits"))), 1e-2 * l2(logits[0]));
  }
}

}  // namespace
}  // namespace tern::models
