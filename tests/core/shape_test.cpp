// Shapes, strides, broadcasting and type promotion.

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(Shape, HoldsSizes) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.dims(), 3);
  EXPECT_EQ(s.numel(), 24);
  EXPECT_EQ(s.size(-1), 4);
  EXPECT_EQ(s.with(1, 7), Shape({2, 7, 4}));
  EXPECT_EQ(s.without(-1), Shape({2, 3}));
  EXPECT_EQ(s.inserted(0, 5), Shape({5, 2, 3, 4}));
  EXPECT_EQ(s.inserted(-1, 5), Shape({2, 3, 4, 5}));
  EXPECT_EQ(s.str(), "[2, 3, 4]");
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ(Shape({3, 0, 5}).numel(), 0);
  EXPECT_NE(Shape({2}), Shape({2, 1}));
  EXPECT_EQ(contiguous_strides(Shape{2, 3, 4})[0], 12);
}

TEST(Shape, RejectsWhatDoesNotFit) {
  expect_error([] { Shape({2, -1}); }, {"[2, -1]", ">= 0"});
  expect_error([] { Shape(std::vector<int64_t>(9, 1)); }, {"at most 8", "9"});
  expect_error([] { Shape({int64_t{1} << 32, int64_t{1} << 31}); }, {"64 bits"});
  expect_error([] { Shape({0, int64_t{1} << 62, 4}); }, {"64 bits"});
  EXPECT_EQ(Shape({int64_t{1} << 31, int64_t{1} << 31}).numel(), int64_t{1} << 62);
  expect_error([] { Shape({2, 3}).size(2); }, {"dimension 2", "[2, 3]"});
  expect_error([] { Shape({2, 3}).wrap(-3); }, {"dimension -3"});
  expect_error([] { Shape({2, 3}).inserted(4, 1); }, {"inserted"});
  expect_error([] { Shape(std::vector<int64_t>(8, 1)).inserted(0, 1); }, {"at most 8"});
}

TEST(Shape, AllocatingTooMuchIsAnError) {
  expect_error([] { empty({int64_t{1} << 61}, {.dtype = float64}); }, {"64 bits"});
  EXPECT_THROW(empty({int64_t{1} << 55}), OutOfMemoryError);
  EXPECT_THROW(zeros({int64_t{1} << 45}), OutOfMemoryError);
}

TEST(Broadcast, FollowsNumPy) {
  const auto b = [](const Shape& x, const Shape& y) { return broadcast_shapes("op", x, y); };
  EXPECT_EQ(b({3, 1}, {4}), Shape({3, 4}));
  EXPECT_EQ(b({}, {2, 3}), Shape({2, 3}));
  EXPECT_EQ(b({1}, {0}), Shape({0}));
  EXPECT_EQ(b({5, 1, 4}, {3, 1}), Shape({5, 3, 4}));
  expect_error([&] { b({3}, {4}); }, {"op", "[3]", "[4]"});
  expect_error([&] { b({0}, {2}); }, {"[0]", "[2]"});
  expect_error([&] { b({int64_t{1} << 40, 1}, {1, int64_t{1} << 40}); }, {"64 bits"});
  EXPECT_TRUE(broadcasts_to({1, 3}, {2, 2, 3}));
  EXPECT_FALSE(broadcasts_to({2, 3}, {3}));
  EXPECT_FALSE(broadcasts_to({2}, {1}));
}

TEST(Broadcast, ValuesAgreeWithIndexing) {
  Generator g = fresh_generator();
  const Tensor a = randn({4, 1, 3}, g), b = randn({5, 1}, g), c = a * b;
  ASSERT_EQ(c.shape(), Shape({4, 5, 3}));
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 5; ++j)
      for (int k = 0; k < 3; ++k) EXPECT_EQ(c[i][j][k].item<float>(), a[i][0][k].item<float>() * b[j][0].item<float>());
}

/// PyTorch's table for two tensors with dimensions.
TEST(Promotion, OfTwoDtypes) {
  EXPECT_EQ(promote(float16, bfloat16), float32);
  EXPECT_EQ(promote(float16, float32), float32);
  EXPECT_EQ(promote(float64, bfloat16), float64);
  EXPECT_EQ(promote(int64, float16), float16);
  EXPECT_EQ(promote(boolean, bfloat16), bfloat16);
  EXPECT_EQ(promote(uint8, int32), int32);
  EXPECT_EQ(promote(int64, int32), int64);
  EXPECT_EQ(promote(boolean, uint8), uint8);
  for (DType d : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean}) EXPECT_EQ(promote(d, d), d);
}

