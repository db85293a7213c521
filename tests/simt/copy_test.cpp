// Copies, casts and fills of CUDA tensors in the emulator: dtypes, strides, transpositions; random fills against the
// CPU's bits and the formulas in the header.

#include "tern/kernels/copy.h"

#include "tern/tests/emulator/simt/schedules.h"
#include "tern/tests/kernels/copy_reference.h"

namespace tern::kernels {
namespace {

TEST(SimtCopy, EveryPairOfDTypesOverSpecialValues) {
  for (DType from : kAllTypes)
    for (DType to : kAllTypes)
      for (Order order : {Order::kContiguous, Order::kTransposed, Order::kMisaligned}) {
        const int64_t n = static_cast<int64_t>(kSpecial.size()), rows = 16;
        Array x(from, {rows, n}, order), y(to, {rows, n});
        for (int64_t i = 0; i < rows * n; ++i) {
          const double v = kSpecial[i % n];
          x.set(i, from == int64 && v >= 0x1p63 ? 0x1p62 : v);
        }
        cuda::copy(kCuda, x.cview(), y.view());
        for (int64_t i = 0; i < rows * n; ++i) {
          const double expected = expected_conversion(from, to, x.at(i));
          ASSERT_TRUE(near(y.at(i), expected, 0, 0)) << name_of(from) << " to " << name_of(to) << " of " << x.at(i)
                                                     << ": got " << y.at(i) << ", expected " << expected;
        }
      }
}

void check_copy(const Shape& shape, DType from, DType to, Order in, Order out, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << " " << testing::PrintToString(shape)
                                  << " orders " << static_cast<int>(in) << " " << static_cast<int>(out));
  Array x(from, shape, in), y(to, shape, out);
  fill_with_random(x, random, 0, 100);
  cuda::copy(kCuda, x.cview(), y.view());
  for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), expected_conversion(from, to, x.at(i))) << "element " << i;
  expect_gaps_untouched(y);
}

TEST(SimtCopy, AnyStrides) {
  const std::vector<Shape> shapes = {{1},      {0},       {1000},      {7, 3},       {64, 64},
                                     {33, 65}, {5, 0, 2}, {3, 40, 50}, {2, 3, 4, 5}, {2, 1, 3, 2, 1, 2, 3, 2},
                                     {},       {130, 200}};
  for_each_schedule([&] {
    std::mt19937_64 random = fresh_random();
    for (const Shape& shape : shapes)
      for (Order in : kAllOrders)
        for (Order out : kAllOrders)
          for (auto [from, to] : std::vector<std::pair<DType, DType>>{{float32, float32},
                                                                      {bfloat16, float32},
                                                                      {float32, float16},
                                                                      {uint8, uint8},
                                                                      {float64, float64},
                                                                      {int64, boolean}})
            if (!kFewCases || random() % 5 == 0) check_copy(shape, from, to, in, out, random);
  });
}

/// Transpositions for every element size and batches of matrices.
TEST(SimtCopy, Transposed) {
  for_each_schedule([] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : {float64, float32, bfloat16, uint8, boolean})
      for (const Shape& shape : {Shape{8, 8}, {9, 31}, {64, 65}, {129, 70}, {257, 8}})
        check_copy(shape, dtype, dtype, Order::kTransposed, Order::kContiguous, random);
    // Axes 1 and 2 of [3, a, b, c] swapped with the innermost in several ways.
    Array x(float16, {3, 20, 5, 70});
    fill_with_random(x, random, -1, 1);
    const int orders[][4] = {{0, 2, 1, 3}, {3, 2, 1, 0}, {0, 1, 3, 2}, {2, 0, 3, 1},
                             {1, 0, 2, 3}, {3, 0, 1, 2}, {0, 3, 1, 2}, {2, 3, 0, 1}};
    for (const auto& order : orders)
      for (DType to : {float16, float32}) {
        ConstView permuted = x.cview();
        for (int d = 0; d < 4; ++d) {
          permuted.shape[d] = x.cview().shape[order[d]];
          permuted.strides[d] = x.cview().strides[order[d]];
        }
        Array y(to, Shape(permuted.shape, permuted.shape + 4));
        cuda::copy(kCuda, permuted, y.view());
        for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), Array::read(permuted, i));
      }
  });
}

