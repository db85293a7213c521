#pragma once
// The contract of layer and RMS normalisation: cases, the definition, and error bounds of the results.

#include "tern/kernels/norm.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::norm_test {

inline constexpr double kEps = 1e-5;

struct Case {
  DType dtype;
  int64_t rows, cols;
  bool residual, affine, keep_z, keys;
  double p;
  DType affine_dtype;
  Order order = Order::kMisaligned;
  bool rms = false;  // without mean

  bool z_is_x() const { return !residual && p == 0; }
  bool has_backward() const { return keep_z || z_is_x(); }
};

inline std::string describe(const Case& s) {
  return (testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.cols << "] residual " << s.residual
                             << " affine " << s.affine << " " << name_of(s.affine_dtype) << " z " << s.keep_z << " p "
                             << s.p << " keys " << s.keys << " rms " << s.rms)
      .GetString();
}

/// Every kind of argument, in every dtype, and both sides of the bounds between the shapes of CUDA's kernels: numbers
/// of columns in a thread's registers, and rows of a warp, of a block, and longer ones.
inline std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const DType dtype : kFloatTypes) {
    const DType wide = is_low_precision(dtype) ? float32 : dtype;
    const Order aligned = Order::kContiguous;
    cases.push_back({dtype, 5, 768, false, true, false, false, 0, wide});
    cases.push_back({dtype, 37, 129, true, true, true, true, 0.1, dtype});
    cases.push_back({dtype, 9, 300, true, true, true, false, 0.5, wide});
    cases.push_back({dtype, 3, 64, true, false, false, false, 0, dtype});
    cases.push_back({dtype, 150, 64, true, false, false, false, 0, dtype});
    cases.push_back({dtype, 3, 40, false, true, false, true, 0.25, dtype});
    cases.push_back({dtype, 1, 1, false, true, false, false, 0, dtype});
    cases.push_back({dtype, 0, 16, true, true, true, false, 0.1, dtype});
    cases.push_back({dtype, 4, 17, true, true, true, false, 1, dtype});
    cases.push_back({dtype, 70, 5, true, true, true, false, 0.3, wide});
    cases.push_back({dtype, 200, 8, true, true, true, true, 0.3, dtype, aligned});
    for (const int64_t cols : {256, 512, 520, 776, 1024})
      cases.push_back({dtype, kFewCases ? 5 : 20, cols, true, true, true, cols % 3 == 0, 0.1, dtype, aligned});
    for (const int64_t cols : {1025, 2056, 4096, 6144, 8192})
      cases.push_back({dtype, 3, cols, true, true, true, false, 0.2, float32, aligned});
    cases.push_back({dtype, 2, 5001, true, true, true, true, 0.2, dtype});
    cases.push_back({dtype, 3, 8200, true, true, true, true, 0.2, dtype, aligned});
    cases.push_back({dtype, 2, 9003, true, true, false, false, 0.2, float32});
    cases.push_back({dtype, 2, 8193, false, true, false, false, 0, dtype});
    for (const int64_t cols : {1, 129, 776, 2056, 8195})
      cases.push_back(
          {dtype, cols > 2000 ? 2 : 19, cols, false, cols != 776, false, false, 0, dtype, Order::kMisaligned, true});
    cases.push_back({dtype, 3, 257, true, true, true, true, 0.2, wide, aligned, true});
  }
  if (target().is_cpu()) return cases;
  // More rows than either grid of CUDA's kernels has groups, so that every group processes several.
  cases.push_back({bfloat16, 2200, 16, true, true, true, true, 0.1, float32, Order::kContiguous});
  cases.push_back({float32, 268, 1032, true, true, true, false, 0.1, float32, Order::kContiguous});
  if (kFewCases) return cases;
  cases.push_back({bfloat16, 700, 1100, true, true, true, false, 0, float32, Order::kContiguous});
  cases.push_back({float64, 266, 4098, true, true, true, false, 0, float64, Order::kContiguous});
  return cases;
}

