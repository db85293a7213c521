// Copies, casts and fills over dtypes and strides; random fills against the formulas in the header.

#include "tern/kernels/copy.h"

#include "tern/tests/kernels/copy_reference.h"

namespace tern::kernels {
namespace {

TEST(Copy, EveryPairOfDTypesOverSpecialValues) {
  for_each_level([] {
    for (DType from : kAllTypes)
      for (DType to : kAllTypes) {
        const int64_t n = static_cast<int64_t>(kSpecial.size());
        Array x(from, {3, n}), y(to, {3, n});
        for (int64_t i = 0; i < 3 * n; ++i) {
          // A double of 2^63 does not fit into int64: the test's conversion must stay defined.
          const double v = kSpecial[i % n];
          x.set(i, from == int64 && v >= 0x1p63 ? 0x1p62 : v);
        }
        copy({}, x.cview(), y.view());
        for (int64_t i = 0; i < 3 * n; ++i) {
          const double expected = expected_conversion(from, to, x.at(i));
          // A double cannot hold the largest int64.
          const bool same = near(y.at(i), expected, 0, 0);
          ASSERT_TRUE(same) << name_of(from) << " to " << name_of(to) << " of " << x.at(i) << ": got " << y.at(i)
                            << ", expected " << expected;
        }
      }
  });
}

TEST(Copy, AnyStrides) {
  const std::vector<Shape> shapes = {{1},      {0},       {1000},      {7, 3},       {64, 64},
                                     {33, 65}, {5, 0, 2}, {3, 40, 50}, {2, 3, 4, 5}, {2, 1, 3, 2, 1, 2, 3, 2},
                                     {},       {130, 200}};
  for_each_level([&] {
    std::mt19937_64 random = fresh_random();
    for (const Shape& shape : shapes)
      for (Order in : kAllOrders)
        for (Order out : kAllOrders)
          for (auto [from, to] : std::vector<std::pair<DType, DType>>{{float32, float32},
                                                                      {bfloat16, float32},
                                                                      {float32, float16},
                                                                      {uint8, uint8},
                                                                      {float64, float64},
                                                                      {int64, boolean}}) {
            Array x(from, shape, in), y(to, shape, out);
            fill_with_random(x, random, 0, 100);
            std::vector<char> untouched = y.bytes();
            expect_same_for_any_threads(y, [&] { copy({}, x.cview(), y.view()); });
            for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), expected_conversion(from, to, x.at(i)));
            // Nothing outside the view was written.
            Array again(to, shape, out);
            for (int64_t i = 0; i < y.numel(); ++i) again.set(i, y.at(i));
            int64_t written = 0, allowed = 0;
            for (char c : y.bytes()) written += c != 0x5a;
            for (char c : again.bytes()) allowed += c != 0x5a;
            ASSERT_EQ(written, allowed);
          }
  });
}

TEST(Copy, PermutedAndBroadcast) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    Array x(float32, {6, 35, 4, 9});
    fill_with_random(x, random, -1, 1);
    const int orders[][4] = {{0, 2, 1, 3}, {3, 2, 1, 0}, {0, 1, 3, 2}, {2, 0, 3, 1}, {1, 0, 2, 3}, {3, 0, 1, 2}};
    for (const auto& order : orders) {
      ConstView permuted = x.cview();
      for (int d = 0; d < 4; ++d) {
        permuted.shape[d] = x.cview().shape[order[d]];
        permuted.strides[d] = x.cview().strides[order[d]];
      }
      Array y(float32, Shape(permuted.shape, permuted.shape + 4));
      copy({}, permuted, y.view());
      for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), Array::read(permuted, i));
    }
    Array row(float32, {50}), y(float32, {40, 50});
    fill_with_random(row, random, -1, 1);
    copy({}, row.expand({40, 50}), y.view());
    for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), row.at(i % 50));
    Array column(float32, {40, 1});
    fill_with_random(column, random, -1, 1);
    copy({}, column.expand({40, 50}), y.view());
    for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), column.at(i / 50));
  });
}

/// All 2^16 halves to float and back, and rounding of every float between neighbouring halves.
TEST(Copy, SixteenBitConversionsAreExactOrRoundToEven) {
  for_each_level([] {
    for (DType half : {float16, bfloat16}) {
      std::vector<uint16_t> bits(65536), back(65536);
      std::vector<float> wide(65536);
      for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
      const int64_t n = 65536, one = 1;
      const View source(bits.data(), half, 1, &n, &one), target(back.data(), half, 1, &n, &one);
      copy({}, source, make_view(wide.data(), n));
      copy({}, make_view(wide.data(), n), target);
      for (int i = 0; i < 65536; ++i) {
        const int mantissa = half == float16 ? 10 : 7, bias = half == float16 ? 15 : 127;
        const int exponent = (i & 0x7fff) >> mantissa, fraction = i & ((1 << mantissa) - 1);
        double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                     : std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
        if (exponent == (0x7fff >> mantissa)) value = fraction ? NAN : INFINITY;
        ASSERT_TRUE(near(wide[i], i & 0x8000 ? -value : value, 0, 0)) << i;
        if (!std::isnan(value))
          ASSERT_EQ(back[i], bits[i]);
        else
          ASSERT_TRUE((back[i] & 0x7fff) > (0x7fff >> mantissa << mantissa));
      }
      std::mt19937_64 random = fresh_random();
      for (float& v : wide) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
      for (int i = 0; i < 4096; ++i)
        wide[i] = static_cast<float>(std::ldexp(random() % 4096 + 0.5 * (random() % 3), -30));
      copy({}, make_view(wide.data(), n), target);
      for (int i = 0; i < 65536; ++i)
        ASSERT_TRUE(near(Array::read(target, i), round_to(half, wide[i]), 0, 0)) << wide[i];
    }
  });
}

