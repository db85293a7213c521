// Copies, casts and fills over dtypes and strides; random fills against the formulas in the header and the CPU's bits.

#include "tern/tests/kernels/contracts/copy.h"

namespace tern::kernels {
namespace {

class Copy : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Copy, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Copy, EveryPairOfDTypesOverSpecialValues) {
  const int64_t n = static_cast<int64_t>(kSpecial.size()), rows = 16;
  for (DType from : kAllTypes)
    for (DType to : kAllTypes)
      for (Order order : {Order::kContiguous, Order::kTransposed, Order::kMisaligned}) {
        if (!takes_case(0, random)) continue;
        Array x(from, {rows, n}, order), y(to, {rows, n});
        for (int64_t i = 0; i < rows * n; ++i) {
          // A double of 2^63 does not fit into int64: the test's conversion must stay defined.
          const double v = kSpecial[i % n];
          x.set(i, from == int64 && v >= 0x1p63 ? 0x1p62 : v);
        }
        run_kernel([&](Call& on) { copy(on.stream(), on(x), on(y)); });
        for (int64_t i = 0; i < rows * n; ++i) {
          const double expected = expected_conversion(from, to, x.at(i));
          ASSERT_TRUE(near(y.at(i), expected, 0, 0)) << name_of(from) << " to " << name_of(to) << " of " << x.at(i)
                                                     << ": got " << y.at(i) << ", expected " << expected;
        }
      }
}

TEST_P(Copy, AnyStrides) {
  const std::vector<Shape> shapes = {{1},      {0},        {1000},      {7, 3},       {64, 64},
                                     {33, 65}, {5, 0, 2},  {3, 40, 50}, {2, 3, 4, 5}, {2, 1, 3, 2, 1, 2, 3, 2},
                                     {},       {130, 200}, {2500, 3}};
  for (const Shape& shape : shapes)
    for (Order in : kAllOrders)
      for (Order out : kAllOrders)
        for (auto [from, to] : std::vector<std::pair<DType, DType>>{{float32, float32},
                                                                    {bfloat16, float32},
                                                                    {float32, float16},
                                                                    {uint8, uint8},
                                                                    {float64, float64},
                                                                    {int64, boolean}})
          check_copy(shape, from, to, in, out, random);
}

/// Every bit pattern of the 16-bit formats to float, and floats near ties, at the ends of the range and NaN back, in
/// lengths that leave remainders.
TEST_P(Copy, HalvesAndFloats) {
  for (DType dtype : {bfloat16, float16}) {
    constexpr int64_t n = 65536 + 21;
    Array halves(dtype, {n}), wide(float32, {n}), back(dtype, {n});
    for (int64_t i = 0; i < n; ++i) halves.view().as<uint16_t>()[i] = static_cast<uint16_t>(i);
    if (takes_case(n, random)) {
      run_kernel([&](Call& on) { copy(on.stream(), on(halves), on(wide)); });
      for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(near(wide.at(i), halves.at(i), 0, 0)) << i << " " << wide.at(i);
    }
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits = static_cast<uint32_t>(random());
      if (i % 2 == 0) bits = (bits & 0xffff0000u) | 0x8000u;                                    // a tie of bfloat16
      if (i % 3 == 0) bits = (bits & 0xc7ffe000u) | 0x38000000u | (i % 9 == 0 ? 0x1000u : 0u);  // in float16's range
      wide.view().as<uint32_t>()[i] = bits;
    }
    if (!takes_case(n, random)) continue;
    run_kernel([&](Call& on) { copy(on.stream(), on(wide), on(back)); });
    for (int64_t i = 0; i < n; ++i)
      ASSERT_TRUE(near(back.at(i), round_to(dtype, wide.at(i)), 0, 0)) << wide.at(i) << " gave " << back.at(i);
  }
}

