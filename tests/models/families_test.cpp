// A family of models that is not Tern's: this file is its folder, and one row makes the program train, evaluate and
// describe it and predict with it.

#include "tern/models/families.h"

#include <fstream>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/program.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/hf_config.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/models/vit/vit.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using test::error_of;
using test::has;

struct BagConfig {
  int64_t vocab_size = 30522, width = 8;
  double dropout_p = 0;
  std::vector<std::string> labels;
  void set_dropout(double p) { dropout_p = p; }
};

/// Logits of a text are those of the mean of its words, padding left out.
class Bag final : public SequenceClassifier {
 public:
  Bag(const nn::Scope& s, const BagConfig& config)
      : SequenceClassifier(s),
        config_(config),
        word_(sub("word"), config.vocab_size, config.width),
        head_(sub("head"), config.width, static_cast<int64_t>(config.labels.size())) {}

  static const KeyMap& names() {
    static const KeyMap map = {{"word.weight", {"embedding"}}, {"head.weight", {"w"}}, {"head.bias", {"b"}}};
    return map;
  }
  static PublicCheckpoint<BagConfig> read_checkpoint(const std::string& dir, const BuildOptions&) {
    ConfigFields fields(read_model_text(dir, "config.json"), dir);
    BagConfig config;
    fields.read("vocab_size", config.vocab_size);
    fields.read("width", config.width);
    config.labels = fields.read_labels();
    const StateFile file = load_state_folder(dir);
    return {config, {.file = file, .tensors = file.tensors, .names = &names()}};
  }

  Tensor forward(const data::TokenInput& input) const override {
    const Tensor x = word_.forward(input.tokens), &mask = input.layout.key_mask;
    const Tensor weight = (mask.defined() ? mask.to(x.dtype()) : ones({x.size(0)}, {.dtype = x.dtype()})).unsqueeze(1);
    const std::vector<int32_t> offsets = input.layout.offsets.to_vector<int32_t>();
    std::vector<Tensor> means;
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      const Tensor words = weight.slice(0, offsets[s], offsets[s + 1]);
      means.push_back(div(sum(mul(x.slice(0, offsets[s], offsets[s + 1]), words), {0}), sum(words)));
    }
    return head_.forward(stack(means, 0));
  }
  const std::vector<std::string>& labels() const override { return config_.labels; }
  std::string config_json() const override {
    ConfigFields::Json json = {{"model_type", "bag"}, {"vocab_size", config_.vocab_size}, {"width", config_.width}};
    write_labels(json, config_.labels);
    return json.dump() + "\n";
  }
  std::string record() const override { return "{\"width\": " + std::to_string(config_.width) + "}"; }
  void save_pretrained(const std::string& dir) const override { save_public(*this, names(), dir); }
  void set_recompute(int64_t) override {}
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return 64; }
  double forward_flops(const std::vector<int64_t>&) const override { return 1; }

 private:
  BagConfig config_;
  nn::Embedding word_;
  nn::Linear head_;
};

std::unique_ptr<Model> make_bag(const std::string& preset, const BuildOptions& options) {
  return std::make_unique<Bag>(options.scope(),
                               BagConfig{.width = preset == "wide" ? 32 : 8, .labels = options.labels});
}

void add_bag() {
  static const bool added = [] {
    add_model_family({.name = "bag",
                      .kind = ModelKind::kTexts,
                      .model_types = {"bag"},
                      .presets = {{"narrow", "8"}, {"wide", "32"}},
                      .load = load_model<Bag>,
                      .make = make_bag,
                      .small_lr = 0.02,
                      .notes = {{"--freeze", "word.* of a bag"}}});
    return true;
  }();
  EXPECT_TRUE(added);
}

class Families : public ::testing::Test {
 protected:
  Families() {
    add_bag();
    std::ofstream rows(file("rows.csv"));
    rows << "label,text\n";
    for (int i = 0; i < 60; ++i) {
      rows << (i % 2 == 0 ? "good," : "bad,");
      for (int word = 0; word <= i % 3; ++word) rows << (i % 2 == 0 ? "fine " : "poor ");
      rows << "\n";
    }
  }
  std::string file(const std::string& name) const { return dir_ / name; }
  /// What a command writes to stdout.
  std::string output_of(std::vector<std::string> command) {
    // On a GPU a step has empty sequences and is recorded, which Bag's forward does not allow.
    if (command[0] != "info") command.insert(command.end(), {"--device", "cpu"});
    testing::internal::CaptureStdout();
    const int status = cli::run_program(command);
    const std::string output = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0) << command[0];
    return output;
  }

  test::TemporaryFolder dir_;
};