/// All tensors of one call.
struct Tensors {
  Array x, residual, gamma, beta, keys, z, y, mean, rstd, dy, dsum, dz, dx, dgamma, dbeta;
  std::vector<uint32_t> tickets = std::vector<uint32_t>(kLayerNormTickets, 0x5a5a5a5a);
  Dropout dropout;
  bool has_dsum;
  bool last_blocks;  // of CUDA's kernel sum the columns; otherwise a second launch does
  Tensors(const Case& s, std::mt19937_64& random)
      : x(s.dtype, {s.rows, s.cols}, s.order),
        residual(s.dtype, {s.rows, s.cols}),
        gamma(s.affine_dtype, {s.cols}),
        beta(s.affine_dtype, {s.cols}, s.order),
        keys(int64, {s.rows}),
        z(s.dtype, {s.rows, s.cols}),
        y(s.dtype, {s.rows, s.cols}),
        mean(s.dtype == float64 ? float64 : float32, {s.rows}),
        rstd(s.dtype == float64 ? float64 : float32, {s.rows}),
        dy(s.dtype, {s.rows, s.cols}),
        dsum(s.dtype, {s.rows, s.cols}, s.order),
        dz(s.dtype, {s.rows, s.cols}),
        dx(s.dtype, {s.rows, s.cols}, s.order),
        dgamma(s.affine_dtype, {s.cols}),
        dbeta(s.affine_dtype, {s.cols}),
        dropout{s.p, key_with_base(random(), 45)},
        has_dsum(random() % 2 == 0),
        last_blocks(random() % 4 != 0) {
    for (Array* a : {&x, &residual, &gamma, &beta, &dy, &dsum}) fill_with_random(*a, random, -2, 3);
    for (int64_t r = 0; r < s.rows; ++r) keys.set(r, static_cast<double>((r * 77 + 5) << 33));
  }
  Dropout dropout_on(Call& on) const { return {dropout.p, on.key(dropout.key)}; }
  void forward(Call& on, const Case& s, bool with_z) {
    layer_norm_forward(on.stream(), on(x), on.when(s.residual, residual), on.when(s.affine, gamma),
                       on.when(s.affine, beta), kEps, dropout_on(on), on.when(s.keys, keys), on.when(with_z, z), on(y),
                       on.when(!s.rms, mean), on(rstd), on.memory(tickets.data(), kLayerNormTickets));
  }
  void forward(Call& on, const Case& s) { forward(on, s, s.keep_z); }
  void backward(Call& on, const Case& s, bool with_dx = true, bool with_dgamma = true, bool with_dbeta = true) {
    void* const workspace = on.workspace(layer_norm_backward_workspace(on.stream(), s.rows, s.cols, s.dtype));
    layer_norm_backward(on.stream(), on(dy), on.when(has_dsum, dsum), on(s.keep_z ? z : x), on.when(s.affine, gamma),
                        on.when(!s.rms, mean), on(rstd), dropout_on(on), on.when(s.keys, keys), workspace,
                        last_blocks ? on.memory(tickets.data(), kLayerNormTickets) : nullptr, on(dz),
                        on.when(with_dx, dx), on.when(with_dgamma, dgamma), on.when(with_dbeta, dbeta));
  }
  const Array& stored_z(const Case& s) const { return s.keep_z ? z : x; }
  double factor(const Case& s, int64_t r, int64_t c) const {
    if (s.p == 0) return 1;
    if (s.p >= 1) return 0;
    const auto row = static_cast<uint64_t>(s.keys ? static_cast<int64_t>(keys.at(r)) : r);
    const bool kept = dropout_keeps(philox_key(dropout.key), row, 0, static_cast<uint32_t>(c), dropout_threshold(s.p));
    return kept ? 1 / (1 - s.p) : 0;
  }
};