/// Transpositions for every element size and batches of matrices.
TEST_P(Copy, Transposed) {
  for (DType dtype : {float64, float32, bfloat16, uint8, boolean})
    for (const Shape& shape : {Shape{8, 8}, {9, 31}, {64, 65}, {129, 70}, {257, 8}})
      check_copy(shape, dtype, dtype, Order::kTransposed, Order::kContiguous, random);
  const int orders[][4] = {{0, 2, 1, 3}, {3, 2, 1, 0}, {0, 1, 3, 2}, {2, 0, 3, 1},
                           {1, 0, 2, 3}, {3, 0, 1, 2}, {0, 3, 1, 2}, {2, 3, 0, 1}};
  for_each_run([&] {
    for (const DType from : {float16, float32})
      for (const Shape& shape : {Shape{3, 20, 5, 70}, Shape{6, 35, 4, 9}}) {
        Array x = random_array(random, from, shape, -1, 1);
        for (const auto& order : orders) {
          if (!takes_case(0, random)) continue;
          ConstView permuted = x.cview();
          for (int d = 0; d < 4; ++d) {
            permuted.shape[d] = x.cview().shape[order[d]];
            permuted.strides[d] = x.cview().strides[order[d]];
          }
          Array same(from, Shape(permuted.shape, permuted.shape + 4)), wide(float32, same.shape());
          check_copied_view(x, permuted, same);
          check_copied_view(x, permuted, wide);
        }
      }
  });
}

/// Parts of rows, from their second element on, in either direction along each dimension: few columns and many, rows
/// that are farther from their copies than a line, and the ends of outer dimensions.
TEST_P(Copy, PartsOfRowsInEitherDirection) {
  for (const Shape& shape : {Shape{1, 3000, 3}, {2, 1500, 8}, {3, 40, 9}, {2, 5, 2100}, {1, 2, 70001}, {7, 3, 1}})
    for (const int flipped : {0, 1, 2, 3})
      for (const auto& [from, to] : {std::pair{float32, float32}, {bfloat16, bfloat16}, {bfloat16, float64}}) {
        if (!takes_case(shape[0] * shape[1] * shape[2], random)) continue;
        Array x = random_array(random, from, {shape[0], shape[1], shape[2] + 1}, -1, 1), y(to, shape);
        View part = x.view();
        const int64_t last = shape[2];
        part.shape[2] = last;
        part.data = static_cast<char*>(part.data) + size_of(from);
        if (flipped < 3) {
          part.data = static_cast<char*>(part.data) + (shape[flipped] - 1) * part.strides[flipped] * size_of(from);
          part.strides[flipped] = -part.strides[flipped];
        }
        check_copied_view(x, part, y);
      }
}

TEST_P(Copy, Broadcast) {
  for (int64_t cols : {50, 64})
    for (DType dtype : {float32, bfloat16}) {
      Array row = random_array(random, dtype, {cols}, -1, 1), column = random_array(random, dtype, {40, 1}, -1, 1);
      Array y(dtype, {40, cols});
      check_copied_view(row, row.expand({40, cols}), y);
      check_copied_view(column, column.expand({40, cols}), y);
    }
}

/// All 2^16 halves to float and back, bit for bit also between equal dtypes; rounding between neighbouring halves.
TEST_P(Copy, SixteenBitConversionsAreExactOrRoundToEven) {
  for (DType half : {float16, bfloat16}) {
    std::vector<uint16_t> bits(65536), back(65536), moved(65536);
    std::vector<float> wide(65536);
    for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
    const int64_t n = 65536, one = 1;
    const auto halves = [&](Call& on, std::vector<uint16_t>& x) {
      return View(on.memory(x.data(), n), half, 1, &n, &one);
    };
    run_kernel([&](Call& on) {
      copy(on.stream(), halves(on, bits), make_view(on.memory(wide.data(), n), n));
      copy(on.stream(), make_view(on.memory(wide.data(), n), n), halves(on, back));
      copy(on.stream(), halves(on, bits), halves(on, moved));
    });
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
    for (float& v : wide) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    for (int i = 0; i < 4096; ++i)
      wide[i] = static_cast<float>(std::ldexp(random() % 4096 + 0.5 * (random() % 3), -30));
    run_kernel([&](Call& on) { copy(on.stream(), make_view(on.memory(wide.data(), n), n), halves(on, back)); });
    const View rounded(back.data(), half, 1, &n, &one);
    for (int i = 0; i < 65536; ++i)
      ASSERT_TRUE(near(Array::read(rounded, i), round_to(half, wide[i]), 0, 0)) << wide[i];
  }
}

