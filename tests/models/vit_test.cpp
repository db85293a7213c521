// The Vision Transformer compared with transformers, torchvision and timm (tests/golden): logits, gradients, attention
// maps, interpolated positions; recomputation and early pooling must not change the results.

#include "tern/models/vit/vit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/safetensors.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/models/vit/checkpoint_names.h"
#include "tern/models/vit/positions.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/places.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = test::source_dir() + "/tests/golden/";

const nlohmann::json& golden_index() {
  static const nlohmann::json index = nlohmann::json::parse(std::ifstream(kGolden + "index.json"));
  return index;
}
/// Tolerance of gradients: four times the error of PyTorch's float32.
double tolerance(const std::string& name) {
  for (const auto& model : golden_index().at("models"))
    if (model.at("folder") == name) return 4 * model.at("float32_error").get<double>();
  fail("tests/golden/index.json has no model ", name);
}
// About twenty roundings of numbers below 4, and of probabilities below 1.
constexpr double kClose = 20 * 4 * 0x1p-24, kCloseProbability = 20 * 0x1p-24;

double l2(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}
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
  const StateView expected = load_safetensors(kGolden + GetParam() + "/expected.safetensors").tensors;
  auto model = load(GetParam());
  const Tensor logits = model->forward(find(expected, "images"));
  expect_near(logits, find(expected, "logits"), kClose);
  const Tensor loss = cross_entropy(logits, find(expected, "labels"));
  EXPECT_NEAR(loss.item<double>(), find(expected, "loss").item<double>(), kClose);
  loss.backward();

  StateView gradients;
  for (const NamedTensor& p : model->parameters()) {
    ASSERT_TRUE(p.tensor.grad().defined()) << p.name;
    gradients.push_back({p.name, p.tensor.grad()});
  }
  double all = 0;
  size_t references = 0;
  for (const NamedTensor& entry : expected) {
    if (!entry.name.starts_with("grad/")) continue;
    all += std::pow(l2(entry.tensor.to_vector<double>()), 2);
    ++references;
  }
  size_t compared = 0;
  for (const NamedTensor& gradient : to_checkpoint_names(vit_key_map(names_of(GetParam())), gradients)) {
    const Tensor reference = find(expected, "grad/" + gradient.name);
    ASSERT_TRUE(reference.defined()) << gradient.name;
    const std::vector<double> r = reference.to_vector<double>();
    std::vector<double> difference = gradient.tensor.to_vector<double>();
    ASSERT_EQ(difference.size(), r.size());
    for (size_t i = 0; i < r.size(); ++i) difference[i] -= r[i];
    const double floor = golden_index().at("tolerances").at("models").at("floor");
    EXPECT_LE(l2(difference), tolerance(GetParam()) * std::max(l2(r), floor * std::sqrt(all))) << gradient.name;
    ++compared;
  }
  EXPECT_EQ(compared, references);
}

TEST_P(Golden, SavedAndLoadedItIsTheSame) {
  const fs::path dir = fs::temp_directory_path() / ("tern_vit_" + std::to_string(getpid()));
  auto model = load(GetParam());
  model->save_pretrained(dir);
  auto again = ViT::from_pretrained(dir);
  again->eval();
  fs::remove_all(dir);
  const Tensor images = find(load_safetensors(kGolden + GetParam() + "/expected.safetensors").tensors, "images");
  NoGrad off;
  EXPECT_EQ(model->forward(images).to_vector<float>(), again->forward(images).to_vector<float>());
}

INSTANTIATE_TEST_SUITE_P(ViT, Golden,
                         ::testing::Values("vit_hf", "vit_hf_relu_no_bias", "vit_torchvision", "vit_timm",
                                           "vit_timm_mean", "vit_timm_mean_cls"));

