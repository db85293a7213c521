// Layer normalisation on the emulated device, against fp64; masks against the CPU's bits.

#include "tern/tests/kernels/norm_reference.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels::norm_test {
namespace {

/// The tensors of a call on the emulated device.
struct DeviceTensors : Tensors {
  std::vector<uint32_t> tickets = std::vector<uint32_t>(kLayerNormTickets, 0x5a5a5a5a);
  bool last_blocks = true;  // true: the last blocks sum the columns; false: a second launch
  using Tensors::Tensors;
  void forward(const Case& s, View z_view) {
    cuda::layer_norm_forward(kCuda, x.cview(), s.residual ? residual.cview() : ConstView(),
                             s.affine ? gamma.cview() : ConstView(), s.affine ? beta.cview() : ConstView(), kEps,
                             dropout, s.keys ? keys.cview() : ConstView(), z_view, y.view(), mean.view(), rstd.view(),
                             tickets.data());
  }
  void backward(const Case& s, ConstView z_view) {
    std::vector<char> workspace(cuda::layer_norm_backward_workspace(kCuda, s.rows, s.cols, s.dtype), 0x5a);
    cuda::layer_norm_backward(
        kCuda, dy.cview(), has_dsum ? dsum.cview() : ConstView(), z_view, s.affine ? gamma.cview() : ConstView(),
        mean.cview(), rstd.cview(), dropout, s.keys ? keys.cview() : ConstView(), workspace.data(),
        last_blocks ? tickets.data() : nullptr, dz.view(), dx.view(), dgamma.view(), dbeta.view());
    if (s.rows > 0 && s.cols > 0) {
      EXPECT_EQ(tickets, std::vector<uint32_t>(kLayerNormTickets, 0));
    }
  }
};

void check(const Case& s, std::mt19937_64& random) {
  SCOPED_TRACE(describe(s));
  DeviceTensors t(s, random);
  t.last_blocks = random() % 4 != 0;
  expect_same_for_all_schedules({&t.z, &t.y, &t.mean, &t.rstd}, [&] { t.forward(s, s.keep_z ? t.z.view() : View()); });
  if (s.has_backward())
    expect_same_for_all_schedules({&t.dz, &t.dx, &t.dgamma, &t.dbeta}, [&] { t.backward(s, t.stored_z(s).cview()); });
  Comparison(s, t).run();
}

TEST(SimtLayerNorm, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes) {
    const DType wide = is_low_precision(dtype) ? float32 : dtype;
    check({dtype, 5, 768, false, true, false, false, 0, wide}, random);
    check({dtype, 37, 129, true, true, true, true, 0.1, dtype}, random);
    check({dtype, 9, 300, true, true, true, false, 0.5, wide}, random);
    check({dtype, 150, 64, true, false, false, false, 0, dtype}, random);
    check({dtype, 3, 40, false, true, false, true, 0.25, dtype}, random);
    check({dtype, 1, 1, false, true, false, false, 0, dtype}, random);
    check({dtype, 0, 16, true, true, true, false, 0.1, dtype}, random);
    check({dtype, 4, 17, true, true, true, false, 1, dtype}, random);
    check({dtype, 70, 5, true, true, true, false, 0.3, wide}, random);
    check({dtype, 200, 8, true, true, true, true, 0.3, dtype, Order::kContiguous}, random);
  }
}

TEST(SimtLayerNorm, EveryKernelShape) {
  std::mt19937_64 random = fresh_random();
  const auto in_turn = [&] { return !kFewCases || random() % 2 == 0; };
  for (const DType dtype : kFloatTypes) {
    // Both sides of the bounds between register counts and between warp, block and long rows.
    for (const int64_t cols : {256, 512, 520, 776, 1024}) {
      if (!in_turn()) continue;
      check({dtype, kFewCases ? 5 : 20, cols, true, true, true, cols % 3 == 0, 0.1, dtype, Order::kContiguous}, random);
    }
    for (const int64_t cols : {1025, 2056, 4096, 6144, 8192})
      if (in_turn()) check({dtype, 3, cols, true, true, true, false, 0.2, float32, Order::kContiguous}, random);
    check({dtype, 2, 5001, true, true, true, true, 0.2, dtype}, random);
    check({dtype, 3, 8200, true, true, true, true, 0.2, dtype, Order::kContiguous}, random);
    check({dtype, 2, 9003, true, true, false, false, 0.2, float32}, random);
    check({dtype, 2, 8193, false, true, false, false, 0, dtype}, random);
  }
  // More rows than either grid has groups, so that every group processes several.
  check({bfloat16, 2200, 16, true, true, true, true, 0.1, float32, Order::kContiguous}, random);
  check({float32, 268, 1032, true, true, true, false, 0.1, float32, Order::kContiguous}, random);
  if (kFewCases) return;
  check({bfloat16, 700, 1100, true, true, true, false, 0, float32, Order::kContiguous}, random);
  check({float64, 266, 4098, true, true, true, false, 0, float64, Order::kContiguous}, random);
}