/// Compares the results in `t` with the definition in long double. The bounds are those of rounding, step by step, plus
/// a tenth for second-order terms: `unit` is that of the compute type, `round` that of the rows' dtype. The error of a
/// sum of n terms is unit * sum|terms| times the length of its longest chain of additions: at most n, and for many
/// terms about n / 16, since there are 16 or more partial sums. Backward is compared as a function of its inputs: the
/// stored z, mean, rstd and, for dx, dz.
class Comparison {
 public:
  Comparison(const Case& s, const Tensors& t)
      : s_(s),
        t_(t),
        unit_(s.dtype == float64 ? 0x1p-53 : 0x1p-24),
        round_(epsilon_of(s.dtype)),
        tiny_(s.dtype == float16   ? 0x1p-25
              : s.dtype == float64 ? 0x1p-1000
                                   : 0x1p-126),
        dgamma_(s.cols),
        dbeta_(s.cols) {}

  void run() {
    for (int64_t r = 0; r < s_.rows && !testing::Test::HasFatalFailure(); ++r) {
      forward(r);
      if (s_.has_backward()) backward(r);
    }
    if (s_.has_backward()) columns();
  }

 private:
  using Real = long double;
  struct Sum {  // a sum, the sum of magnitudes, and the sum of the terms' errors
    Real value = 0, magnitude = 0, error = 0;
    void add(Real term, Real term_error = 0) {
      value += term;
      magnitude += std::fabs(term);
      error += term_error;
    }
  };
  Real error_of(const Sum& sum, int64_t terms) const {
    const auto n = static_cast<Real>(terms);
    return sum.error + unit_ * (std::min(n, n / 16 + 16) + 3) * sum.magnitude;
  }
  void expect(const char* what, int64_t at, double got, Real expected, Real bound) const {
    bound = static_cast<Real>(1.1) * bound + tiny_;
    ASSERT_LE(std::fabs(got - expected), bound)
        << what << "[" << at << "]: " << got << " for " << static_cast<double>(expected);
  }

  void forward(int64_t r) {
    const auto n = static_cast<Real>(s_.cols);
    std::vector<Real> row(s_.cols), error(s_.cols, 0);
    Sum total, squares;
    for (int64_t c = 0; c < s_.cols; ++c) {
      const int64_t i = r * s_.cols + c;
      const Real residual = s_.residual ? t_.residual.at(i) : 0,
                 through = t_.x.at(i) * static_cast<Real>(t_.factor(s_, r, c));
      const Real sum = residual + through, computed = unit_ * (std::fabs(residual) + 3 * std::fabs(through));
      if (s_.keep_z) {  // statistics are those of the rounded z
        ASSERT_NO_FATAL_FAILURE(expect("z", i, t_.z.at(i), sum, computed + round_ * std::fabs(sum)));
        row[c] = t_.z.at(i);
      } else if (s_.z_is_x()) {
        row[c] = t_.x.at(i);
      } else {  // where the sum is between two values of the dtype, either is accepted
        row[c] = round_to(s_.dtype, static_cast<double>(sum));
        for (const Real other : {sum - computed, sum + computed})
          error[c] = std::max(error[c], std::fabs(round_to(s_.dtype, static_cast<double>(other)) - row[c]));
      }
      total.add(row[c], error[c]);
    }
    const Real mean = s_.rms ? 0 : total.value / n;
    const Real mean_error = s_.rms ? 0 : error_of(total, s_.cols) / n + unit_ * std::fabs(mean);
    ASSERT_NO_FATAL_FAILURE(expect("mean", r, s_.rms ? 0 : t_.mean.at(r), mean, mean_error));
    // An error of the mean has a second-order effect here, because deviations sum to zero.
    for (int64_t c = 0; c < s_.cols; ++c) {
      const Real deviation = row[c] - mean;
      squares.add(deviation * deviation, 2 * std::fabs(deviation) * (error[c] + 2 * unit_ * std::fabs(deviation)));
    }
    const Real variance = squares.value / n, eps = static_cast<Real>(kEps);
    const Real variance_error =
        error_of(squares, s_.cols) / n + 4 * mean_error * mean_error + unit_ * (2 * variance + eps);
    const Real rstd = 1 / std::sqrt(variance + eps);
    const Real relative =
        std::sqrt((variance + eps) / (std::max<Real>(variance - variance_error, 0) + eps)) - 1 + 3 * unit_;
    ASSERT_NO_FATAL_FAILURE(expect("rstd", r, t_.rstd.at(r), rstd, relative * rstd));
    for (int64_t c = 0; c < s_.cols; ++c) {
      const int64_t i = r * s_.cols + c;
      const Real deviation = row[c] - mean, hat = deviation * rstd, weight = s_.affine ? t_.gamma.at(c) : 1;
      const Real expected = hat * weight + (s_.affine ? t_.beta.at(c) : 0);
      const Real hat_error = (error[c] + mean_error) * rstd * (1 + relative) + std::fabs(hat) * (relative + 2 * unit_);
      ASSERT_NO_FATAL_FAILURE(expect(
          "y", i, t_.y.at(i), expected,
          std::fabs(weight) * hat_error + unit_ * std::fabs(hat * weight) + (unit_ + round_) * std::fabs(expected)));
    }
  }