TEST_P(Copy, ForeignBoolBytesBecomeOne) {
  const int64_t n = 40, one = 1;
  std::vector<uint8_t> raw = {0, 1, 255, 0, 0x80}, same(n);
  std::vector<int64_t> wide(n);
  for (int64_t i = 5; i < n; ++i) raw.push_back(static_cast<uint8_t>(i % 3 == 0 ? 0 : 13 * i));
  run_kernel([&](Call& on) {
    const View source(on.memory(raw.data(), n), boolean, 1, &n, &one);
    copy(on.stream(), source, View(on.memory(same.data(), n), boolean, 1, &n, &one));
    copy(on.stream(), source, make_view(on.memory(wide.data(), n), n));
  });
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(same[i], raw[i] != 0);
    EXPECT_EQ(wide[i], raw[i] != 0);
  }
}

TEST_P(Copy, LargeIntegersAreExact) {
  int64_t x[] = {(int64_t{1} << 60) + 1, -(int64_t{1} << 62) - 3, std::numeric_limits<int64_t>::min(), 5}, y[4];
  int32_t narrow[4];
  run_kernel([&](Call& on) {
    const View source = make_view(on.memory(x, 4), 4);
    copy(on.stream(), source, make_view(on.memory(y, 4), 4));
    copy(on.stream(), source, make_view(on.memory(narrow, 4), 4));
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(y[i], x[i]);
    EXPECT_EQ(narrow[i], static_cast<int32_t>(x[i]));
  }
}

TEST_P(Copy, ManyTensorsInOneLaunch) {
  for (const DType from : kFloatTypes)
    for (const DType to : kFloatTypes) {
      if (!takes_case(0, random)) continue;
      for_each_run([&] {
        std::vector<Array> xs, ys;
        for (const int64_t n : {1, 0, 7, 8, 40000, 1000, 16384, 16385})
          for (const Order order : {Order::kContiguous, Order::kMisaligned}) {
            xs.push_back(random_array(random, from, {n}, -3, 3, order));
            ys.emplace_back(to, Shape{n}, order);
          }
        run_kernel([&](Call& on) {
          std::vector<ConstView> x;
          std::vector<View> y;
          for (size_t i = 0; i < xs.size(); ++i) {
            x.push_back(on(xs[i]));
            y.push_back(on(ys[i]));
          }
          copy_many(on.stream(), x.data(), y.data(), static_cast<int64_t>(x.size()));
        });
        for (size_t t = 0; t < xs.size(); ++t) {
          for (int64_t i = 0; i < xs[t].numel(); ++i)
            ASSERT_EQ(ys[t].at(i), expected_conversion(from, to, xs[t].at(i))) << "tensor " << t << " element " << i;
          expect_gaps_untouched(ys[t]);
        }
      });
    }
  // More tensors than fit into one launch, and none.
  Array x = random_array(random, float32, {1001}, -3, 3), y(bfloat16, {1001});
  run_kernel([&](Call& on) {
    const float* const first = on(x).as<float>();
    BFloat16* const result = on(y).as<BFloat16>();
    std::vector<ConstView> from;
    std::vector<View> to;
    for (int64_t i = 0; i < 1001; ++i) {
      from.push_back(make_view(first + i, 1));
      to.push_back(make_view(result + i, 1));
    }
    copy_many(on.stream(), from.data(), to.data(), 1001);
    copy_many(on.stream(), nullptr, nullptr, 0);
  });
  for (int64_t i = 0; i < 1001; ++i) ASSERT_EQ(y.at(i), expected_conversion(float32, bfloat16, x.at(i))) << i;
}

TEST_P(Copy, FillValuesAndStrides) {
  for_each_run([&] {
    for (DType dtype : kAllTypes)
      for (Order order : kAllOrders)
        for (double value : {0.0, 3.25, -2.0, 1e30, static_cast<double>(NAN)}) {
          if (!takes_case(0, random)) continue;
          Array y(dtype, {5, 401}, order);
          run_kernel([&](Call& on) { fill(on.stream(), value, on(y)); });
          for (int64_t i = 0; i < y.numel(); ++i) {
            const double expected = dtype == int64 && value > 1e18 ? 0x1p63 : round_to(dtype, value);
            ASSERT_TRUE(near(y.at(i), expected, 0, 0)) << name_of(dtype);
          }
          expect_gaps_untouched(y);
        }
    int64_t exact[3];
    Array empty(float32, {0});
    run_kernel([&](Call& on) {
      fill_integer(on.stream(), (int64_t{1} << 60) + 1, make_view(on.memory(exact, 3), 3));
      fill(on.stream(), 1, on(empty));
      fill_uniform(on.stream(), {}, 0, 1, on(empty));
      fill_normal(on.stream(), {}, 0, 1, on(empty));
      arange(on.stream(), 0, 1, on(empty));
    });
    for (int64_t v : exact) EXPECT_EQ(v, (int64_t{1} << 60) + 1);
  });
}

TEST_P(Copy, Triangles) {
  for (const DType dtype : {float64, float32, bfloat16, uint8, boolean})
    for (const Shape& shape : {Shape{1, 1}, {5, 7}, {3, 7, 4}, {2, 0, 3}, {130, 67}})
      for (const int64_t diagonal : {int64_t{0}, int64_t{-3}, int64_t{2}, int64_t{1} << 62, -(int64_t{1} << 62)})
        for (const bool lower : {false, true}) {
          if (!takes_case(0, random)) continue;
          Array x = random_array(random, dtype, shape, 1, 9), y(dtype, shape);
          run_kernel([&](Call& on) { triangle(on.stream(), on(x), diagonal, lower, on(y)); });
          const int64_t cols = y.cview().cols(), rows = y.cview().size(-2);
          for (int64_t i = 0; i < y.numel(); ++i) {
            const int64_t above = i % cols - i / cols % rows;
            ASSERT_EQ(y.at(i), (lower ? above <= diagonal : above >= diagonal) ? x.at(i) : 0) << i;
          }
        }
}

TEST_P(Copy, Arange) {
  for_each_run([&] {
    for (DType dtype : {float64, float32, bfloat16, int64, int32})
      for (Order order : {Order::kContiguous, Order::kMisaligned}) {
        Array y(dtype, {target().is_cpu() ? 100003 : 1003}, order);
        run_kernel([&](Call& on) { arange(on.stream(), 5, 0.5, on(y)); });
        for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), round_to(dtype, 5 + 0.5 * i));
        expect_gaps_untouched(y);
      }
  });
}