TEST(SimtLayerNorm, MasksAreTheCpusBits) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const int64_t cols : {61, 768, 1100, 8300})
      for (const bool keys : {false, true}) {
        const Case s{dtype, 5, cols, false, false, true, keys, 0.4, dtype};
        DeviceTensors t(s, random);
        for (int64_t i = 0; i < t.x.numel(); ++i)
          if (t.x.at(i) == 0) t.x.set(i, 1);
        Array z(dtype, {s.rows, s.cols}), y(dtype, {s.rows, s.cols});
        Array mean(t.mean.dtype(), {s.rows}), rstd(t.rstd.dtype(), {s.rows});
        layer_norm_forward(Stream{}, t.x.cview(), {}, {}, {}, 1e-5, t.dropout, keys ? t.keys.cview() : ConstView(),
                           z.view(), y.view(), mean.view(), rstd.view(), nullptr);
        t.forward(s, t.z.view());
        t.backward(s, t.z.cview());
        for (int64_t i = 0; i < z.numel(); ++i) {
          ASSERT_EQ(t.z.at(i), z.at(i)) << i;
          ASSERT_EQ(t.dx.at(i) == 0, z.at(i) == 0 || t.dz.at(i) == 0) << i;
        }
      }
}

TEST(SimtLayerNorm, AbsentArguments) {
  std::mt19937_64 random = fresh_random();
  for (const int64_t cols : {72, 1200, 8200})
    for_each_schedule([&] {
      const Case s{float32, 4, cols, true, true, true, false, 0.3, float32};
      DeviceTensors t(s, random);
      t.forward(s, t.z.view());
      const std::vector<double> y = t.y.values(), mean = t.mean.values();
      t.forward(s, View());
      EXPECT_EQ(t.y.values(), y);  // the same without z
      EXPECT_EQ(t.mean.values(), mean);
      t.backward(s, t.z.cview());
      const std::vector<double> dz = t.dz.values(), dgamma = t.dgamma.values(), dbeta = t.dbeta.values();
      std::vector<char> workspace(cuda::layer_norm_backward_workspace(kCuda, s.rows, s.cols, s.dtype));
      for (const int wanted : {0, 1, 2}) {
        for (Array* a : {&t.dz, &t.dgamma, &t.dbeta}) fill_with_random(*a, random, 5, 6);
        const std::vector<double> kept_gamma = t.dgamma.values(), kept_beta = t.dbeta.values();
        cuda::layer_norm_backward(kCuda, t.dy.cview(), t.has_dsum ? t.dsum.cview() : ConstView(), t.z.cview(),
                                  t.gamma.cview(), t.mean.cview(), t.rstd.cview(), t.dropout, {}, workspace.data(),
                                  t.tickets.data(), t.dz.view(), {}, wanted == 1 ? t.dgamma.view() : View(),
                                  wanted == 2 ? t.dbeta.view() : View());
        EXPECT_EQ(t.dz.values(), dz);
        EXPECT_EQ(t.dgamma.values(), wanted == 1 ? dgamma : kept_gamma);
        EXPECT_EQ(t.dbeta.values(), wanted == 2 ? dbeta : kept_beta);
      }
    });
  for_each_schedule([] {
    Array x(float32, {1, 2}), gamma(float32, {2}), y(float32, {1, 2}), mean(float32, {1}), rstd(float32, {1});
    x.set(0, -1), x.set(1, 1), gamma.set(0, 3), gamma.set(1, 5);
    cuda::layer_norm_forward(kCuda, x.cview(), {}, gamma.cview(), {}, 0, {}, {}, {}, y.view(), mean.view(), rstd.view(),
                             nullptr);
    EXPECT_EQ(y.at(0), -3);
    EXPECT_EQ(y.at(1), 5);
    cuda::layer_norm_forward(kCuda, x.cview(), {}, {}, gamma.cview(), 0, {}, {}, {}, y.view(), mean.view(), rstd.view(),
                             nullptr);
    EXPECT_EQ(y.at(0), 2);
    EXPECT_EQ(y.at(1), 6);
  });
}