TEST(SimtCopy, Broadcast) {
  std::mt19937_64 random = fresh_random();
  for (int64_t cols : {50, 64})
    for (DType dtype : {float32, bfloat16}) {
      Array row(dtype, {cols}), column(dtype, {40, 1}), y(dtype, {40, cols});
      fill_with_random(row, random, -1, 1);
      fill_with_random(column, random, -1, 1);
      cuda::copy(kCuda, row.expand({40, cols}), y.view());
      for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), row.at(i % cols));
      cuda::copy(kCuda, column.expand({40, cols}), y.view());
      for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), column.at(i / cols));
    }
}

/// All 2^16 halves to float and back, bit for bit also between equal dtypes; rounding between neighbouring halves.
TEST(SimtCopy, SixteenBitConversionsAreExactOrRoundToEven) {
  for (DType half : {float16, bfloat16}) {
    std::vector<uint16_t> bits(65536), back(65536), moved(65536);
    std::vector<float> wide(65536);
    for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
    const int64_t n = 65536, one = 1;
    const View source(bits.data(), half, 1, &n, &one), target(back.data(), half, 1, &n, &one);
    cuda::copy(kCuda, source, make_view(wide.data(), n));
    cuda::copy(kCuda, make_view(wide.data(), n), target);
    cuda::copy(kCuda, source, View(moved.data(), half, 1, &n, &one));
    EXPECT_TRUE(moved == bits);
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
    cuda::copy(kCuda, make_view(wide.data(), n), target);
    for (int i = 0; i < 65536; ++i) ASSERT_TRUE(near(Array::read(target, i), round_to(half, wide[i]), 0, 0)) << wide[i];
  }
}

TEST(SimtCopy, ForeignBoolBytesBecomeOne) {
  std::vector<uint8_t> raw(40), same(40);
  std::vector<int64_t> wide(40);
  for (int i = 0; i < 40; ++i) raw[i] = static_cast<uint8_t>(i % 3 == 0 ? 0 : 13 * i);
  const int64_t n = 40, one = 1;
  const View source(raw.data(), boolean, 1, &n, &one);
  cuda::copy(kCuda, source, View(same.data(), boolean, 1, &n, &one));
  cuda::copy(kCuda, source, make_view(wide.data(), n));
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(same[i], raw[i] != 0);
    EXPECT_EQ(wide[i], raw[i] != 0);
  }
}

TEST(SimtCopy, LargeIntegersAreExact) {
  const int64_t x[] = {(int64_t{1} << 60) + 1, -(int64_t{1} << 62) - 3, std::numeric_limits<int64_t>::min(), 5};
  int64_t y[4];
  int32_t narrow[4];
  cuda::copy(kCuda, make_view(x, 4), make_view(y, 4));
  cuda::copy(kCuda, make_view(x, 4), make_view(narrow, 4));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(y[i], x[i]);
    EXPECT_EQ(narrow[i], static_cast<int32_t>(x[i]));
  }
}

TEST(SimtCopy, MovesEachByteOnce) {
  for (auto [from, to] : std::vector<std::pair<DType, DType>>{
           {float32, float32}, {bfloat16, bfloat16}, {float32, bfloat16}, {uint8, uint8}, {float64, float64}})
    for (Order order : {Order::kContiguous, Order::kTransposed}) {
      Array x(from, {256, 300}, order), y(to, {256, 300});
      std::mt19937_64 random = fresh_random();
      fill_with_random(x, random, 0, 1);
      simt::reset_stats();
      cuda::copy(kCuda, x.cview(), y.view());
      const simt::Stats stats = simt::stats();
      EXPECT_EQ(stats.launches, 1u);
      EXPECT_EQ(stats.loaded_bytes, static_cast<uint64_t>(x.numel() * size_of(from)));
      EXPECT_EQ(stats.stored_bytes, static_cast<uint64_t>(x.numel() * size_of(to)));
    }
}

