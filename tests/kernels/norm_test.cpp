#include "tern/tests/kernels/contracts/norm.h"

namespace tern::kernels::norm_test {
namespace {

class LayerNorm : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, LayerNorm, testing::ValuesIn(all_targets()), name_of_target);

void check(const Case& s, std::mt19937_64& random) {
  if (!takes_case(s.rows * s.cols, random)) return;
  SCOPED_TRACE(describe(s));
  Tensors t(s, random);
  expect_same_in_every_run({&t.z, &t.y, &t.mean, &t.rstd}, [&](Call& on) { t.forward(on, s); });
  if (s.has_backward()) {
    expect_same_in_every_run({&t.dz, &t.dx, &t.dgamma, &t.dbeta}, [&](Call& on) { t.backward(on, s); });
    if (!target().is_cpu() && s.rows > 0 && s.cols > 0) {
      EXPECT_EQ(t.tickets, std::vector<uint32_t>(kLayerNormTickets, 0));
    }
  }
  Comparison(s, t).run();
}

TEST_P(LayerNorm, AgreesWithDouble) {
  for (const Case& s : cases()) check(s, random);
}

TEST_P(LayerNorm, MasksAreTheCpusBits) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t cols : {61, 768, 1100, 8300})
      for (const bool keys : {false, true}) {
        const Case s{dtype, 5, cols, false, false, true, keys, 0.4, dtype};
        Tensors t(s, random);
        for (int64_t i = 0; i < t.x.numel(); ++i)
          if (t.x.at(i) == 0) t.x.set(i, 1);
        Array z(dtype, {s.rows, s.cols}), y(dtype, {s.rows, s.cols});
        Array mean(t.mean.dtype(), {s.rows}), rstd(t.rstd.dtype(), {s.rows});
        layer_norm_forward(Stream{}, t.x.cview(), {}, {}, {}, 1e-5, t.dropout, keys ? t.keys.cview() : ConstView(),
                           z.view(), y.view(), mean.view(), rstd.view(), nullptr);
        run_kernel([&](Call& on) {
          t.forward(on, s);
          t.backward(on, s);
        });
        for (int64_t i = 0; i < z.numel(); ++i) {
          ASSERT_EQ(t.z.at(i), z.at(i)) << i;
          ASSERT_EQ(t.dx.at(i) == 0, z.at(i) == 0 || t.dz.at(i) == 0) << i;
        }
      }
}

TEST_P(LayerNorm, AbsentArguments) {
  for (const int64_t cols : {72, 1200, 8200})
    for_each_run([&] {
      const Case s{float32, 4, cols, true, true, true, false, 0.3, float32};
      Tensors t(s, random);
      run_kernel([&](Call& on) { t.forward(on, s); });
      const std::vector<double> y = t.y.values(), mean = t.mean.values();
      run_kernel([&](Call& on) { t.forward(on, s, false); });
      EXPECT_EQ(t.y.values(), y);  // the same without z
      EXPECT_EQ(t.mean.values(), mean);
      run_kernel([&](Call& on) { t.backward(on, s); });
      const std::vector<double> dz = t.dz.values(), dgamma = t.dgamma.values(), dbeta = t.dbeta.values();
      for (const int wanted : {0, 1, 2}) {
        for (Array* a : {&t.dz, &t.dgamma, &t.dbeta}) fill_with_random(*a, random, 5, 6);
        const std::vector<double> kept_gamma = t.dgamma.values(), kept_beta = t.dbeta.values();
        run_kernel([&](Call& on) { t.backward(on, s, false, wanted == 1, wanted == 2); });
        EXPECT_EQ(t.dz.values(), dz);
        EXPECT_EQ(t.dgamma.values(), wanted == 1 ? dgamma : kept_gamma);
        EXPECT_EQ(t.dbeta.values(), wanted == 2 ? dbeta : kept_beta);
      }
    });
}

/// The norm of x[rows, cols] alone.
void normalise(Array& x, const Array* gamma, const Array* beta, double eps, Array& y) {
  Array mean(float32, {x.shape()[0]}), rstd(float32, {x.shape()[0]});
  run_kernel([&](Call& on) {
    layer_norm_forward(on.stream(), on(x), {}, gamma ? on(*gamma) : ConstView(), beta ? on(*beta) : ConstView(), eps,
                       {}, {}, {}, on(y), on(mean), on(rstd), nullptr);
  });
}

TEST_P(LayerNorm, OneOfGammaAndBeta) {
  Array x(float32, {1, 2}), weight(float32, {2}), y(float32, {1, 2});
  x.set({-1, 1});
  weight.set({3, 5});
  for_each_run([&] {
    normalise(x, &weight, nullptr, 0, y);
    EXPECT_EQ(y.values(), (std::vector<double>{-3, 5}));
    normalise(x, nullptr, &weight, 0, y);
    EXPECT_EQ(y.values(), (std::vector<double>{2, 6}));
  });
}

