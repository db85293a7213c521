// Norms and other layers of images as modules: what they add to their functions, which are parameters, buffers and
// what is refused.

#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

nn::Scope images_scope() { return nn::Scope({.generator = fresh_generator()}); }

TEST(ImageNorms, GroupNorm) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 6, 4, 5}, generator);
  const nn::GroupNorm norm(images_scope(), 3, 6, {.eps = 0.1});
  expect_equal(norm.weight(), ones({6}));
  expect_equal(norm.bias(), zeros({6}));
  expect_equal(norm.forward(x), group_norm(x, 3, norm.weight(), norm.bias(), 0.1));
  EXPECT_FALSE(nn::GroupNorm(images_scope(), 3, 6, {.affine = false}).weight().defined());
  expect_error([&] { nn::GroupNorm(images_scope(), 4, 6); },
               {"nn::GroupNorm: groups (4) must be at least 1 and divide"});
  expect_error([&] { norm.forward(ones({2, 3, 4})); }, {"nn::GroupNorm: x must be [batch, 6, ...]"});
}

/// Its statistics have the module's device and, of fp64 modules, its dtype.
TEST(ImageNorms, InstanceNormKeepsStatisticsInFp64) {
  nn::InstanceNorm1d norm(nn::Scope({.dtype = float64}), 2, {.momentum = 1.0, .track_running_stats = true});
  const StateView buffers = norm.buffers();
  EXPECT_EQ(find(buffers, "running_mean").dtype(), float64);
  EXPECT_EQ(find(buffers, "running_var").dtype(), float64);
  norm.forward(tensor({1, 1 + 1e-12, 1 + 2e-12, 3, 3, 3}, {.dtype = float64}).reshape({1, 2, 3}));
  EXPECT_NEAR(find(buffers, "running_mean")[0].item<double>() - 1, 1e-12, 1e-15);  // beyond fp32
  EXPECT_EQ(norm.forward(zeros({1, 2, 3}, {.dtype = float64})).dtype(), float64);
}

TEST(ImageNorms, InstanceNormUsesRunningStatisticsInEvaluation) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 4, 5}, generator) * 2 + 1;
  nn::InstanceNorm2d norm(images_scope(), 3, {.momentum = 0.5, .affine = true, .track_running_stats = true});
  EXPECT_EQ(norm.state_dict().size(), 5u);
  expect_near(norm.forward(x), instance_norm(x), 1e-6);
  expect_near(norm.running_mean(), mean(x, {0, 2, 3}) * 0.5, 1e-6);
  expect_near(norm.running_var(), mean(var(x, {2, 3}), {0}) * 0.5 + 0.5, 1e-5);
  norm.eval();
  const Tensor centred = x - norm.running_mean().reshape({1, 3, 1, 1});
  expect_near(norm.forward(x), centred * rsqrt(norm.running_var() + 1e-5).reshape({1, 3, 1, 1}), 1e-5);
  // Without tracking evaluation computes as training does.
  nn::InstanceNorm2d plain(images_scope(), 3);
  plain.eval();
  expect_near(plain.forward(x[0]), instance_norm(x)[0], 1e-6);
  EXPECT_TRUE(plain.state_dict().empty());
  expect_error([&] { plain.forward(ones({2, 4, 5})); }, {"nn::InstanceNorm: x must be [batch, 3, 2 spatial"});
  expect_error([&] { plain.forward(ones({2, 3, 1, 1})); }, {"have one pixel"});
}

TEST(ImageNorms, LocalResponseNorm) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 5, 4}, generator);
  expect_equal(nn::LocalResponseNorm(images_scope(), 3, {.alpha = 0.5}).forward(x),
               local_response_norm(x, 3, {.alpha = 0.5}));
}

TEST(ImageLayers, Upsample) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 4, 5}, generator);
  const InterpolateOptions options{.scale_factor = {2}, .mode = InterpolateMode::kLinear};
  expect_equal(nn::Upsample(images_scope(), options).forward(x), interpolate(x, options));
}

