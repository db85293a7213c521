// The Vision Transformer compared with transformers, torchvision and timm (tests/golden): logits, gradients, attention
// maps, interpolated positions; recomputation and early pooling must not change the results.

#include "tern/models/vit/vit.h"

#include "tern/models/vit/checkpoint_names.h"
#include "tern/models/vit/positions.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using test::error_of;
using test::has;

/// For one computation in two ways: about forty roundings of the largest number.
void expect_close(const Tensor& got, const Tensor& want) {
  expect_near(got, want, 40 * 0x1p-24 * max(abs(want)).item<double>());
}

ViTNames names_of(const std::string& name) {
  return name.starts_with("vit_hf")            ? ViTNames::kHuggingFace
         : name.starts_with("vit_torchvision") ? ViTNames::kTorchvision
                                               : ViTNames::kTimm;
}

std::unique_ptr<ViT> load(const std::string& name) {
  const bool folder = name.starts_with("vit_hf");
  auto model = ViT::from_pretrained(kGolden + name + (folder ? "" : "/model.safetensors"), {.heads = folder ? 0 : 3});
  model->eval();
  return model;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, LogitsAndGradients) {
  const StateView expected = expected_of(GetParam());
  auto model = load(GetParam());
  const Tensor logits = model->forward(find(expected, "images"));
  const auto references = std::count_if(expected.begin(), expected.end(),
                                        [](const NamedTensor& entry) { return entry.name.starts_with("grad/"); });
  EXPECT_EQ(expect_golden_pass(*model, vit_key_map(names_of(GetParam())), logits, GetParam()),
            static_cast<size_t>(references));
}

TEST_P(Golden, SavedAndLoadedItIsTheSame) {
  const test::TemporaryFolder dir;
  auto model = load(GetParam());
  model->save_pretrained(dir.path());
  auto again = ViT::from_pretrained(dir.path());
  again->eval();
  const Tensor images = find(expected_of(GetParam()), "images");
  NoGrad off;
  EXPECT_EQ(model->forward(images).to_vector<float>(), again->forward(images).to_vector<float>());
}

INSTANTIATE_TEST_SUITE_P(ViT, Golden,
                         ::testing::Values("vit_hf", "vit_hf_relu_no_bias", "vit_torchvision", "vit_timm",
                                           "vit_timm_mean", "vit_timm_mean_cls"));

TEST(ViT, OtherImageSizesInterpolateThePositions) {
  const StateView expected = expected_of("vit_hf");
  NoGrad off;
  expect_near(load("vit_hf")->forward(find(expected, "other_images")), find(expected, "other_logits"), kClose);
}

TEST(ViT, LoadedForAnotherImageSizeItComputesTheSame) {
  Generator generator = test::fresh_generator(5);
  const Tensor images = randn({3, 3, 36, 36}, generator);
  NoGrad off;
  auto at_once = ViT::from_pretrained(kGolden + "vit_hf", {.image_size = 36});
  at_once->eval();
  EXPECT_EQ(at_once->config().grid(), 6);
  expect_close(at_once->forward(images), load("vit_hf")->forward(images));
}

TEST(ViT, AttentionMaps) {
  const StateView expected = expected_of("vit_hf");
  NoGrad off;
  const std::vector<Tensor> maps = load("vit_hf")->attention_maps(find(expected, "images").slice(0, 0, 2));
  ASSERT_EQ(maps.size(), 2u);
  for (int64_t layer = 0; layer < 2; ++layer)
    expect_near(maps[static_cast<size_t>(layer)], find(expected, "attention").slice(0, layer, layer + 1).squeeze(0),
                20 * 0x1p-24);  // about twenty roundings of probabilities
}

