#include "tern/kernels/norm.h"

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

DType statistics_type(DType dtype) { return dtype == float64 ? float64 : float32; }
double unit_of(DType dtype) { return dtype == float64 ? 0x1p-53 : 0x1p-24; }

struct Setup {
  DType dtype;
  int64_t rows, cols;
  bool residual, affine, keep_z, keys;
  double p;
  DType affine_dtype;
};

/// Everything that one call reads and writes.
struct Tensors {
  Array x, residual, gamma, beta, keys, z, y, mean, rstd, dy, dsum, dz, dx, dgamma, dbeta;
  Dropout dropout;
  bool has_dsum = false;
  explicit Tensors(const Setup& s)
      : x(s.dtype, {s.rows, s.cols}, Order::kMisaligned),
        residual(s.dtype, {s.rows, s.cols}),
        gamma(s.affine_dtype, {s.cols}),
        beta(s.affine_dtype, {s.cols}, Order::kMisaligned),
        keys(int64, {s.rows}),
        z(s.dtype, {s.rows, s.cols}),
        y(s.dtype, {s.rows, s.cols}),
        mean(statistics_type(s.dtype), {s.rows}),
        rstd(statistics_type(s.dtype), {s.rows}),
        dy(s.dtype, {s.rows, s.cols}),
        dsum(s.dtype, {s.rows, s.cols}),
        dz(s.dtype, {s.rows, s.cols}),
        dx(s.dtype, {s.rows, s.cols}, Order::kMisaligned),
        dgamma(s.affine_dtype, {s.cols}),
        dbeta(s.affine_dtype, {s.cols}),
        dropout{s.p, {123, 45}} {}
  double factor(const Setup& s, int64_t r, int64_t c) const {
    if (s.p == 0) return 1;
    if (s.p >= 1) return 0;
    const auto row = static_cast<uint64_t>(s.keys ? static_cast<int64_t>(keys.at(r)) : r);
    const bool kept = dropout_keeps(philox_key(dropout.key), row, 0, static_cast<uint32_t>(c), dropout_threshold(s.p));
    return kept ? 1 / (1 - s.p) : 0;
  }
};

