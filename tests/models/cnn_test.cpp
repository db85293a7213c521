// Convolutional classifiers against torchvision and timm (tests/golden/make_cnn.py): logits in evaluation and training,
// gradients and running statistics, from weights that both sides compute of their names. Files, other depths,
// recomputation, class-activation maps and counts.

#include "tern/models/cnn/cnn.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/golden.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::error_of;
using test::has;

/// The function of make_cnn.py.
std::vector<double> uniform(const std::string& name, int64_t count) {
  uint64_t base = 0xcbf29ce484222325;
  for (const unsigned char byte : name) base = (base ^ byte) * 0x100000001b3;
  std::vector<double> values(static_cast<size_t>(count));
  double* const to = values.data();
  for (int64_t i = 0; i < count; ++i) {
    uint64_t z = base + static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    to[i] = static_cast<double>((z ^ (z >> 31)) >> 40) / 0x1p24;
  }
  return values;
}

Tensor value_of(const std::string& name, const Shape& shape) {
  std::vector<double> values = uniform(name, shape.numel());
  const auto replace = [&](const auto& value) {
    double* const v = values.data();
    for (size_t i = 0; i < values.size(); ++i) v[i] = static_cast<float>(value(v[i]));
  };
  const double bound = std::sqrt(3 / double(shape.numel() / shape[0]));
  if (name.ends_with("running_var"))
    replace([](double v) { return 0.5 + v; });
  else if (shape.dims() == 1 && name.ends_with("weight"))
    replace([](double v) { return 0.3 + 0.5 * v; });
  else if (shape.dims() > 1)
    replace([&](double v) { return (2 * v - 1) * bound; });
  else
    replace([](double v) { return (2 * v - 1) * 0.2; });
  return from_vector(values, shape);
}

CnnConfig config_of(const std::string& name, int64_t side, int64_t classes = 7) {
  CnnConfig config = CnnConfig::preset(name.substr(0, name.find(' ')));
  config.small_images = name.ends_with(" small");
  config.image_size = side;
  config.dropout = config.stochastic_depth = 0;
  config.labels.clear();
  for (int64_t i = 0; i < classes; ++i) config.labels.push_back("class " + std::to_string(i));
  return config;
}

std::unique_ptr<Cnn> made(const std::string& name, int64_t side, DType dtype = float32) {
  auto model = Cnn::make(nn::Scope({.dtype = dtype, .generator = test::fresh_generator()}), config_of(name, side));
  StateView state;
  for (const NamedTensor& entry : model->state_dict())
    if (is_floating(entry.tensor.dtype())) state.push_back({entry.name, value_of(entry.name, entry.tensor.shape())});
  model->load_state_dict(state, {.strict = false});
  return model;
}

