// Batch normalisation: PyTorch's numbers (tests/golden/make_batch_norm.py), derivatives, memory and what is refused.
// The kernels are compared with the definition in tests/kernels.

#include "tern/core/autograd/checkpoint.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/golden.h"

namespace tern::test {
namespace {

using golden::Json;
using golden::optional;

constexpr ImageActivation kActivations[] = {ImageActivation::kNone,      ImageActivation::kRelu,
                                            ImageActivation::kRelu6,     ImageActivation::kSilu,
                                            ImageActivation::kHardSwish, ImageActivation::kGelu};
const std::map<std::string, ImageActivation> kNames = {
    {"none", ImageActivation::kNone}, {"relu", ImageActivation::kRelu},           {"relu6", ImageActivation::kRelu6},
    {"silu", ImageActivation::kSilu}, {"hardswish", ImageActivation::kHardSwish}, {"gelu", ImageActivation::kGelu}};

Tensor run_case(const std::string& op, const Json& params, golden::Tensors& in) {
  if (op == "running") {
    const Tensor batches = in.at("batches").detach();
    nn::BatchNormLayerOptions options;
    if (params["momentum"].is_null()) options.momentum.reset();
    const nn::BatchNorm2d norm(nn::Scope({.dtype = batches.dtype()}), batches.size(2), options);
    for (int64_t i = 0; i < batches.size(0); ++i) norm.forward(batches[i]);
    EXPECT_EQ(norm.num_batches_tracked().item<int64_t>(), batches.size(0));
    return stack({norm.running_mean(), norm.running_var()});
  }
  Tensor mean = optional(in, "mean"), var = optional(in, "var");
  if (mean.defined()) {
    mean = mean.detach().clone();
    var = var.detach().clone();
  }
  return batch_norm(
      in.at("x"), mean, var, optional(in, "weight"), optional(in, "bias"),
      {.training = params["training"], .eps = params["eps"], .activation = kNames.at(params["activation"])},
      optional(in, "residual"));
}
TEST(Golden, BatchNormFloat32) { golden::check("batch_norm.json", "functions", float32, run_case, 30); }
TEST(Golden, BatchNormFloat64) { golden::check("batch_norm.json", "functions", float64, run_case, 30); }

TEST(BatchNorm, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  for (const ImageActivation activation : kActivations)
    for (const bool training : {true, false})
      for (const bool with_residual : {true, false}) {
        SCOPED_TRACE(testing::Message() << int(activation) << training << with_residual);
        const auto leaf = [&](const Shape& shape) {
          return randn(shape, generator, {float64}).set_requires_grad(true);
        };
        Tensors in = {leaf({3, 2, 4}), leaf({2}), leaf({2})};
        if (with_residual) in.push_back(leaf({3, 2, 4}));
        const Tensor mean = randn({2}, generator, {float64}), var = rand({2}, generator, {float64}) + 0.5;
        gradcheck(
            [&](const Tensors& t) {
              return square(batch_norm(t[0], mean.clone(), var.clone(), t[1], t[2],
                                       {.training = training, .activation = activation},
                                       with_residual ? t[3] : Tensor()));
            },
            in, {.second = true});
      }
}

TEST(BatchNorm, OnlyTheGradientsThatAreWanted) {
  Generator generator = fresh_generator();
  const Tensor x = randn({4, 3, 5}, generator, {float64}), weight = randn({3}, generator, {float64});
  const Tensor bias = randn({3}, generator, {float64}), dy = randn({4, 3, 5}, generator, {float64});
  const BatchNormOptions options{.training = true, .activation = ImageActivation::kRelu};
  Tensor all[3] = {x.detach().set_requires_grad(true), weight.detach().set_requires_grad(true),
                   bias.detach().set_requires_grad(true)};
  batch_norm(all[0], {}, {}, all[1], all[2], options).backward(dy);
  for (int wanted = 0; wanted < 3; ++wanted) {
    Tensor some[3] = {x.detach(), weight.detach(), bias.detach()};
    some[wanted].set_requires_grad(true);
    batch_norm(some[0], {}, {}, some[1], some[2], options).backward(dy);
    expect_equal(some[wanted].grad(), all[wanted].grad());
  }
}

TEST(BatchNorm, HalvesKeepStatisticsInFloat32) {
  Generator generator = fresh_generator();
  const Tensor exact = randn({64, 3, 9}, generator, {float64}) * 2.0 + 50.0;
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor x = exact.to(dtype);
    Tensor mean = zeros({3}), var = ones({3});
    const Tensor y = batch_norm(x, mean, var, ones({3}), zeros({3}), {.training = true, .momentum = 1});
    EXPECT_EQ(y.dtype(), dtype);
    const Tensor want = tern::mean(x.to(float64), {0, 2});
    EXPECT_LT(max(abs(mean.to(float64) - want)).item<double>(), 50 * 1e-6);
    EXPECT_LT(max(abs(var.to(float64) - tern::var(x.to(float64), {0, 2}))).item<double>(), 1e-4);
    const Tensor exact_y =
        (x.to(float64) - want.unsqueeze(-1)) / sqrt(tern::var(x.to(float64), {0, 2}, 0) + 1e-5).unsqueeze(-1);
    EXPECT_LT(max(abs(y.to(float64) - exact_y)).item<double>(), dtype == float16 ? 4e-3 : 3e-2);
  }
}

/// Running statistics and a weight that are columns of larger tensors give the same bits; their versions change.
TEST(BatchNorm, StatisticsWithGapsInMemory) {
  Generator random = fresh_generator();
  const Tensor x = randn({6, 3, 4}, random);
  for (const DType dtype : {float32, float64, bfloat16}) {
    const Tensor columns = randn({3, 4}, random).to(dtype);
    Tensor mean = columns.clone().select(1, 1), var = columns.clone().select(1, 2);
    Tensor own_mean = mean.contiguous().clone(), own_var = var.contiguous().clone();
    const Tensor weight = columns.select(1, 0);
    const uint64_t version = mean.version();
    const Tensor y = batch_norm(x, mean, var, weight, {}, {.training = true, .momentum = 0.25});
    const Tensor z = batch_norm(x, own_mean, own_var, weight.contiguous(), {}, {.training = true, .momentum = 0.25});
    expect_equal(y, z);
    expect_equal(mean, own_mean);
    expect_equal(var, own_var);
    EXPECT_GT(mean.version(), version);
  }
  const Tensor one = ones({1}), numbers = ones({3});
  expect_error([&] { batch_norm(x, one.expand({3}), numbers, {}, {}, {.training = true}); },
               {"batch_norm: several elements of", "have the same address"});
}

TEST(BatchNorm, OrderInMemoryChangesNoBit) {
  Generator generator = fresh_generator();
  const Tensor x = randn({3, 5, 4, 6}, generator), weight = randn({5}, generator), bias = randn({5}, generator);
  const Tensor dy = randn({3, 5, 4, 6}, generator);
  const auto run = [&](const Tensor& input, const Tensor& gradient) {
    Tensor leaf = input.detach().set_requires_grad(true);
    const Tensor y = batch_norm(leaf, {}, {}, weight, bias, {.training = true, .activation = ImageActivation::kSilu});
    EXPECT_TRUE(y.is_channels_last());
    y.backward(gradient);
    return std::pair(y, leaf.grad());
  };
  const auto [y, dx] = run(x, dy);
  const auto [other_y, other_dx] = run(x.channels_last(), dy.transpose(2, 3).contiguous().transpose(2, 3));
  expect_equal(other_y, y);
  expect_equal(other_dx, dx);
}

TEST(BatchNorm, ARecomputationCountsOnce) {
  Generator generator = fresh_generator();
  const Tensor x = randn({4, 3, 5}, generator);
  const auto run = [&](bool again) {
    auto norm = std::make_unique<nn::BatchNorm1d>(nn::Scope(), 3);
    Tensor leaf = x.detach().set_requires_grad(true);
    const auto layer = [&](const Tensor& in) { return sin(norm->forward(in, ImageActivation::kRelu)); };
    const Tensor y = again ? checkpoint(layer, leaf) : layer(leaf);
    sum(square(y)).backward();
    return std::tuple(norm->running_mean(), norm->running_var(), norm->num_batches_tracked(), leaf.grad());
  };
  const auto plain = run(false), recomputed = run(true);
  expect_equal(std::get<0>(recomputed), std::get<0>(plain));
  expect_equal(std::get<1>(recomputed), std::get<1>(plain));
  expect_equal(std::get<2>(recomputed), std::get<2>(plain));
  expect_equal(std::get<3>(recomputed), std::get<3>(plain));
}

/// Both ranks run in one process, one after the other: in pass p they get what the other sent first in pass p - 1, so
/// that after three passes both have the statistics and then the sums of the gradients.
TEST(BatchNorm, StatisticsOfSeveralRanksAreThoseOfTheWholeBatch) {
  Generator generator = fresh_generator();
  const TensorOptions doubles{float64};
  const Tensor x = randn({7, 3, 5}, generator, doubles), dy = randn({7, 3, 5}, generator, doubles);
  const Tensor weight = randn({3}, generator, doubles).set_requires_grad(true);
  const Tensor bias = randn({3}, generator, doubles).set_requires_grad(true);
  const Tensor whole = x.detach().set_requires_grad(true), mean = zeros({3}, doubles), var = ones({3}, doubles);
  const Tensor y = batch_norm(whole, mean, var, weight, bias, {.training = true, .activation = ImageActivation::kRelu});
  y.backward(dy);
  const Tensor dweight = weight.grad().detach().clone(), dbias = bias.grad().detach().clone();
  std::vector<Tensor> sent[2];
  for (size_t pass = 0; pass < 3; ++pass) {
    const std::vector<Tensor> before[2] = {sent[0], sent[1]};
    Tensor(weight).set_grad({});
    Tensor(bias).set_grad({});
    for (const int rank : {0, 1}) {
      sent[rank].clear();
      const BatchNormRanks ranks{rank, 2, [&](Tensor& t) {
                                   const size_t call = sent[rank].size();
                                   sent[rank].push_back(t.clone());
                                   if (call < pass) t.add_(before[1 - rank].at(call));
                                 }};
      const int64_t begin = rank ? 2 : 0, end = rank ? 7 : 2;
      const Tensor part = x.slice(0, begin, end).detach().clone().set_requires_grad(true);
      const Tensor own_mean = zeros({3}, doubles), own_var = ones({3}, doubles);
      const Tensor result = batch_norm(part, own_mean, own_var, weight, bias,
                                       {.training = true, .activation = ImageActivation::kRelu, .ranks = &ranks});
      result.backward(dy.slice(0, begin, end));
      ASSERT_EQ(sent[rank].size(), 2u);
      if (pass < 2) continue;
      expect_near(result, y.slice(0, begin, end), 1e-12);
      expect_near(part.grad(), whole.grad().slice(0, begin, end), 1e-12);
      expect_near(own_mean, mean, 1e-13);
      expect_near(own_var, var, 1e-12);
    }
    if (pass < 2) continue;
    expect_near(weight.grad(), dweight, 1e-12);  // each rank's part, added by backward()
    expect_near(bias.grad(), dbias, 1e-12);
  }
}

TEST(BatchNorm, WhatIsRefused) {
  const Tensor x = ones({2, 4, 5}), four = ones({4});
  const BatchNormOptions training{.training = true};
  expect_error([&] { batch_norm(ones({4}), four, four); }, {"batch_norm: x must be floating [batch, channels]"});
  expect_error([&] { batch_norm(x.to(int64), four, four); }, {"batch_norm: x must be floating", "int64"});
  expect_error([&] { batch_norm(x, four, {}); }, {"one is undefined: give both or neither"});
  expect_error([&] { batch_norm(x, ones({5}), four); }, {"running_mean must be floating [4], the channels of x"});
  expect_error([&] { batch_norm(x, four, ones({4, 1})); }, {"running_var must be floating [4]"});
  expect_error([&] { batch_norm(x, four, four, ones({2})); }, {"weight must be floating [4]"});
  expect_error([&] { batch_norm(x, four, four, four, ones({3})); }, {"bias must be floating [4]"});
  expect_error([&] { batch_norm(x, four, four, four, four, {}, ones({2, 4})); }, {"residual must be like x"});
  expect_error(
      [&] {
        batch_norm(ones({1, 4, 1}), four.clone(), four.clone(), {}, {}, training);
      },
      {"x [1, 4, 1] has one value for each channel, whose variance is 0"});
  expect_error([&] { batch_norm(ones({1, 4}), {}, {}); }, {"one value for each channel"});
  EXPECT_EQ(batch_norm(ones({1, 4}), four, four).shape(), (Shape{1, 4}));
  EXPECT_EQ(batch_norm(ones({0, 4, 3}), four, four, {}, {}, training).shape(), (Shape{0, 4, 3}));
  expect_error([&] { nn::BatchNorm2d(nn::Scope(), 0); }, {"channels must be > 0"});
  expect_error([&] { nn::BatchNorm2d(nn::Scope(), 3, {.momentum = 1.5}); }, {"momentum must be between 0 and 1"});
  const nn::BatchNorm2d norm(nn::Scope(), 3);
  expect_error([&] { norm.forward(ones({2, 3, 4})); }, {"nn::BatchNorm2d: x must have 4 dimensions"});
  expect_error([&] { norm.forward(ones({2, 4, 4, 4})); }, {"made for 3 channels, got x [2, 4, 4, 4]"});
}

/// Two norms and one without parameters.
class Norms final : public nn::Module {
 public:
  explicit Norms(const nn::Scope& s)
      : Module(s),
        a(sub("a"), 2),
        b(sub("b"), 2),
        plain(sub("plain"), 2, {.affine = false}),
        linear(sub("linear"), 2, 2) {}
  nn::BatchNorm1d a, b, plain;
  nn::Linear linear;
};

TEST(BatchNorm, FrozenNormsKeepTheirStatistics) {
  Norms norms{nn::Scope()};
  const auto modes = [&] {
    return std::vector<bool>{norms.is_training(), norms.a.is_training(), norms.b.is_training(),
                             norms.plain.is_training(), norms.linear.is_training()};
  };
  norms.freeze("a.*");
  norms.freeze("b.weight");
  norms.freeze("linear.*");
  nn::train_except_frozen_norms(norms);
  EXPECT_EQ(modes(), (std::vector<bool>{true, false, true, true, true}));
  const Tensor x = fresh_normal({5, 2}, 9);
  EXPECT_EQ(norms.a.forward(x).to_vector<float>(), batch_norm(x, zeros({2}), ones({2})).to_vector<float>());
  norms.unfreeze("a.bias");
  norms.freeze("b.bias");
  nn::train_except_frozen_norms(norms);
  EXPECT_EQ(modes(), (std::vector<bool>{true, true, false, true, true}));
}

}  // namespace
}  // namespace tern::test