TEST(ViT, InterpolationKeepsConstantsAndTheSameGrid) {
  for (const auto& [from, height, width] : {std::tuple(14, 24, 17), std::tuple(3, 1, 9), std::tuple(1, 2, 2)}) {
    const std::vector<double> sums = sum(grid_interpolation(from, height, width), {1}).to_vector<double>();
    EXPECT_EQ(sums.size(), static_cast<size_t>(height * width));
    for (const double s : sums)
      EXPECT_NEAR(s, 1, 32 * 0x1p-24);  // at most 16 weights, the sum of whose absolute values is below 2
  }
  const std::vector<double> same = grid_interpolation(4, 4, 4).to_vector<double>();
  for (size_t i = 0; i < same.size(); ++i) EXPECT_EQ(same[i], i % 17 == 0 ? 1 : 0);
}

ViTConfig odd_config() {
  return {.image_size = 15,
          .patch_size = 5,
          .channels = 1,
          .width = 24,
          .layers = 3,
          .heads = 3,
          .hidden = 40,
          .dropout = 0.2,
          .attention_dropout = 0.1,
          .initializer_range = 0.2,  // large enough that attention and layers have an effect
          .labels = {"a", "b", "c"}};
}

Tensor odd_images() {
  Generator generator = test::fresh_generator(4);
  return randn({5, 1, 15, 15}, generator);
}

TEST(ViT, RecomputedIsEqualBitForBit) {
  for (const bool norm_first : {true, false})
    for (const std::string pool : {"cls", "mean"}) {
      ViTConfig config = odd_config();
      config.norm_first = norm_first;
      config.pool = pool;
      const auto pass = [&](int64_t recompute) {
        ViT model(nn::Scope({.generator = test::fresh_generator(3)}), config);
        model.set_recompute(recompute);
        const Tensor images = odd_images(), labels = from_vector(std::vector<int64_t>{0, 1, 2, 1, 0}, {5});
        return training_pass(
            model, [&] { return model.forward(images, arange(10, 15)); }, labels);
      };
      const TrainingPass plain = pass(0);
      for (const int64_t blocks : {1, 2, 5}) {
        const TrainingPass recomputed = pass(blocks);
        EXPECT_EQ(recomputed.values, plain.values) << norm_first << pool << blocks;
        EXPECT_LT(recomputed.kept_bytes, plain.kept_bytes / 2) << norm_first << pool << blocks;
      }
    }
}

TEST(ViT, ClassTokensStateIsTheFirstRowOfTheHiddenStates) {
  for (const bool norm_first : {true, false}) {
    ViTConfig config = odd_config();
    config.norm_first = norm_first;
    ViT model(nn::Scope({.generator = test::fresh_generator(3)}), config);
    model.eval();
    const Tensor images = odd_images();
    NoGrad off;
    const Tensor first = model.hidden_states(images).slice(1, 0, 1).squeeze(1);
    const StateView state = model.state_dict();
    expect_close(model.forward(images),
                 linear(first, find(state, "classifier.weight"), find(state, "classifier.bias")));
    expect_close(model.features(images), first);
    EXPECT_EQ(model.forward(images).to_vector<float>(), model.forward_head(model.features(images)).to_vector<float>());
  }
}

TEST(ViT, KeyedMasksDoNotDependOnTheBatch) {
  ViT model(nn::Scope({.generator = test::fresh_generator(3)}), odd_config());
  const Tensor images = odd_images(), keys = arange(10, 15);
  NoGrad off;
  const auto logits = [&](int64_t begin, int64_t end) {
    model.generator().set_offset(77);
    return model.forward(images.slice(0, begin, end), keys.slice(0, begin, end));
  };
  expect_close(cat({logits(0, 2), logits(2, 5)}), logits(0, 5));
  model.generator().set_offset(77);
  EXPECT_NE(model.forward(images, arange(20, 25)).to_vector<float>(), logits(0, 5).to_vector<float>());
}