const json& cases() {
  static const json all = json::parse(std::ifstream(kGolden + "cnn.json"));
  return all;
}
const json& case_of(const std::string& name) {
  for (const json& c : cases())
    if (c["name"] == name) return c;
  fail("no case ", name);
}
Tensor images_of(int64_t side, DType dtype) {
  return (from_vector(uniform("images", 9 * side * side), {3, 3, side, side}) * 4.0 - 2.0).to(float32).to(dtype);
}
Tensor numbers_of(const json& rows) {
  std::vector<double> all;
  for (const json& row : rows)
    for (const json& v : row) all.push_back(v.get<double>());
  return from_vector(all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}

/// want: the width, a weighted sum and the norm of each image's features.
void expect_features(const Tensor& features, const json& want) {
  ASSERT_EQ(features.shape(), (Shape{3, want[0].get<int64_t>()}));
  const Tensor mix = from_vector(uniform("features", features.numel()), features.shape()) - 0.5;
  const Tensor sums = sum(features * mix, {1}), norms = norm(features, {1});
  for (int64_t i = 0; i < 3; ++i) {
    const double length = want[2][static_cast<size_t>(i)];
    EXPECT_NEAR(sums[i].item<double>(), want[1][static_cast<size_t>(i)].get<double>(), 1e-4 * length);
    EXPECT_NEAR(norms[i].item<double>(), length, 1e-4 * length);
  }
}

class CnnGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(CnnGolden, Logits) {
  const json& want = case_of(GetParam());
  const int64_t side = want["side"];
  const auto model = made(GetParam(), side);
  EXPECT_EQ(model->num_parameters(), want["parameters"].get<int64_t>());
  model->eval();
  const Tensor expected = numbers_of(want["logits"]);
  // Four times PyTorch's own error, and that of a few roundings of the largest.
  const double close = 4 * want["float32_error"].get<double>() + 8 * 0x1p-24 * max(abs(expected)).item<double>();
  expect_near(model->forward(images_of(side, float32)).to(float64), expected, close);
  NoGrad folded;
  const Tensor images = images_of(side, float32), logits = model->forward(images);
  expect_near(logits.to(float64), expected, 2 * close);
  const Tensor features = model->features(images);
  EXPECT_EQ(model->forward_head(features).to_vector<float>(), logits.to_vector<float>());
  expect_features(features.to(float64), want["features"]);
}

TEST_P(CnnGolden, TrainingStep) {
  const json& want = case_of(GetParam());
  const int64_t side = want["side"];
  const auto model = made(GetParam(), side, float64);
  const Tensor logits = model->forward(images_of(side, float64));
  expect_near(logits, numbers_of(want["train_logits"]), 1e-9);
  sum(logits * (from_vector(uniform("loss", logits.numel()), logits.shape()) - 0.5)).backward();
  // PyTorch's derivative of hardsigmoid is a sixth rounded to float32, which is off by 3e-8.
  const double unit = GetParam().starts_with("mobilenet_v3") ? 6e-8 : 1e-8;
  size_t compared = 0;
  for (const NamedTensor& p : model->parameters()) {
    const json& slope = want["slopes"].at(p.name);
    const Tensor along = from_vector(uniform("along " + p.name, p.tensor.numel()), p.tensor.shape()) - 0.5;
    const double norm = slope[1], close = unit * norm * std::sqrt(double(p.tensor.numel())) + 1e-12;
    EXPECT_NEAR(sum(p.tensor.grad() * along).item<double>(), slope[0].get<double>(), close) << p.name;
    EXPECT_NEAR(std::sqrt(sum(square(p.tensor.grad())).item<double>()), norm, unit * norm + 1e-12) << p.name;
    ++compared;
  }
  EXPECT_EQ(compared, want["slopes"].size());
  compared = 0;
  for (const NamedTensor& b : model->buffers()) {
    if (!is_floating(b.tensor.dtype())) continue;
    EXPECT_NEAR(std::sqrt(sum(square(b.tensor)).item<double>()), want["buffers"].at(b.name).get<double>(), 1e-8)
        << b.name;
    ++compared;
  }
  EXPECT_EQ(compared, want["buffers"].size());
}

INSTANTIATE_TEST_SUITE_P(Cnn, CnnGolden,
                         ::testing::Values("resnet18", "resnet34", "resnet50", "resnext50_32x4d", "resnet18 small",
                                           "seresnet18", "seresnet50", "mobilenet_v2", "mobilenet_v3_small",
                                           "mobilenet_v3_large", "efficientnet_b0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

// GMACs of torchvision's table of weights.
TEST(Cnn, OperationsAndParametersAreThePublishedOnes) {
  const struct {
    const char* name;
    double giga, millions;
  } published[] = {{"resnet18", 1.81, 11.69},          {"resnet34", 3.66, 21.80},
                   {"resnet50", 4.09, 25.56},          {"resnext50_32x4d", 4.23, 25.03},
                   {"mobilenet_v2", 0.30, 3.50},       {"mobilenet_v3_small", 0.06, 2.54},
                   {"mobilenet_v3_large", 0.22, 5.48}, {"efficientnet_b0", 0.39, 5.29}};
  for (const auto& p : published) {
    const auto model = Cnn::make(nn::Scope(), config_of(p.name, 224, 1000));
    EXPECT_NEAR(model->forward_flops() / 2e9, p.giga, 0.0051) << p.name;
    EXPECT_NEAR(double(model->num_parameters()) / 1e6, p.millions, 0.0051) << p.name;
  }
}

TEST(Cnn, SavedAndLoadedItIsTheSame) {
  for (const std::string name : {"resnet18 small", "mobilenet_v3_small", "efficientnet_b0", "speedrun"}) {
    const test::TemporaryFolder dir;
    auto model = made(name, 32);
    model->forward(images_of(32, float32));  // changes running statistics and counts
    model->save_pretrained(dir.path());
    model->eval();
    auto again = load_pretrained<ImageClassifier>(dir.path());
    EXPECT_EQ(again->labels(), model->labels());
    EXPECT_EQ(again->config_json(), model->config_json());
    again->eval();
    NoGrad off;
    EXPECT_EQ(model->forward(images_of(32, float32)).to_vector<float>(),
              again->forward(images_of(32, float32)).to_vector<float>());
    // The weights alone say which network it is.
    const std::string file = (dir.path() / "model.safetensors").string();
    auto from_file = load_pretrained<ImageClassifier>(file);
    from_file->eval();
    EXPECT_EQ(from_file->labels().size(), 7u);
    if (name.starts_with("resnet")) {
      EXPECT_EQ(model->forward(images_of(32, float32)).to_vector<float>(),
                from_file->forward(images_of(32, float32)).to_vector<float>());
    }
  }
}

TEST(Cnn, FilesWithoutCountsOfBatches) {
  const test::TemporaryFolder dir;
  StateView state;
  for (const NamedTensor& entry : made("resnet18", 64)->state_dict())
    if (!entry.name.ends_with("num_batches_tracked")) state.push_back(entry);
  const std::string file = (dir.path() / "old.safetensors").string();
  save_safetensors(state, file);
  const auto model = Cnn::from_pretrained(file);
  EXPECT_EQ(find(model->state_dict(), "bn1.num_batches_tracked").item<int64_t>(), 0);
  EXPECT_EQ(model->config().architecture, "resnet18");
}

TEST(Cnn, AnotherDepthIsRefusedWithAllDifferences) {
  const test::TemporaryFolder dir;
  made("resnet18", 64)->save_pretrained(dir.path());
  std::ofstream((dir.path() / "config.json").string()) << config_of("resnet34", 64).to_json();
  const std::string error = error_of([&] { Cnn::from_pretrained(dir.path()); });
  for (const char* part : {"missing", "layer1.2.conv1.weight", "layer3.5.bn2.running_var"})
    EXPECT_TRUE(has(error, part)) << error.substr(0, 400);
  std::ofstream((dir.path() / "config.json").string()) << config_of("resnet50", 64).to_json();
  EXPECT_TRUE(has(error_of([&] { Cnn::from_pretrained(dir.path()); }), "layer1.0.conv1.weight is [64, 64, 3, 3]"));
}

TEST(Cnn, WhatIsRefused) {
  const test::TemporaryFolder dir;
  const auto model = made("resnet18", 64);
  EXPECT_TRUE(has(error_of([&] { model->forward(ones({2, 1, 64, 64})); }), "images must be floating [n, 3, height"));
  EXPECT_TRUE(has(error_of([&] { model->forward(ones({2, 3, 64, 64}), ones({3}, {int64})); }), "image_keys must be"));
  EXPECT_TRUE(has(error_of([&] { CnnConfig::preset("resnet19"); }), "resnet18, resnet34"));
  EXPECT_TRUE(has(error_of([&] { CnnConfig::from_json(R"({"model_type": "tern_cnn", "architecture": "x"})", "f"); }),
                  "f: \"architecture\" must be resnet18, "));
  EXPECT_TRUE(
      has(error_of([&] { Cnn::from_pretrained((dir.path() / "none.pth").string()); }), "no such folder or file"));
}

/// Weights that are not quite those of an architecture: the nearest is named, and all that differs.
TEST(Cnn, WeightsAreComparedWithTheNearestArchitecture) {
  const test::TemporaryFolder dir;
  const auto error_with = [&](const std::string& of, const std::string& removed, const NamedTensor& added) {
    StateView state;
    for (const NamedTensor& t : made(of, 64)->state_dict())
      if (removed.empty() || !t.name.starts_with(removed)) state.push_back(t);
    state.push_back(added);
    const std::string file = (dir.path() / "weights.safetensors").string();
    save_safetensors(state, file);
    return error_of([&] { Cnn::from_pretrained(file); });
  };
  const auto expect_all = [](const std::string& error, const std::vector<const char*>& parts) {
    for (const char* part : parts) EXPECT_TRUE(has(error, part)) << part << " in " << error.substr(0, 400);
  };
  expect_all(
      error_with("resnet18", "layer3.1", {"foo.bar", ones({2})}),
      {"do not fit resnet18; missing", "layer3.1.conv1.weight", "layer3.1.bn2.running_var", "unexpected: foo.bar"});
  expect_all(error_with("resnet18", "layer1.0.conv1", {"layer4.2.conv1.weight", ones({2, 2, 3, 3})}),
             {"do not fit resnet18; missing: layer1.0.conv1.weight; unexpected: layer4.2.conv1.weight"});
  expect_all(error_with("resnet50", "layer2.1.conv2", {"x", ones({2})}),
             {"resnet50", "missing: layer2.1.conv2.weight;"});
  // A stem of several convolutions.
  expect_all(error_with("resnet18", "conv1", {"conv1.0.weight", ones({2, 3, 3, 3})}),
             {"do not fit resnet18; missing: conv1.weight; unexpected: conv1.0.weight"});
}

TEST(Cnn, RecomputationChangesNoBit) {
  for (const std::string name : {"resnet18 small", "efficientnet_b0"}) {
    const auto run = [&](int64_t segment) {
      auto model = Cnn::make(nn::Scope({.generator = Generator(5)}), CnnConfig(config_of(name, 32)));
      model->set_recompute(segment);
      sum(square(model->forward(images_of(32, float32), arange(0, 3)))).backward();
      std::vector<float> all;
      for (const NamedTensor& p : model->parameters())
        for (const float v : p.tensor.grad().to_vector<float>()) all.push_back(v);
      for (const NamedTensor& b : model->buffers())
        if (is_floating(b.tensor.dtype()))
          for (const float v : b.tensor.to_vector<float>()) all.push_back(v);
      return all;
    };
    const std::vector<float> plain = run(0);
    for (const int64_t segment : {1, 3}) EXPECT_EQ(run(segment), plain) << segment;
  }
}

TEST(Cnn, ImagesThatLeaveABlockOut) {
  CnnConfig config = config_of("efficientnet_b0", 32);
  config.stochastic_depth = 0.9;
  config.dropout = 0.5;
  auto model = Cnn::make(nn::Scope({.generator = Generator(7)}), config);
  // With keys an image has the same masks wherever it stands; the norms would mix the images, so they do not train.
  model->apply([](nn::Module& m) {
    if (dynamic_cast<nn::BatchNorm*>(&m)) m.eval();
  });
  const Tensor images = images_of(32, float32);
  const auto run = [&](const std::vector<int64_t>& order) {
    model->generator().set_offset(100);
    const Tensor index = from_vector(order, {3});
    return model->forward(index_select(images, 0, index), index);
  };
  const Tensor first = run({0, 1, 2}), other = run({2, 0, 1});
  EXPECT_EQ(first[0].to_vector<float>(), other[1].to_vector<float>());
  EXPECT_EQ(first[2].to_vector<float>(), other[0].to_vector<float>());
  model->eval();
  EXPECT_NE(run({0, 1, 2})[0].to_vector<float>(), first[0].to_vector<float>());
}

TEST(Cnn, ClassActivationMapsAreThoseOfTheLastLayer) {
  const auto model = made("resnet18", 64);
  model->eval();
  const Tensor images = images_of(64, float32);
  const std::vector<Tensor> maps = model->attention_rollout(images);
  ASSERT_EQ(maps.size(), 3u);
  NoGrad off;
  const Tensor features = model->feature_map(images), weight = find(model->state_dict(), "fc.weight");
  const Tensor label = argmax(model->forward(images), 1);
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor row = weight[label[i].item<int64_t>()].reshape({-1, 1, 1});
    const Tensor want = relu(sum(features[i] * row, {0}));
    expect_near(maps[static_cast<size_t>(i)], want / max(want), 1e-5);
    EXPECT_EQ(maps[static_cast<size_t>(i)].shape(), (Shape{2, 2}));
  }
}

/// The covariance of what the whitening gives is the identity, on both of its halves.
TEST(Speedrun, WhitensThePatchesOfItsImages) {
  auto model = Cnn::make(nn::Scope({.generator = test::fresh_generator()}), config_of("speedrun", 32));
  Generator generator = test::fresh_generator();
  // Neighbouring pixels and channels depend on each other.
  const Tensor noise = randn({40, 3, 17, 18}, generator);
  const Tensor images = (noise + noise.slice(1, 0, 1) * 2.0).slice(2, 0, 16).slice(3, 0, 16) +
                        noise.slice(2, 1, 17).slice(3, 1, 17) * 1.5;
  int64_t asked = 0;
  model->initialize([&](int64_t n) {
    asked = n;
    return images;
  });
  EXPECT_EQ(asked, 5000);
  NoGrad off;
  const Tensor weight = find(model->state_dict(), "whiten.weight");
  EXPECT_EQ(weight.shape(), (Shape{24, 3, 2, 2}));
  expect_near(weight.slice(0, 12, 24), -weight.slice(0, 0, 12), 0);
  const Tensor white = conv2d(images, weight.slice(0, 0, 12)).permute({1, 0, 2, 3}).reshape({12, -1}).to(float64);
  const Tensor covariance = matmul(white, white.transpose(0, 1)) / double(white.size(1));
  expect_near(covariance, eye(12).to(float64), 0.02);  // variances are at least 0.1, and 5e-4 is added to them
}

TEST(Speedrun, BeginsWithIdentitiesAndTrainsTheRest) {
  auto model = Cnn::make(nn::Scope({.generator = test::fresh_generator()}), config_of("speedrun", 32));
  const Tensor kernel = find(model->state_dict(), "layers.1.conv1.weight");
  expect_near(kernel.slice(0, 0, 64).select(3, 1).select(2, 1), eye(64), 0);
  EXPECT_EQ(sum(abs(kernel.slice(0, 0, 64))).item<double>(), 64);
  EXPECT_GT(min(max(abs(kernel.slice(0, 64)).flatten(1), {1})).item<double>(), 0);
  sum(square(model->forward(images_of(32, float32)))).backward();
  for (const NamedTensor& p : model->parameters()) {
    const bool fixed =
        p.name == "whiten.weight" || (p.name.find("norm") != std::string::npos && p.name.ends_with("weight"));
    EXPECT_EQ(p.tensor.grad().defined(), !fixed) << p.name;
  }
  EXPECT_EQ(model->forward(ones({2, 3, 16, 40})).shape(), (Shape{2, 7}));
  EXPECT_TRUE(has(error_of([&] { model->forward(ones({2, 3, 15, 40})); }), "16 pixels a side or more, got 15 x 40"));
  EXPECT_TRUE(
      has(error_of([&] { Cnn::make(nn::Scope(), config_of("speedrun", 8)); }), "16 pixels a side or more, got 8"));
  // Jordan's network: 236 million multiplications and additions forward.
  EXPECT_NEAR(model->forward_flops() / 1e6, 236, 1);
}

TEST(Cnn, FoldedNormsFollowTheWeights) {
  const auto model = made("resnet18 small", 32);
  const Tensor images = images_of(32, float32);
  model->eval();
  const auto expect_same = [&] {
    const Tensor plain = model->forward(images).detach();
    NoGrad off;
    expect_near(model->forward(images), plain, 1e-5 * max(abs(plain)).item<double>());
  };
  expect_same();
  for (const char* name : {"layer2.0.bn1.running_var", "layer2.0.conv1.weight", "bn1.bias", "layer4.1.bn2.weight"}) {
    NoGrad off;
    Tensor t = find(model->state_dict(), name);
    t.mul_(1.7);
    GradMode on(true);
    expect_same();
  }
}

}  // namespace
}  // namespace tern::models