TEST(SimtFill, ValuesAndStrides) {
  for_each_schedule([] {
    for (DType dtype : kAllTypes)
      for (Order order : kAllOrders)
        for (double value : {0.0, 3.25, -2.0, 1e30, static_cast<double>(NAN)}) {
          Array y(dtype, {5, 401}, order);
          cuda::fill(kCuda, value, y.view());
          for (int64_t i = 0; i < y.numel(); ++i) {
            const double expected = dtype == int64 && value > 1e18 ? 0x1p63 : round_to(dtype, value);
            ASSERT_TRUE(near(y.at(i), expected, 0, 0)) << name_of(dtype);
          }
          expect_gaps_untouched(y);
        }
    int64_t exact[3];
    cuda::fill_integer(kCuda, (int64_t{1} << 60) + 1, make_view(exact, 3));
    for (int64_t v : exact) EXPECT_EQ(v, (int64_t{1} << 60) + 1);
    Array empty(float32, {0});
    cuda::fill(kCuda, 1, empty.view());
    cuda::fill_uniform(kCuda, {}, 0, 1, empty.view());
    cuda::fill_normal(kCuda, {}, 0, 1, empty.view());
    cuda::arange(kCuda, 0, 1, empty.view());
  });
}

TEST(SimtFill, Arange) {
  for_each_schedule([] {
    for (DType dtype : {float64, float32, bfloat16, int64, int32})
      for (Order order : {Order::kContiguous, Order::kMisaligned}) {
        Array y(dtype, {1003}, order);
        cuda::arange(kCuda, 5, 0.5, y.view());
        for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), round_to(dtype, 5 + 0.5 * i));
        expect_gaps_untouched(y);
      }
  });
}

TEST(SimtFill, UniformHasTheCpusBits) {
  for_each_schedule([] {
    const RandomKey key = key_with_base(fresh_seed(), 45);
    for (DType dtype : kFloatTypes)
      for (Order order : {Order::kContiguous, Order::kMisaligned})
        for (auto [low, high] : std::vector<std::pair<double, double>>{{0, 1}, {-2, 3}, {-0.05, 0.05}}) {
          Array y(dtype, {4099}, order), cpu(dtype, {4099}, order);
          cuda::fill_uniform(kCuda, key, low, high, y.view());
          fill_uniform({}, key, low, high, cpu.view());
          // Level v2 has no fused multiply-add: its bits differ unless low is 0.
          const bool same_bits = low == 0 || cpu_level() != CpuLevel::kV2;
          ASSERT_TRUE(!same_bits || y.values() == cpu.values()) << name_of(dtype);
          for (int64_t i = 0; i < y.numel(); ++i) {
            const double u = philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 4)).word[i % 4] / 256 * 0x1p-24;
            // Both numbers, their product, the sum and then the result are rounded; a result equal to high becomes the
            // value below it.
            const double unit = dtype == float64 ? 0x1p-53 : 0x1p-24, step = 2 * epsilon_of(dtype) * std::fabs(high);
            const double slack = 4 * unit * (std::fabs(low) + high - low) + (y.at(i) >= high - step ? step : 0);
            ASSERT_TRUE(near(y.at(i), low + (high - low) * u, 1.01 * epsilon_of(dtype), slack)) << y.at(i);
            ASSERT_TRUE(y.at(i) >= round_to(dtype, low) && y.at(i) < high);
          }
          expect_gaps_untouched(y);
        }
    for (double high : {0.0, 1.0, -1.0, 1e-6})
      for (DType dtype : kFloatTypes) {
        Array z(dtype, {3000});
        cuda::fill_uniform(kCuda, key, high - 1, high, z.view());
        for (int64_t i = 0; i < z.numel(); ++i) ASSERT_LT(z.at(i), high);
      }
  });
}