TEST_F(Families, TheProgramTrainsEvaluatesAndPredicts) {
  const std::string run = file("run");
  const std::string trained =
      output_of({"train", "bag", "--preset", "wide", "--data", file("rows.csv"), "--out", run, "--epochs", "8", "--lr",
                 "0.05", "--batch-tokens", "64", "--dtype", "fp32", "--threads", "1", "--quiet"});
  EXPECT_TRUE(has(trained, "test accuracy 100.00 %"));
  EXPECT_TRUE(has(output_of({"eval", run, "--threads", "1", "--quiet"}), "accuracy 100.00 %"));
  EXPECT_TRUE(has(output_of({"info", run}), "\"model_type\":\"bag\""));
  std::ofstream(file("lines.txt")) << "fine fine\npoor\n";
  const std::string answers = output_of({"predict", run, file("lines.txt"), "--quiet"});
  EXPECT_EQ(answers.substr(0, 4), "good");
  EXPECT_TRUE(has(answers, "\nbad"));
  EXPECT_TRUE(has(cli::presets_help(), "bag: narrow (8) or wide (32)"));
  EXPECT_TRUE(has(cli::models_help(), "bag (texts)"));
  EXPECT_TRUE(has(cli::notes_on("--freeze"), ", word.* of a bag"));
  EXPECT_TRUE(has(cli::lr_help(), "bag: 0.02)"));

  const auto pipeline = TextPipeline::load(run);
  EXPECT_EQ(pipeline.model().labels(), (std::vector<std::string>{"bad", "good"}));
  EXPECT_EQ(dynamic_cast<Bag&>(pipeline.model()).record(), "{\"width\": 32}");
}

TEST_F(Families, AreFoundByTheirFiles) {
  const auto bag = make_bag("narrow", {.generator = test::fresh_generator(), .labels = {"a", "b"}});
  bag->save_pretrained(file("bag"));
  EXPECT_EQ(family_of(file("bag")).name, "bag");
  EXPECT_EQ(family_of(test::source_dir() + "/tests/golden/train_curve").name, "distilbert");
  EXPECT_EQ(family_of(test::source_dir() + "/tests/golden/vit_hf").name, "vit");
  EXPECT_EQ(family_of(file("rows.csv")).name, "vit");  // the one that reads files of weights

  const auto loaded = load_pretrained<SequenceClassifier>(file("bag"));
  for (const NamedTensor& entry : bag->state_dict())
    EXPECT_EQ(find(loaded->state_dict(), entry.name).to_vector<double>(), entry.tensor.to_vector<double>());
  EXPECT_TRUE(has(error_of([&] { load_pretrained<ImageClassifier>(file("bag")); }), "another kind"));
  EXPECT_TRUE(has(error_of([&] { load_pretrained<Bag>(test::source_dir() + "/tests/golden/vit_hf"); }), "embedding"));
}

TEST_F(Families, WeightsOfNoFamily) {
  const test::TemporaryFolder dir;
  const std::string file = (dir.path() / "weights.safetensors").string();
  save_safetensors({{"features.conv0.weight", ones({2})}, {"x", ones({2})}}, file);
  const std::string error = error_of([&] { family_of(file); });
  EXPECT_TRUE(has(error, "'features.conv0.weight' and 1 more") && has(error, "(vit or cnn)")) << error;
  save_safetensors({}, file);
  EXPECT_TRUE(has(error_of([&] { family_of(file); }), "there are no tensors"));
  EXPECT_TRUE(has(error_of([&] { family_of(file + ".pth"); }), ".pth: no such folder or file"));
}

TEST_F(Families, NamesAndPresetsAreThoseOfTheTable) {
  EXPECT_EQ(family_named("bag").presets.size(), 2u);
  EXPECT_EQ(offered(family_named("vit").presets), (std::vector<std::string>{"tiny", "small", "base", "large"}));
  EXPECT_EQ(offered(family_named("distilbert").presets), (std::vector<std::string>{"tiny", "small", "base"}));
  const auto input = [](const std::string& preset, const BuildOptions& options) {
    return dynamic_cast<ViT&>(*family_named("vit").make(preset, options)).config();
  };
  EXPECT_EQ(input("digits", {.labels = {"a", "b"}}).grid(), 4);
  EXPECT_EQ(input("digits", {.labels = {"a", "b"}, .dropout = 0.25, .image_size = 12}).image_size, 12);
  EXPECT_EQ(input("digits", {.labels = {"a", "b"}, .dropout = 0.25}).attention_dropout, 0.25);
  EXPECT_TRUE(has(error_of([] { family_named("gpt"); }), " or bag"));
  EXPECT_TRUE(has(error_of([] { add_model_family(vit_family()); }), "'vit'"));
  EXPECT_TRUE(has(error_of([] { add_model_family({.name = "x"}); }), "must have"));
}

}  // namespace
}  // namespace tern::models