TEST(Copy, ForeignBoolBytesBecomeOne) {
  for_each_level([] {
    std::vector<uint8_t> raw = {0, 1, 2, 255, 0x80, 0}, same(6);
    std::vector<int64_t> wide(6);
    const int64_t n = 6, one = 1;
    const View source(raw.data(), boolean, 1, &n, &one);
    copy({}, source, View(same.data(), boolean, 1, &n, &one));
    copy({}, source, make_view(wide.data(), n));
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(same[i], raw[i] != 0);
      EXPECT_EQ(wide[i], raw[i] != 0);
    }
  });
}

TEST(Fill, ValuesAndStrides) {
  for_each_level([] {
    for (DType dtype : kAllTypes)
      for (Order order : kAllOrders)
        for (double value : {0.0, 3.25, -2.0, 1e30, static_cast<double>(NAN)}) {
          Array y(dtype, {5, 401}, order);
          fill({}, value, y.view());
          for (int64_t i = 0; i < y.numel(); ++i) {
            const double expected = dtype == int64 && value > 1e18 ? 0x1p63 : round_to(dtype, value);
            ASSERT_TRUE(near(y.at(i), expected, 0, 0)) << name_of(dtype);
          }
        }
    int64_t exact[3];
    fill_integer({}, (int64_t{1} << 60) + 1, make_view(exact, 3));
    for (int64_t v : exact) EXPECT_EQ(v, (int64_t{1} << 60) + 1);
    Array empty(float32, {0});
    fill({}, 1, empty.view());
    fill_uniform({}, {}, 0, 1, empty.view());
    arange({}, 0, 1, empty.view());
  });
}

TEST(Fill, Arange) {
  for_each_level([] {
    for (DType dtype : {float64, float32, bfloat16, int64, int32}) {
      Array y(dtype, {100003});
      expect_same_for_any_threads(y, [&] { arange({}, 5, 0.5, y.view()); });
      for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), round_to(dtype, 5 + 0.5 * i));
    }
  });
}

TEST(Fill, UniformIsTheDocumentedFunction) {
  for_each_level([] {
    const RandomKey key{123, 45};
    for (DType dtype : kFloatTypes) {
      Array y(dtype, {100003});
      expect_same_for_any_threads(y, [&] { fill_uniform({}, key, -2, 3, y.view()); });
      double sum = 0;
      for (int64_t i = 0; i < y.numel(); ++i) {
        const double u = philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 4)).word[i % 4] / 256 * 0x1p-24;
        ASSERT_TRUE(near(y.at(i), -2 + 5 * u, epsilon_of(dtype), 3 * epsilon_of(dtype) + 1e-6)) << y.at(i);
        ASSERT_TRUE(y.at(i) >= -2 && y.at(i) < 3);
        sum += y.at(i);
      }
      EXPECT_NEAR(sum / 100003, 0.5, 0.03);
    }
    Array y(float32, {1000});
    fill_uniform({}, key, 0, 1, y.view());
    for (int64_t i = 0; i < 1000; ++i)
      ASSERT_EQ(y.at(i), uniform(philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 4)).word[i % 4]));
    for (double high : {0.0, 1.0, -1.0, 1e-6})
      for (DType dtype : kFloatTypes) {
        Array z(dtype, {20000});
        fill_uniform({}, key, high - 1, high, z.view());
        for (int64_t i = 0; i < z.numel(); ++i) ASSERT_LT(z.at(i), high);
      }
  });
}

TEST(Fill, NormalIsTheDocumentedFunction) {
  for_each_level([] {
    const RandomKey key{7, 1};
    for (DType dtype : kFloatTypes) {
      Array y(dtype, {99999});
      expect_same_for_any_threads(y, [&] { fill_normal({}, key, 1, 2, y.view()); });
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < y.numel(); ++i) {
        const Philox4 words = philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 4));
        const int64_t pair = i % 4 / 2 * 2;
        const double u = 1 - (words.word[pair] >> 8) * 0x1p-24,
                     angle = 2 * M_PI * (words.word[pair + 1] >> 8) * 0x1p-24;
        const double normal = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        ASSERT_TRUE(near(y.at(i), 1 + 2 * normal, epsilon_of(dtype), 4 * epsilon_of(dtype) + 4e-6)) << y.at(i);
        sum += y.at(i);
        squares += (y.at(i) - 1) * (y.at(i) - 1);
      }
      EXPECT_NEAR(sum / 99999, 1, 0.03);
      EXPECT_NEAR(squares / 99999, 4, 0.08);
    }
  });
}

}  // namespace
}  // namespace tern::kernels