TEST(ViT, OtherImageSizesInterpolateThePositions) {
  const StateView expected = load_safetensors(kGolden + "vit_hf/expected.safetensors").tensors;
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
  const StateView expected = load_safetensors(kGolden + "vit_hf/expected.safetensors").tensors;
  NoGrad off;
  const std::vector<Tensor> maps = load("vit_hf")->attention_maps(find(expected, "images").slice(0, 0, 2));
  ASSERT_EQ(maps.size(), 2u);
  for (int64_t layer = 0; layer < 2; ++layer)
    expect_near(maps[static_cast<size_t>(layer)], find(expected, "attention").slice(0, layer, layer + 1).squeeze(0),
                kCloseProbability);
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
  ViTConfig config;
  config.image_size = 15;
  config.patch_size = 5;
  config.channels = 1;
  config.width = 24;
  config.layers = 3;
  config.heads = 3;
  config.hidden = 40;
  config.dropout = 0.2;
  config.attention_dropout = 0.1;
  config.initializer_range = 0.2;  // large enough that attention and layers have an effect
  config.labels = {"a", "b", "c"};
  return config;
}

/// Logits and all gradients of one training pass, and the memory it keeps for backward.
struct Pass {
  std::vector<std::vector<float>> values;
  int64_t kept_bytes = 0;
};
Pass pass(const ViTConfig& config, int64_t recompute) {
  ViT model(nn::Scope({.generator = test::fresh_generator(3)}), config);
  model.set_recompute(recompute);
  Generator generator = test::fresh_generator(4);
  const Tensor images = randn({5, 1, 15, 15}, generator);
  const int64_t before = allocator(cpu).statistics().live_bytes;
  const Tensor logits = model.forward(images, arange(10, 15));
  const int64_t kept = allocator(cpu).statistics().live_bytes - before;
  cross_entropy(logits, from_vector(std::vector<int64_t>{0, 1, 2, 1, 0}, {5})).backward();
  Pass result{{logits.to_vector<float>()}, kept};
  for (const NamedTensor& p : model.parameters()) result.values.push_back(p.tensor.grad().to_vector<float>());
  return result;
}

TEST(ViT, RecomputedIsEqualBitForBit) {
  for (const bool norm_first : {true, false})
    for (const std::string pool : {"cls", "mean"}) {
      ViTConfig config = odd_config();
      config.norm_first = norm_first;
      config.pool = pool;
      const Pass plain = pass(config, 0);
      for (const int64_t stretch : {1, 2, 5}) {
        const Pass recomputed = pass(config, stretch);
        EXPECT_EQ(recomputed.values, plain.values) << norm_first << pool << stretch;
        EXPECT_LT(recomputed.kept_bytes, plain.kept_bytes / 2) << norm_first << pool << stretch;
      }
    }
}

TEST(ViT, ClassTokensStateIsTheFirstRowOfTheHiddenStates) {
  for (const bool norm_first : {true, false}) {
    ViTConfig config = odd_config();
    config.norm_first = norm_first;
    ViT model(nn::Scope({.generator = test::fresh_generator(3)}), config);
    model.eval();
    Generator generator = test::fresh_generator(4);
    const Tensor images = randn({5, 1, 15, 15}, generator);
    NoGrad off;
    const Tensor first = model.hidden_states(images).slice(1, 0, 1).squeeze(1);
    const StateView state = model.state_dict();
    expect_close(model.forward(images),
                 linear(first, find(state, "classifier.weight"), find(state, "classifier.bias")));
    expect_close(model.forward(images), model.classify(first));
  }
}

TEST(ViT, KeyedMasksDoNotDependOnTheBatch) {
  ViTConfig config = odd_config();
  ViT model(nn::Scope({.generator = test::fresh_generator(3)}), config);
  Generator generator = test::fresh_generator(4);
  const Tensor images = randn({5, 1, 15, 15}, generator), keys = arange(10, 15);
  NoGrad off;
  const auto logits = [&](int64_t begin, int64_t end) {
    model.generator().set_offset(77);
    return model.forward(images.slice(0, begin, end), keys.slice(0, begin, end));
  };
  expect_close(cat({logits(0, 2), logits(2, 5)}), logits(0, 5));
  model.generator().set_offset(77);
  EXPECT_NE(model.forward(images, arange(20, 25)).to_vector<float>(), logits(0, 5).to_vector<float>());
}