TEST(SimtLayerNorm, NoColumnsDoNothingNoRowsGiveZeroGradients) {
  std::mt19937_64 random = fresh_random();
  const Case s{float32, 3, 0, true, true, true, false, 0.1, float32};
  DeviceTensors t(s, random);
  expect_same_for_all_schedules({&t.z, &t.y, &t.dz, &t.dx, &t.dgamma, &t.dbeta}, [&] {
    t.forward(s, t.z.view());
    t.backward(s, t.z.cview());
  });
  Array empty(float32, {0, 40}), gamma(float32, {40}), dgamma(float32, {40}), dbeta(float32, {40}), none(float32, {0});
  std::vector<char> workspace(cuda::layer_norm_backward_workspace(kCuda, 0, 40, float32) + 1);
  for_each_schedule([&] {
    cuda::layer_norm_backward(kCuda, empty.cview(), {}, empty.cview(), {}, none.cview(), none.cview(), {}, {},
                              workspace.data(), nullptr, empty.view(), {}, dgamma.view(), dbeta.view());
    EXPECT_EQ(dgamma.values(), std::vector<double>(40, 0));
    EXPECT_EQ(dbeta.values(), std::vector<double>(40, 0));
  });
}

TEST(SimtLayerNorm, ConstantAndLargeRowsAndNan) {
  for (const int64_t cols : {50, 1500, 9000})
    for_each_schedule([&] {
      Array x(float32, {3, cols}), y(float32, {3, cols}), mean(float32, {3}), rstd(float32, {3});
      for (int64_t c = 0; c < cols; ++c)
        x.set(c, 1e4), x.set(cols + c, 1e4 + (c % 2)), x.set(2 * cols + c, c == 7 ? NAN : 1);
      cuda::layer_norm_forward(kCuda, x.cview(), {}, {}, {}, 1e-5, {}, {}, {}, y.view(), mean.view(), rstd.view(),
                               nullptr);
      for (int64_t c = 0; c < cols; ++c) {
        EXPECT_NEAR(y.at(c), 0, 1);  // neither 0 / 0 nor cancellation: the variance is computed around the mean
        EXPECT_NEAR(y.at(cols + c), c % 2 == 0 ? -1 : 1, 1e-2);
        EXPECT_TRUE(std::isnan(y.at(2 * cols + c)));
      }
    });
}

TEST(SimtLayerNorm, KeepsTheSameBitsAtEveryAddress) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {float32, bfloat16})
    for (const int64_t cols : {333, 768, 1800, 8300}) {
      Array a(dtype, {3, cols}), b(dtype, {3, cols}, Order::kMisaligned), ya(dtype, {3, cols}),
          yb(dtype, {3, cols}, Order::kMisaligned);
      Array mean(float32, {3}), rstd(float32, {3});
      fill_with_random(a, random, -1, 1);
      for (int64_t i = 0; i < a.numel(); ++i) b.set(i, a.at(i));
      cuda::layer_norm_forward(kCuda, a.cview(), {}, {}, {}, 1e-5, {}, {}, {}, ya.view(), mean.view(), rstd.view(),
                               nullptr);
      cuda::layer_norm_forward(kCuda, b.cview(), {}, {}, {}, 1e-5, {}, {}, {}, yb.view(), mean.view(), rstd.view(),
                               nullptr);
      EXPECT_EQ(ya.values(), yb.values());
    }
}

TEST(SimtLayerNorm, ColumnSumsTakeALaunchOfTheirOwnOnlyForLongRows) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts launches, which are the same without a sanitizer";
  std::mt19937_64 random = fresh_random();
  const auto launches = [&](int64_t cols, bool last_blocks) {
    const Case s{bfloat16, 300, cols, true, true, true, false, 0, float32, Order::kContiguous};
    DeviceTensors t(s, random);
    t.last_blocks = last_blocks;
    t.forward(s, t.z.view());
    simt::reset_stats();
    t.backward(s, t.z.cview());
    return simt::stats().launches;
  };
  EXPECT_EQ(launches(768, true), 1u);
  EXPECT_EQ(launches(2048, true), 1u);
  EXPECT_EQ(launches(768, false), 2u);
  EXPECT_EQ(launches(2056, true), 2u);
  EXPECT_EQ(launches(8200, true), 2u);
}

TEST(SimtLayerNorm, MovesEachByteOnce) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts bytes, which are the same without a sanitizer";
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t cols : {256, 768}) {
      const Case s{dtype, 640, cols, true, true, true, false, 0.1, float32, Order::kContiguous};
      DeviceTensors t(s, random);
      const double least = 4 * bytes_of(t.x) + 2 * bytes_of(t.gamma) + 2 * bytes_of(t.mean);
      EXPECT_LE(moved_bytes([&] { t.forward(s, t.z.view()); }), 1.1 * least);
    }
}

}  // namespace
}  // namespace tern::kernels::norm_test