TEST_P(Copy, UniformIsTheDocumentedFunctionAndHasTheCpusBits) {
  const int64_t n = target().is_cpu() ? 100003 : 4099;
  for_each_run([&] {
    const RandomKey key = key_with_base(random(), 45);
    for (DType dtype : kFloatTypes)
      for (Order order : {Order::kContiguous, Order::kMisaligned})
        for (auto [low, high] : std::vector<std::pair<double, double>>{{0, 1}, {-2, 3}, {-0.05, 0.05}}) {
          if (!takes_case(0, random)) continue;
          Array y(dtype, {n}, order), cpu(dtype, {n}, order);
          run_kernel(
              [&, low = low, high = high](Call& on) { fill_uniform(on.stream(), on.key(key), low, high, on(y)); });
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
        Array z(dtype, {target().is_cpu() ? 20000 : 3000});
        run_kernel([&](Call& on) { fill_uniform(on.stream(), on.key(key), high - 1, high, on(z)); });
        for (int64_t i = 0; i < z.numel(); ++i) ASSERT_LT(z.at(i), high);
      }
  });
}

TEST_P(Copy, RandomIntegersAreTheDocumentedFunction) {
  const RandomKey key = key_with_base(random(), 3);
  for (DType dtype : kAllTypes)
    for (const uint64_t count : {uint64_t{1}, uint64_t{2}, uint64_t{100}, uint64_t{1} << 50}) {
      const int64_t low = dtype == uint8 || dtype == boolean ? 0 : -50;
      if (count > 100 && size_of(dtype) < 8) continue;
      Array y(dtype, {1 + static_cast<int64_t>(random() % 3000)});
      run_kernel([&](Call& on) { fill_random_integers(on.stream(), on.key(key), low, count, on(y)); });
      for (int64_t i = 0; i < y.numel(); ++i) {
        const Philox4 words = philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 2));
        const long double bits = words.word[i % 2 * 2 + 1] * 0x1p32L + words.word[i % 2 * 2];
        const auto number = static_cast<int64_t>(std::floor(bits * static_cast<long double>(count) * 0x1p-64L));
        ASSERT_EQ(y.at(i), round_to(dtype, static_cast<double>(low + number))) << name_of(dtype) << " " << i;
      }
      expect_gaps_untouched(y);
    }
}