TEST_P(LayerNorm, NoColumnsDoNothingNoRowsGiveZeroGradients) {
  const Case s{float32, 3, 0, true, true, true, false, 0.1, float32};
  Tensors t(s, random);
  expect_same_in_every_run({&t.z, &t.y, &t.dz, &t.dx, &t.dgamma, &t.dbeta}, [&](Call& on) {
    t.forward(on, s);
    t.backward(on, s);
  });
  Array empty(float32, {0, 40}), dgamma(float32, {40}), dbeta(float32, {40}), none(float32, {0});
  for_each_run([&] {
    run_kernel([&](Call& on) {
      layer_norm_backward(on.stream(), on(empty), {}, on(empty), {}, on(none), on(none), {}, {},
                          on.workspace(layer_norm_backward_workspace(on.stream(), 0, 40, float32) + 1), nullptr,
                          on(empty), {}, on(dgamma), on(dbeta));
    });
    EXPECT_EQ(dgamma.values(), std::vector<double>(40, 0));
    EXPECT_EQ(dbeta.values(), std::vector<double>(40, 0));
  });
}

TEST_P(LayerNorm, ConstantAndLargeRowsAndNan) {
  for (const int64_t cols : {50, 1500, 9000})
    for_each_run([&] {
      Array x(float32, {3, cols}), y(float32, {3, cols});
      for (int64_t c = 0; c < cols; ++c) {
        x.set(c, 1e4);
        x.set(cols + c, 1e4 + (c % 2));
        x.set(2 * cols + c, c == 7 ? NAN : 1);
      }
      normalise(x, nullptr, nullptr, 1e-5, y);
      for (int64_t c = 0; c < cols; ++c) {
        EXPECT_EQ(y.at(c), 0);  // neither 0 / 0 nor cancellation: the variance is computed around the mean
        // A sum of 9,000 numbers above 10,000 is rounded.
        EXPECT_NEAR(y.at(cols + c), c % 2 == 0 ? -1 : 1, cols < 9000 ? 1e-4 : 1e-2);
        EXPECT_TRUE(std::isnan(y.at(2 * cols + c)));
      }
    });
}

TEST_P(LayerNorm, KeepsTheSameBitsAtEveryAddress) {
  for (const DType dtype : {float32, bfloat16})
    for (const int64_t cols : {333, 768, 1800, 8300}) {
      const Shape shape = {3, cols};
      Array a = random_array(random, dtype, shape, -1, 1), b(dtype, shape, Order::kMisaligned), ya(dtype, shape),
            yb(dtype, shape, Order::kMisaligned);
      b.set(a.values());
      normalise(a, nullptr, nullptr, 1e-5, ya);
      normalise(b, nullptr, nullptr, 1e-5, yb);
      EXPECT_EQ(ya.values(), yb.values());
    }
}

// --- counted on the emulator ---

class LayerNormTraffic : public LayerNorm {};
INSTANTIATE_TEST_SUITE_P(, LayerNormTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayerNormTraffic);

TEST_P(LayerNormTraffic, ColumnSumsTakeASecondLaunchOnlyForLongRows) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts launches, which are the same without a sanitizer";
  const auto launches = [&](int64_t cols, bool last_blocks) {
    const Case s{bfloat16, 300, cols, true, true, true, false, 0, float32, Order::kContiguous};
    Tensors t(s, random);
    t.last_blocks = last_blocks;
    run_kernel([&](Call& on) { t.forward(on, s); });
    return traffic_of([&](Call& on) { t.backward(on, s); }).launches;
  };
  EXPECT_EQ(launches(768, true), 1u);
  EXPECT_EQ(launches(2048, true), 1u);
  EXPECT_EQ(launches(768, false), 2u);
  EXPECT_EQ(launches(2056, true), 2u);
  EXPECT_EQ(launches(8200, true), 2u);
}

TEST_P(LayerNormTraffic, MovesEachByteOnce) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts bytes, which are the same without a sanitizer";
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t cols : {256, 768}) {
      const Case s{dtype, 640, cols, true, true, true, false, 0.1, float32, Order::kContiguous};
      Tensors t(s, random);
      const double min_bytes = 4 * bytes_of(t.x) + 2 * bytes_of(t.gamma) + 2 * bytes_of(t.mean);
      EXPECT_LE(traffic_of([&](Call& on) { t.forward(on, s); }).bytes, 1.1 * min_bytes);
    }
}

}  // namespace
}  // namespace tern::kernels::norm_test
