#include "tern/tests/kernels/norm_reference.h"

namespace tern::kernels::norm_test {
namespace {

void check(const Case& s, std::mt19937_64& random) {
  SCOPED_TRACE(describe(s));
  Tensors t(s, random);
  const ConstView keys = s.keys ? t.keys.cview() : ConstView();
  const ConstView gamma = s.affine ? t.gamma.cview() : ConstView(), beta = s.affine ? t.beta.cview() : ConstView();
  expect_same_for_any_threads(t.y, [&] {
    layer_norm_forward(Stream{}, t.x.cview(), s.residual ? t.residual.cview() : ConstView(), gamma, beta, kEps,
                       t.dropout, keys, s.keep_z ? t.z.view() : View(), t.y.view(), t.mean.view(), t.rstd.view(),
                       nullptr);
  });
  if (s.has_backward()) {
    MarkedWorkspace workspace(layer_norm_backward_workspace(Stream{}, s.rows, s.cols, s.dtype));
    expect_same_for_any_threads(t.dgamma, [&] {
      layer_norm_backward(Stream{}, t.dy.cview(), t.has_dsum ? t.dsum.cview() : ConstView(), t.stored_z(s).cview(),
                          gamma, t.mean.cview(), t.rstd.cview(), t.dropout, keys, workspace.data(), nullptr,
                          t.dz.view(), t.dx.view(), t.dgamma.view(), t.dbeta.view());
    });
  }
  Comparison(s, t).run();
}

TEST(LayerNorm, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      const DType wide = is_low_precision(dtype) ? float32 : dtype;
      check({dtype, 5, 768, false, true, false, false, 0, wide}, random);
      check({dtype, 37, 129, true, true, true, true, 0.1, dtype}, random);
      check({dtype, 9, 300, true, true, true, false, 0.5, wide}, random);
      check({dtype, 3, 64, true, false, false, false, 0, dtype}, random);
      check({dtype, 3, 40, false, true, false, true, 0.25, dtype}, random);
      check({dtype, 1, 1, false, true, false, false, 0, dtype}, random);
      check({dtype, 0, 16, true, true, true, false, 0.1, dtype}, random);
      check({dtype, 4, 17, true, true, true, false, 1, dtype}, random);
      check({dtype, 70, 5, true, true, true, false, 0.3, wide}, random);
    }
  });
}

TEST(LayerNorm, OneOfGammaAndBeta) {
  Array x(float32, {1, 2}), gamma(float32, {2}), y(float32, {1, 2}), mean(float32, {1}), rstd(float32, {1});
  x.set(0, -1), x.set(1, 1), gamma.set(0, 3), gamma.set(1, 5);
  for_each_level([&] {
    layer_norm_forward(Stream{}, x.cview(), {}, gamma.cview(), {}, 0, {}, {}, {}, y.view(), mean.view(), rstd.view(),
                       nullptr);
    EXPECT_EQ(y.at(0), -3);
    EXPECT_EQ(y.at(1), 5);
    layer_norm_forward(Stream{}, x.cview(), {}, {}, gamma.cview(), 0, {}, {}, {}, y.view(), mean.view(), rstd.view(),
                       nullptr);
    EXPECT_EQ(y.at(0), 2);
    EXPECT_EQ(y.at(1), 6);
  });
}

TEST(LayerNorm, ConstantAndLargeRowsAndNan) {
  for_each_level([&] {
    Array x(float32, {3, 50}), y(float32, {3, 50}), mean(float32, {3}), rstd(float32, {3});
    for (int64_t c = 0; c < 50; ++c) x.set(c, 1e4), x.set(50 + c, 1e4 + (c % 2)), x.set(100 + c, c == 7 ? NAN : 1);
    layer_norm_forward(Stream{}, x.cview(), {}, {}, {}, 1e-5, {}, {}, {}, y.view(), mean.view(), rstd.view(), nullptr);
    for (int64_t c = 0; c < 50; ++c) {
      EXPECT_EQ(y.at(c), 0);  // neither 0 / 0 nor cancellation: the variance is computed around the mean
      EXPECT_NEAR(y.at(50 + c), c % 2 == 0 ? -1 : 1, 1e-4);
      EXPECT_TRUE(std::isnan(y.at(100 + c)));
    }
  });
}

TEST(LayerNorm, KeepsTheSameBitsAtEveryAddress) {
  std::mt19937_64 random = fresh_random();
  Array a(float32, {3, 333}), b(float32, {3, 333}, Order::kMisaligned), ya(float32, {3, 333}), yb(float32, {3, 333});
  Array mean(float32, {3}), rstd(float32, {3});
  fill_with_random(a, random, -1, 1);
  for (int64_t i = 0; i < a.numel(); ++i) b.set(i, a.at(i));
  for_each_level([&] {
    layer_norm_forward(Stream{}, a.cview(), {}, {}, {}, 1e-5, {}, {}, {}, ya.view(), mean.view(), rstd.view(), nullptr);
    layer_norm_forward(Stream{}, b.cview(), {}, {}, {}, 1e-5, {}, {}, {}, yb.view(), mean.view(), rstd.view(), nullptr);
    for (int64_t i = 0; i < a.numel(); ++i) ASSERT_EQ(ya.at(i), yb.at(i));
  });
}

}  // namespace
}  // namespace tern::kernels::norm_test
