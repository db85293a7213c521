// Dropout of blocks and of samples.

#include "tern/core/ops/dropout.h"

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(DropBlock, ZerosAreWholeBlocks) {
  std::mt19937_64 random = fresh_random();
  Generator generator = fresh_generator();
  for (int round = 0; round < 20; ++round) {
    const int64_t block = 1 + static_cast<int64_t>(random() % 4), height = 8 + static_cast<int64_t>(random() % 5);
    const Tensor x = full({2, 3, height, 9}, 2);
    const Tensor y = drop_block2d(round % 2 ? x.channels_last() : x, block, {.p = 0.2, .generator = &generator});
    EXPECT_EQ(y.is_channels_last(), round % 2 == 1);
    // What is dropped is covered by blocks of zeros that lie within the image.
    const Tensor dropped = (y == 0.0).to(float32);
    const Tensor starts = (avg_pool2d(dropped, block, {.stride = 1}) == 1.0).to(float32);
    const Tensor covered = max_pool2d(pad(starts, {block - 1, block - 1, block - 1, block - 1}), block, {.stride = 1});
    expect_equal(covered.contiguous(), dropped.contiguous());
    // The mean is kept.
    const double lost = sum(dropped).item<double>();
    if (lost < static_cast<double>(x.numel())) {
      EXPECT_NEAR(mean(y).item<double>(), 2, 1e-4);
    }
  }
}

TEST(DropBlock, AboutAShareIsLost) {
  Generator generator = fresh_generator();
  const Tensor plane = drop_block2d(ones({20, 10, 40, 40}), 3, {.p = 0.1, .generator = &generator});
  // Blocks overlap, so somewhat less than a tenth is lost.
  EXPECT_NEAR(mean((plane == 0.0).to(float32)).item<double>(), 0.095, 0.01);
  const Tensor cube = drop_block3d(ones({4, 10, 14, 14, 14}), 2, {.p = 0.3, .generator = &generator});
  EXPECT_NEAR(mean((cube == 0.0).to(float32)).item<double>(), 0.26, 0.03);
}

TEST(DropBlock, BlocksAreNotLargerThanTheImage) {
  Generator generator = fresh_generator();
  const Tensor y = drop_block2d(ones({30, 2, 3, 3}), 7, {.p = 0.5, .generator = &generator});
  const Tensor left = sum(y != 0.0, {2, 3});
  EXPECT_TRUE(all(logical_or(left == 0.0, left == 9.0)).item<bool>());
  const Tensor x = ones({2, 3, 4, 5}).set_requires_grad(true);
  EXPECT_TRUE(same(drop_block2d(x, 2, {.p = 0}), x));
  const Tensor half = drop_block2d(x, 2, {.p = 0.5, .generator = &generator});
  half.backward(ones({2, 3, 4, 5}));
  expect_near(x.grad(), half, 1e-6);
}

TEST(DropBlock, TheSameSeedDropsTheSame) {
  Generator first(7), second(7);
  const Tensor x = ones({2, 3, 9, 9});
  expect_equal(drop_block2d(x, 3, {.p = 0.3, .generator = &first}),
               drop_block2d(x, 3, {.p = 0.3, .generator = &second}));
}

TEST(StochasticDepth, RowsAndBatches) {
  Generator generator = fresh_generator();
  const Tensor x = ones({4000, 3});
  const Tensor rows = stochastic_depth(x, StochasticDepthMode::kRow, {.p = 0.25, .generator = &generator});
  expect_equal(rows.select(1, 0), rows.select(1, 2));
  EXPECT_NEAR(mean(rows).item<double>(), 1, 0.06);
  EXPECT_NEAR(max(rows).item<double>(), 4.0 / 3, 1e-6);
  int dropped = 0;
  for (int i = 0; i < 400; ++i) {
    const Tensor y =
        stochastic_depth(ones({3, 2, 2}), StochasticDepthMode::kBatch, {.p = 0.25, .generator = &generator});
    EXPECT_EQ(min(y).item<double>(), max(y).item<double>());
    dropped += max(y).item<double>() == 0;
  }
  EXPECT_NEAR(dropped, 100, 60);
}

TEST(DropBlock, WhatIsRefused) {
  const Tensor x = ones({2, 3, 4, 5});
  expect_error([&] { drop_block2d(x, 0, {.p = 0.1}); }, {"drop_block2d: block_size must be at least 1"});
  expect_error([&] { drop_block2d(x, 2, {.p = 1.5}); }, {"drop_block2d: p must be in [0, 1]"});
  expect_error([&] { drop_block2d(x, 2, {.p = NAN}); }, {"drop_block2d: p must be in [0, 1]"});
  expect_error([&] { drop_block3d(x, 2, {.p = 0.1}); },
               {"drop_block3d: x must be floating [batch, channels, 3 spatial"});
  expect_error([&] { drop_block2d(x, 2, {.p = 0.1, .row_keys = zeros({2}, {int64})}); }, {"row_keys are not taken"});
  expect_error([&] { stochastic_depth(ones({}), StochasticDepthMode::kRow, {.p = 0.5}); }, {"[samples, ...]"});
  expect_error([&] { stochastic_depth(x, StochasticDepthMode::kRow, {.p = 2}); }, {"must be in [0, 1]"});
}

}  // namespace
}  // namespace tern::test