TEST(SimtFill, NormalIsTheDocumentedFunction) {
  for_each_schedule([] {
    const RandomKey key = key_with_base(fresh_seed(), 1);
    for (DType dtype : kFloatTypes) {
      Array y(dtype, {9999});
      cuda::fill_normal(kCuda, key, 1, 2, y.view());
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < y.numel(); ++i) {
        const Philox4 words = philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 4));
        const int64_t pair = i % 4 / 2 * 2;
        const double u = 1 - (words.word[pair] >> 8) * 0x1p-24,
                     angle = 2 * M_PI * (words.word[pair + 1] >> 8) * 0x1p-24;
        const double normal = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        // Sine and cosine are in fp32 also for fp64: their errors, times at most 2 * sqrt(-2 log 2^-24) = 11.6.
        ASSERT_TRUE(near(y.at(i), 1 + 2 * normal, 1.01 * epsilon_of(dtype), 4e-6)) << y.at(i);
        sum += y.at(i);
        squares += (y.at(i) - 1) * (y.at(i) - 1);
      }
      // 7 standard deviations: 2 / sqrt(9999) and sqrt(2) * 4 / sqrt(9999).
      EXPECT_NEAR(sum / 9999, 1, 0.14);
      EXPECT_NEAR(squares / 9999, 4, 0.4);
      expect_gaps_untouched(y);
    }
  });
}

TEST(SimtCopy, ManyTensorsInOneLaunch) {
  std::mt19937_64 random = fresh_random();
  for (const DType from : kFloatTypes)
    for (const DType to : kFloatTypes) {
      if (kFewCases && from != to && to != bfloat16) continue;
      for_each_schedule([&] {
        std::vector<Array> xs, ys;
        for (const int64_t n : {1, 0, 7, 8, 40000, 1000, 16384, 16385})
          for (const Order order : {Order::kContiguous, Order::kMisaligned}) {
            xs.emplace_back(from, Shape{n}, order);
            ys.emplace_back(to, Shape{n}, order);
            fill_with_random(xs.back(), random, -3, 3);
          }
        std::vector<ConstView> x;
        std::vector<View> y;
        for (size_t i = 0; i < xs.size(); ++i) x.push_back(xs[i].cview()), y.push_back(ys[i].view());
        cuda::copy_many(kCuda, x.data(), y.data(), static_cast<int64_t>(x.size()));
        for (size_t t = 0; t < xs.size(); ++t) {
          for (int64_t i = 0; i < xs[t].numel(); ++i)
            ASSERT_EQ(ys[t].at(i), expected_conversion(from, to, xs[t].at(i))) << "tensor " << t << " element " << i;
          expect_gaps_untouched(ys[t]);
        }
      });
    }
  // More tensors than fit into one launch, and none.
  Array x(float32, {1001}), y(bfloat16, {1001});
  fill_with_random(x, random, -3, 3);
  std::vector<ConstView> from;
  std::vector<View> to;
  for (int64_t i = 0; i < 1001; ++i) {
    from.push_back(make_view(static_cast<const float*>(x.cview().data) + i, 1));
    to.push_back(make_view(static_cast<BFloat16*>(y.view().data) + i, 1));
  }
  cuda::copy_many(kCuda, from.data(), to.data(), 1001);
  cuda::copy_many(kCuda, nullptr, nullptr, 0);
  for (int64_t i = 0; i < 1001; ++i) ASSERT_EQ(y.at(i), expected_conversion(float32, bfloat16, x.at(i))) << i;
}

}  // namespace
}  // namespace tern::kernels