using test::error_of;

TEST(ViT, RefusesWhatDoesNotFit) {
  auto model = load("vit_hf");
  EXPECT_NE(error_of([&] {
              model->forward(zeros({2, 3, 25, 24}));
            }).find("multiples of the patch size 6"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              model->forward(zeros({2, 1, 24, 24}));
            }).find("images must be floating"),
            std::string::npos);
  EXPECT_NE(error_of([&] { model->forward(zeros({2, 3, 24, 24}), zeros({2})); }).find("image_keys"), std::string::npos);
  // Three heads of 12 dimensions cannot be inferred from shapes.
  EXPECT_NE(error_of([&] { ViT::from_pretrained(kGolden + "vit_timm/model.safetensors"); }).find("heads"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ViT::from_pretrained(kGolden + "distilbert_gelu/model.safetensors");
            }).find("not those of a Vision Transformer"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ViT::from_pretrained(kGolden + "distilbert_gelu"); }).find("Vision Transformer"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ViT::from_pretrained("/no/such/place"); }).find("no such folder or file"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ViT::from_pretrained(kGolden + "vit_hf", {.labels = {"x", "y"}});
            }).find("classifier"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ViT::from_pretrained(kGolden + "vit_hf", {.image_size = 25});
            }).find("not a multiple of \"patch_size\" 6"),
            std::string::npos);
}

TEST(ViT, ANewHeadForOtherLabels) {
  std::string said;
  auto model = ViT::from_pretrained(
      kGolden + "vit_torchvision/model.safetensors",
      {.labels = {"x", "y"}, .heads = 3, .allow_new_head = true, .log = [&](const std::string& line) { said = line; }});
  EXPECT_EQ(model->forward(zeros({4, 3, 24, 24})).shape(), Shape({4, 2}));
  EXPECT_NE(said.find("the missing part is initialized"), std::string::npos);
}

TEST(ViTConfig, PresetsAndJson) {
  EXPECT_EQ(ViTConfig::preset("base").width, 768);
  EXPECT_EQ(ViTConfig::preset("tiny").grid(), 8);
  // ViT-B/16 with 1,000 classes has 86,567,656 parameters (torchvision's documentation of vit_b_16).
  ViTConfig base = ViTConfig::preset("base");
  base.labels.clear();
  for (int i = 0; i < 1000; ++i) base.labels.push_back(std::to_string(i));
  EXPECT_EQ(ViT(nn::Scope(), base).num_parameters(), 86567656);
  EXPECT_NE(error_of([] { ViTConfig::preset("huge"); }).find("tiny, small, base or large"), std::string::npos);

  ViTConfig config = odd_config();
  config.pool = "mean";
  config.class_token = false;
  const ViTConfig again = ViTConfig::from_json(config.to_json(), "here");
  EXPECT_EQ(again.to_json(), config.to_json());
  EXPECT_FALSE(again.class_token);
  EXPECT_NE(config.to_json().find("\"tern_vit\""), std::string::npos);  // transformers must not load it as ViT
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{{"[]", "not a JSON object"},
                                                        {R"({"model_type": "bert"})", "'bert'"},
                                                        {R"({"patch_size": 5})", "not a multiple"},
                                                        {R"({"hidden_size": "768"})", "must be an integer"},
                                                        {R"({"hidden_act": "gelu_new"})", "must be gelu or relu"},
                                                        {R"({"pool": "mean"})", "unknown field pool"},
                                                        {R"({"num_attention_heads": 7})", "num_attention_heads"},
                                                        {R"({"hidden_dropout_prob": 1.5})", "must be in [0, 1]"}})
    EXPECT_NE(error_of([&text = text] { ViTConfig::from_json(text, "here"); }).find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace tern::models