TEST(ImageLayers, WindowsAndPixels) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 4, 6, 6}, generator);
  const nn::Unfold windows(images_scope(), {2, 3}, {.padding = 1, .stride = 2});
  expect_equal(windows.forward(x), unfold(x, {2, 3}, {.padding = 1, .stride = 2}));
  const nn::Fold images(images_scope(), {6, 6}, {2, 3}, {.padding = 1, .stride = 2});
  expect_equal(images.forward(windows.forward(x)),
               fold(windows.forward(x), {6, 6}, {2, 3}, {.padding = 1, .stride = 2}));
  expect_equal(nn::PixelShuffle(images_scope(), 2).forward(x), pixel_shuffle(x, 2));
  expect_equal(nn::PixelUnshuffle(images_scope(), 3).forward(x), pixel_unshuffle(x, 3));
  expect_equal(nn::ChannelShuffle(images_scope(), 2).forward(x), channel_shuffle(x, 2));
  EXPECT_EQ(nn::PixelShuffle(images_scope(), 2).type_name(), "PixelShuffle");
}

TEST(ImageLayers, UnpoolingAndPowers) {
  Generator generator = fresh_generator();
  const Tensor x = rand({2, 3, 5, 7}, generator);
  const MaxPoolResult pooled = max_pool2d_with_indices(x, 2);
  const nn::MaxUnpool2d unpool(images_scope(), 2);
  // Indices are places in an image of the given size.
  const Tensor whole = unpool.forward(pooled.values, pooled.indices, {5, 7});
  expect_equal(whole, max_unpool2d(pooled.values, pooled.indices, 2, {.size = {5, 7}}));
  expect_error([&] { unpool.forward(pooled.values, pooled.indices); }, {"is outside [0, 24)"});
  expect_equal(nn::LPPool2d(images_scope(), 2, 3, {.stride = 1}).forward(x), lp_pool2d(x, 2, 3, {.stride = 1}));
}

TEST(ImageLayers, Padding) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 4, 5}, generator);
  expect_equal(nn::ZeroPad2d(images_scope(), {1, 2, 0, 3}).forward(x), pad(x, {1, 2, 0, 3}));
  expect_equal(nn::ConstantPad1d(images_scope(), 2, 0.5).forward(x[0]), pad(x[0], {2, 2}, PadMode::kConstant, 0.5));
  expect_equal(nn::ReflectionPad2d(images_scope(), 1).forward(x), pad(x, {1, 1, 1, 1}, PadMode::kReflect));
  expect_equal(nn::ReplicationPad3d(images_scope(), 1).forward(x), pad(x, {1, 1, 1, 1, 1, 1}, PadMode::kReplicate));
  expect_equal(nn::CircularPad2d(images_scope(), {1, 0, 2, 2}).forward(x), pad(x, {1, 0, 2, 2}, PadMode::kCircular));
  expect_error(
      [] {
        nn::ZeroPad2d(images_scope(), {1, 2});
      },
      {"got 2 numbers, expected one, or a pair for each of the 2"});
  expect_error(
      [] {
        nn::ZeroPad2d(images_scope(), 1).forward(ones({3, 4}));
      },
      {"ZeroPad2d: x must be [batch, channels"});
}

TEST(ImageLayers, DroppedBlocksOnlyInTraining) {
  nn::DropBlock2d drop(images_scope(), 0.5, 2);
  const Tensor x = ones({8, 4, 6, 6});
  EXPECT_FALSE(all(drop.forward(x) == 1.0).item<bool>());
  drop.eval();
  EXPECT_TRUE(same(drop.forward(x), x));
  nn::DropPath path(images_scope(), 0.5, StochasticDepthMode::kBatch);
  const Tensor y = path.forward(x);
  EXPECT_EQ(min(y).item<double>(), max(y).item<double>());
  expect_error([] { nn::DropBlock2d(images_scope(), 2, 3); }, {"nn::DropBlock: p must be in [0, 1]"});
  expect_error([] { nn::DropBlock3d(images_scope(), 0.1, 0); }, {"nn::DropBlock: block_size must be at least 1"});
}

}  // namespace
}  // namespace tern::test