TEST(Promotion, TensorsWithDimensionsCountFirst) {
  const auto of = [](DType d, const Shape& s) { return ones(s, {.dtype = d}); };
  EXPECT_EQ(add(of(float32, {2}), of(float64, {})).dtype(), float32);
  EXPECT_EQ(add(of(float64, {}), of(bfloat16, {2})).dtype(), bfloat16);
  EXPECT_EQ(add(of(int32, {2}), of(int64, {})).dtype(), int32);
  EXPECT_EQ(add(of(int64, {2}), of(float16, {})).dtype(), float16);  // a float scalar tensor turns integers into floats
  EXPECT_EQ(add(of(boolean, {2}), of(int32, {})).dtype(), int32);    // and an integer one turns bools into integers
  EXPECT_EQ(add(of(int64, {}), of(boolean, {2})).dtype(), int64);
  EXPECT_EQ(add(of(float32, {}), of(float64, {})).dtype(), float64);
  EXPECT_EQ(add(of(float16, {2}), of(bfloat16, {2})).dtype(), float32);
  EXPECT_EQ(add(of(float16, {2}), of(int64, {2})).dtype(), float16);
  EXPECT_EQ(where(of(boolean, {2}), of(float32, {2}), of(float64, {})).dtype(), float32);
  EXPECT_EQ(where(of(boolean, {}), of(int32, {2}), of(int64, {})).dtype(), int32);
  EXPECT_EQ(where(of(boolean, {2}), of(float16, {}), of(int64, {2})).dtype(), float16);
}

TEST(Promotion, OfScalarsAndSpecialOps) {
  const Tensor i = ones({2}, {.dtype = int64}), b = ones({2}, {.dtype = boolean}), h = ones({2}, {.dtype = float16});
  EXPECT_EQ((i + 1).dtype(), int64);
  EXPECT_EQ((i * 0.5).dtype(), float32);
  EXPECT_EQ((i + INFINITY).dtype(), float32);
  EXPECT_EQ((i + 1e300).dtype(), float32);
  EXPECT_TRUE(std::isnan((i + NAN)[0].item<double>()));
  EXPECT_EQ((h * 0.5).dtype(), float16);
  EXPECT_EQ((b + 1).dtype(), int64);
  EXPECT_EQ((b + 1)[0].item<int64_t>(), 2);
  EXPECT_EQ(div(i, i).dtype(), float32);
  EXPECT_EQ((i / 2).dtype(), float32);
  EXPECT_EQ((i / 2)[0].item<double>(), 0.5);
  EXPECT_EQ(exp(i).dtype(), float32);
  EXPECT_EQ(lt(i, i).dtype(), boolean);
  EXPECT_EQ(isnan(h).dtype(), boolean);
  EXPECT_EQ(sum(b).dtype(), int64);
  EXPECT_EQ(sum(ones({300}, {.dtype = boolean})).item<int64_t>(), 300);
  EXPECT_EQ(sum(full({300}, 255, {.dtype = uint8})).item<int64_t>(), 76500);
  EXPECT_EQ(sum(h).dtype(), float16);
  expect_error([&] { mean(i); }, {"mean", "int64"});
  EXPECT_EQ(max(i).dtype(), int64);
  EXPECT_EQ(neg(i).to_vector<int64_t>(), (std::vector<int64_t>{-1, -1}));
}

TEST(Promotion, LargeIntegersStayExact) {
  const int64_t big = (int64_t{1} << 62) + 1;
  const Tensor x = from_vector<int64_t>({big, -big}, {2});
  EXPECT_EQ((x + zeros({2}, {.dtype = int64})).to_vector<int64_t>(), (std::vector<int64_t>{big, -big}));
  EXPECT_EQ((x - 1).to_vector<int64_t>(), (std::vector<int64_t>{big - 1, -big - 1}));
  EXPECT_EQ(max(x).item<int64_t>(), big);
  EXPECT_TRUE(eq(x, x + 1).to_vector<bool>() == std::vector<bool>({false, false}));
}

}  // namespace
}  // namespace tern::test