  void backward(int64_t r) {
    const auto n = static_cast<Real>(s_.cols);
    const Array& z = t_.stored_z(s_);
    const Real mean = s_.rms ? 0 : t_.mean.at(r), rstd = t_.rstd.at(r);
    const auto hat_at = [&](int64_t c) { return (z.at(r * s_.cols + c) - mean) * rstd; };
    const auto weight_at = [&](int64_t c) { return s_.affine ? static_cast<Real>(t_.gamma.at(c)) : Real(1); };
    Sum gradient, product;
    for (int64_t c = 0; c < s_.cols; ++c) {
      const Real dy = t_.dy.at(r * s_.cols + c), hat = hat_at(c), direct = dy * weight_at(c);
      gradient.add(direct, unit_ * std::fabs(direct));
      product.add(direct * hat, 4 * unit_ * std::fabs(direct * hat));
      dgamma_[c].add(dy * hat, 3 * unit_ * std::fabs(dy * hat));
      dbeta_[c].add(dy);
    }
    const Real a = s_.rms ? 0 : gradient.value / n;
    const Real a_error = s_.rms ? 0 : error_of(gradient, s_.cols) / n + unit_ * std::fabs(a);
    const Real b = product.value / n, b_error = error_of(product, s_.cols) / n + unit_ * std::fabs(b);
    for (int64_t c = 0; c < s_.cols; ++c) {
      const int64_t i = r * s_.cols + c;
      const Real hat = hat_at(c), direct = t_.dy.at(i) * weight_at(c), dsum = t_.has_dsum ? t_.dsum.at(i) : 0;
      const Real inner = std::fabs(direct) + std::fabs(a) + std::fabs(hat * b);
      const Real expected = rstd * (direct - a - hat * b) + dsum;
      ASSERT_NO_FATAL_FAILURE(expect("dz", i, t_.dz.at(i), expected,
                                     rstd * (a_error + std::fabs(hat) * b_error + 6 * unit_ * inner) +
                                         unit_ * std::fabs(dsum) + (unit_ + round_) * std::fabs(expected)));
      const Real through = t_.dz.at(i) * static_cast<Real>(t_.factor(s_, r, c));
      ASSERT_NO_FATAL_FAILURE(expect("dx", i, t_.dx.at(i), through, (round_ + 3 * unit_) * std::fabs(through)));
    }
  }

  void columns() const {
    const double round = epsilon_of(s_.affine_dtype) + unit_;
    for (int64_t c = 0; c < s_.cols; ++c) {
      ASSERT_NO_FATAL_FAILURE(expect("dgamma", c, t_.dgamma.at(c), dgamma_[c].value,
                                     error_of(dgamma_[c], s_.rows) + round * std::fabs(dgamma_[c].value)));
      ASSERT_NO_FATAL_FAILURE(expect("dbeta", c, t_.dbeta.at(c), dbeta_[c].value,
                                     error_of(dbeta_[c], s_.rows) + round * std::fabs(dbeta_[c].value)));
    }
  }

  const Case& s_;
  const Tensors& t_;
  const double unit_, round_, tiny_;
  std::vector<Sum> dgamma_, dbeta_;
};

}  // namespace tern::kernels::norm_test