void check(const Setup& s, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.cols << "] residual " << s.residual
                                  << " affine " << s.affine << " " << name_of(s.affine_dtype) << " z " << s.keep_z
                                  << " p " << s.p << " keys " << s.keys);
  Tensors t(s);
  for (Array* a : {&t.x, &t.residual, &t.gamma, &t.beta, &t.dy, &t.dsum}) fill_with_random(*a, random, -2, 3);
  t.has_dsum = random() % 2 == 0;
  for (int64_t r = 0; r < s.rows; ++r) t.keys.set(r, static_cast<double>((r * 77 + 5) << 33));
  const double eps = 1e-5;
  const ConstView keys = s.keys ? t.keys.cview() : ConstView();
  expect_same_for_any_threads(t.y, [&] {
    layer_norm_forward(Stream{}, t.x.cview(), s.residual ? t.residual.cview() : ConstView(),
                       s.affine ? t.gamma.cview() : ConstView(), s.affine ? t.beta.cview() : ConstView(), eps,
                       t.dropout, keys, s.keep_z ? t.z.view() : View(), t.y.view(), t.mean.view(), t.rstd.view(),
                       nullptr);
  });
  const bool has_z = s.keep_z;
  const bool z_is_x = !s.residual && s.p == 0;
  const Array& z = has_z ? t.z : t.x;
  const bool backward = has_z || z_is_x;
  if (backward) {
    std::vector<char> workspace(layer_norm_backward_workspace(Stream{}, s.rows, s.cols, s.dtype) + 64);
    expect_same_for_any_threads(t.dgamma, [&] {
      layer_norm_backward(Stream{}, t.dy.cview(), t.has_dsum ? t.dsum.cview() : ConstView(), z.cview(),
                          s.affine ? t.gamma.cview() : ConstView(), t.mean.cview(), t.rstd.cview(), t.dropout, keys,
                          workspace.data(), nullptr, t.dz.view(), t.dx.view(), t.dgamma.view(), t.dbeta.view());
    });
  }

  const double unit = unit_of(s.dtype), round = epsilon_of(s.dtype), n = static_cast<double>(s.cols);
  std::vector<double> dgamma(s.cols, 0), dbeta(s.cols, 0);
  for (int64_t r = 0; r < s.rows; ++r) {
    std::vector<double> row(s.cols);
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < s.cols; ++c) {
      const int64_t i = r * s.cols + c;
      row[c] = (s.residual ? t.residual.at(i) : 0) + t.x.at(i) * t.factor(s, r, c);
      if (has_z) {
        ASSERT_LE(std::fabs(t.z.at(i) - row[c]), round * std::fabs(row[c]) * 1.01 + 8 * unit)
            << "z at " << r << ", " << c;
        row[c] = t.z.at(i);  // statistics are those of the rounded z
      } else if (!z_is_x) {
        row[c] = round_to(s.dtype, row[c]);
      }
      mean += row[c] / n;
    }
    for (double v : row) variance += (v - mean) * (v - mean) / n;
    const double rstd = 1 / std::sqrt(variance + eps);
    // One rounding to 16 bits may fall on the other side when z is not kept: widen by what one of n elements moves.
    const double flips = has_z || z_is_x ? 0 : 3 * round;
    ASSERT_LE(std::fabs(t.mean.at(r) - mean), 40 * unit + flips);
    ASSERT_TRUE(near(t.rstd.at(r), rstd, 100 * unit + flips, 0) || s.cols == 1) << t.rstd.at(r) << " for " << rstd;
    double gradient = 0, product = 0;
    for (int64_t c = 0; c < s.cols; ++c) {
      const int64_t i = r * s.cols + c;
      const double hat = (row[c] - mean) * rstd, weight = s.affine ? t.gamma.at(c) : 1;
      const double expected = hat * weight + (s.affine ? t.beta.at(c) : 0);
      // With few columns rstd may be large: an error of unit in z - mean grows by it.
      const double slack = (60 * unit + 4 * flips) * (1 + rstd) * (1 + std::fabs(weight)) * (1 + std::fabs(hat));
      ASSERT_LE(std::fabs(t.y.at(i) - expected), round * std::fabs(expected) * 1.01 + slack)
          << "y at " << r << ", " << c;
      const double d = t.dy.at(i) * weight;
      gradient += d / n;
      product += d * hat / n;
      dgamma[c] += t.dy.at(i) * hat;
      dbeta[c] += t.dy.at(i);
    }
    if (!backward) continue;
    for (int64_t c = 0; c < s.cols; ++c) {
      const int64_t i = r * s.cols + c;
      const double hat = (row[c] - mean) * rstd, weight = s.affine ? t.gamma.at(c) : 1;
      const double expected = rstd * (t.dy.at(i) * weight - gradient - hat * product) + (t.has_dsum ? t.dsum.at(i) : 0);
      const double slack = 400 * unit * (1 + rstd) * (1 + rstd) * 10;
      ASSERT_LE(std::fabs(t.dz.at(i) - expected), round * std::fabs(expected) * 1.01 + slack)
          << "dz at " << r << ", " << c;
      const double through = expected * t.factor(s, r, c);
      ASSERT_LE(std::fabs(t.dx.at(i) - through),
                2.1 * round * std::fabs(through) + 2 * slack / (s.p < 1 ? 1 - s.p : 1));
    }
  }
  if (!backward) return;
  for (int64_t c = 0; c < s.cols; ++c) {
    const double slack = 40 * unit * (10 + static_cast<double>(s.rows)) * (s.cols < 8 ? 400 : 1);
    const double affine_round = epsilon_of(s.affine_dtype) * 1.01;
    ASSERT_LE(std::fabs(t.dgamma.at(c) - dgamma[c]), affine_round * std::fabs(dgamma[c]) + slack);
    ASSERT_LE(std::fabs(t.dbeta.at(c) - dbeta[c]), affine_round * std::fabs(dbeta[c]) + slack);
  }
}

TEST(LayerNorm, AgreesWithDouble) {
  std::mt19937_64 random(3);
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
      EXPECT_EQ(y.at(c), 0);  // not 0 / 0, and no cancellation: the variance is taken around the mean
      EXPECT_NEAR(y.at(50 + c), c % 2 == 0 ? -1 : 1, 1e-4);
      EXPECT_TRUE(std::isnan(y.at(100 + c)));
    }
  });
}

TEST(LayerNorm, KeepsTheSameBitsAtEveryAddress) {
  std::mt19937_64 random(5);
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
}  // namespace tern::kernels