TEST_P(Copy, NormalIsTheDocumentedFunction) {
  const int64_t n = target().is_cpu() ? 99999 : 9999;
  for_each_run([&] {
    const RandomKey key = key_with_base(random(), 1);
    for (DType dtype : kFloatTypes) {
      Array y(dtype, {n});
      run_kernel([&](Call& on) { fill_normal(on.stream(), on.key(key), 1, 2, on(y)); });
      for (int64_t i = 0; i < y.numel(); ++i) {
        const Philox4 words = philox(philox_key(key), 0, 0, static_cast<uint32_t>(i / 4));
        const int64_t pair = i % 4 / 2 * 2;
        const double u = 1 - (words.word[pair] >> 8) * 0x1p-24,
                     angle = 2 * M_PI * (words.word[pair + 1] >> 8) * 0x1p-24;
        const double normal = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        // Sine and cosine are in fp32 also for fp64: their errors, times at most 2 * sqrt(-2 log 2^-24) = 11.6.
        ASSERT_TRUE(near(y.at(i), 1 + 2 * normal, 1.01 * epsilon_of(dtype), 4e-6)) << y.at(i);
      }
      expect_gaps_untouched(y);
    }
  });
}

class CopyTraffic : public Copy {};
INSTANTIATE_TEST_SUITE_P(, CopyTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CopyTraffic);

TEST_P(CopyTraffic, MovesEachByteOnce) {
  for (auto [from, to] : std::vector<std::pair<DType, DType>>{
           {float32, float32}, {bfloat16, bfloat16}, {float32, bfloat16}, {uint8, uint8}, {float64, float64}})
    for (Order order : {Order::kContiguous, Order::kTransposed}) {
      Array x = random_array(random, from, {256, 300}, 0, 1, order), y(to, {256, 300});
      const Traffic traffic = traffic_of([&](Call& on) { copy(on.stream(), on(x), on(y)); });
      EXPECT_EQ(traffic.launches, 1u);
      EXPECT_EQ(traffic.bytes, bytes_of(x) + bytes_of(y));
    }
}

}  // namespace
}  // namespace tern::kernels