TEST(ViT, RefusesWhatDoesNotFit) {
  auto model = load("vit_hf");
  const auto forward_error = [&](const Shape& shape, const Tensor& keys = {}) {
    return error_of([&] { model->forward(zeros(shape), keys); });
  };
  EXPECT_TRUE(has(forward_error({2, 3, 25, 24}), "multiples of the patch size 6"));
  EXPECT_TRUE(has(forward_error({2, 1, 24, 24}), "images must be floating"));
  EXPECT_TRUE(has(forward_error({2, 3, 24, 24}, zeros({2})), "image_keys"));
  const auto load_error = [](const std::string& path, const BuildOptions& options = {}) {
    return error_of([&] { ViT::from_pretrained(path, options); });
  };
  // Three heads of 12 dimensions cannot be inferred from shapes.
  EXPECT_TRUE(has(load_error(kGolden + "vit_timm/model.safetensors"), "heads"));
  EXPECT_TRUE(has(load_error(kGolden + "distilbert_gelu/model.safetensors"), "not those of a Vision Transformer"));
  EXPECT_TRUE(has(load_error(kGolden + "distilbert_gelu"), "Vision Transformer"));
  EXPECT_TRUE(has(load_error("/no/such/place"), "no such folder or file"));
  EXPECT_TRUE(has(load_error(kGolden + "vit_hf", {.labels = {"x", "y"}}), "classifier"));
  EXPECT_TRUE(has(load_error(kGolden + "vit_hf", {.image_size = 25}), "not a multiple of \"patch_size\" 6"));
}

TEST(ViT, ANewHeadForOtherLabels) {
  std::string said;
  auto model = ViT::from_pretrained(
      kGolden + "vit_torchvision/model.safetensors",
      {.labels = {"x", "y"}, .heads = 3, .allow_new_head = true, .log = [&](const std::string& line) { said = line; }});
  EXPECT_EQ(model->forward(zeros({4, 3, 24, 24})).shape(), Shape({4, 2}));
  EXPECT_TRUE(
      has(said, "a new classification head for 2 labels is initialized: the model has 5 labels and the data 2"));
}

TEST(ViTConfig, PresetsAndJson) {
  EXPECT_EQ(ViTConfig::preset("base").width, 768);
  EXPECT_EQ(ViTConfig::preset("tiny").grid(), 8);
  // ViT-B/16 with 1,000 classes has 86,567,656 parameters (torchvision's documentation of vit_b_16).
  ViTConfig base = ViTConfig::preset("base");
  base.labels.clear();
  for (int i = 0; i < 1000; ++i) base.labels.push_back(std::to_string(i));
  EXPECT_EQ(ViT(nn::Scope(), base).num_parameters(), 86567656);
  EXPECT_TRUE(has(error_of([] { ViTConfig::preset("huge"); }), "tiny, small, base or large"));

  ViTConfig config = odd_config();
  config.pool = "mean";
  config.class_token = false;
  const ViTConfig again = ViTConfig::from_json(config.to_json(), "here");
  EXPECT_EQ(again.to_json(), config.to_json());
  EXPECT_FALSE(again.class_token);
  EXPECT_TRUE(has(config.to_json(), "\"tern_vit\""));  // transformers must not load it as ViT
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", "not a JSON object"},
      {R"({"model_type": "bert"})", "'bert'"},
      {R"({"patch_size": 5})", "not a multiple"},
      {R"({"hidden_size": "768"})", "must be an integer"},
      {R"({"hidden_act": "gelu_new"})", "must be gelu or relu"},
      {R"({"model_type": "tern_vit", "pols": 1})", "unknown field pols"},
      {R"({"image_size": [224, 192]})", "two equal ones"},
      {R"({"num_attention_heads": 7})", "num_attention_heads"},
      {R"({"hidden_dropout_prob": 1.5})", "must be in [0, 1]"}};
  for (const auto& [text, part] : wrong)
    EXPECT_TRUE(has(error_of([&text = text] { ViTConfig::from_json(text, "here"); }), part)) << text;
}

}  // namespace
}  // namespace tern::models
