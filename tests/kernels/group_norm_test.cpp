// Group norm and its gradients against plain loops, on every target.

#include "tern/kernels/group_norm.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class GroupNormKernel : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, GroupNormKernel, testing::ValuesIn(all_targets()), name_of_target);

std::vector<GroupNormShape> cases() {
  return {{1, 1, 1, 1},    {2, 6, 35, 3},  {3, 64, 9, 8},   {2, 40, 300, 1}, {2, 33, 17, 33}, {1, 70, 5, 2},
          {2, 96, 130, 4}, {2, 5, 700, 1}, {3, 32, 64, 32}, {1, 3, 9000, 3}, {0, 4, 3, 2}};
}

/// The reference of one pass, in double precision.
struct Reference {
  const GroupNormShape& s;
  int64_t place(int64_t n, int64_t c, int64_t p) const {
    return s.channels_last ? (n * s.pixels + p) * s.channels + c : (n * s.channels + c) * s.pixels + p;
  }
  /// body(place, channel) for each element of a group.
  template <class Body>
  void for_group(int64_t n, int64_t g, const Body& body) const {
    for (int64_t c = g * s.members(); c < (g + 1) * s.members(); ++c)
      for (int64_t p = 0; p < s.pixels; ++p) body(place(n, c, p), c);
  }
  std::pair<double, double> statistics(const Array& x, int64_t n, int64_t g, double eps) const {
    const double count = double(s.group_size());
    double mean = 0, squares = 0;
    for_group(n, g, [&](int64_t i, int64_t) { mean += x.at(i) / count; });
    for_group(n, g, [&](int64_t i, int64_t) { squares += (x.at(i) - mean) * (x.at(i) - mean) / count; });
    return {mean, 1 / std::sqrt(squares + eps)};
  }
};

struct Inputs {
  Array x, dy, gamma, beta;
  bool with_gamma, with_beta;
};

void check_forward(const GroupNormShape& s, const Inputs& in, double eps, const Array& y, const Array& mean,
                   const Array& rstd) {
  const Reference reference{s};
  const double unit = in.x.dtype() == float64 ? 1e-14 : 2e-6;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t g = 0; g < s.groups; ++g) {
      const auto [center, factor] = reference.statistics(in.x, n, g, eps);
      ASSERT_NEAR(mean.at(n * s.groups + g), center, 4 * unit);
      ASSERT_NEAR(rstd.at(n * s.groups + g), factor, 4 * unit * factor);
      reference.for_group(n, g, [&, center = center, factor = factor](int64_t i, int64_t c) {
        const double normed = (in.x.at(i) - center) * factor * (in.with_gamma ? in.gamma.at(c) : 1);
        const double expected = normed + (in.with_beta ? in.beta.at(c) : 0);
        ASSERT_TRUE(near(y.at(i), expected, 1.01 * epsilon_of(y.dtype()), 10 * unit * (1 + std::abs(normed)) * factor))
            << i;
      });
    }
}

void check_backward(const GroupNormShape& s, const Inputs& in, double eps, const Array& dx, const Array& dgamma,
                    const Array& dbeta) {
  const Reference reference{s};
  const double unit = in.x.dtype() == float64 ? 1e-14 : 2e-6;
  std::vector<double> weights(static_cast<size_t>(s.channels), 0), biases = weights, sizes = weights;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t g = 0; g < s.groups; ++g) {
      const auto [center, factor] = reference.statistics(in.x, n, g, eps);
      double direct = 0, product = 0;
      const auto normed = [&, center = center, factor = factor](int64_t i) { return (in.x.at(i) - center) * factor; };
      const auto weighted = [&](int64_t i, int64_t c) { return in.dy.at(i) * (in.with_gamma ? in.gamma.at(c) : 1); };
      reference.for_group(n, g, [&](int64_t i, int64_t c) {
        direct += weighted(i, c) / double(s.group_size());
        product += weighted(i, c) * normed(i) / double(s.group_size());
        weights[size_t(c)] += in.dy.at(i) * normed(i);
        biases[size_t(c)] += in.dy.at(i);
        sizes[size_t(c)] += std::abs(in.dy.at(i)) * (1 + std::abs(normed(i)));
      });
      reference.for_group(n, g, [&, factor = factor](int64_t i, int64_t c) {
        const double expected = factor * (weighted(i, c) - direct - normed(i) * product);
        ASSERT_TRUE(near(dx.at(i), expected, 1.01 * epsilon_of(dx.dtype()), 30 * unit * factor * (1 + factor))) << i;
      });
    }
  for (int64_t c = 0; c < s.channels; ++c) {
    const double bound = 4 * unit * (1 + sizes[size_t(c)]);
    ASSERT_TRUE(near(dgamma.at(c), weights[size_t(c)], 1.01 * epsilon_of(dgamma.dtype()), bound)) << c;
    ASSERT_TRUE(near(dbeta.at(c), biases[size_t(c)], 1.01 * epsilon_of(dbeta.dtype()), bound)) << c;
  }
}

TEST_P(GroupNormKernel, BothPasses) {
  for (GroupNormShape s : cases())
    for (const DType dtype : kFloatTypes)
      for (const bool last : {false, true}) {
        if (dtype != float32 && random() % 2 != 0) continue;
        if (!target().is_cpu() && random() % 3 != 0) continue;
        s.channels_last = last;
        SCOPED_TRACE(testing::Message() << s.batch << " x " << s.channels << " x " << s.pixels << ", " << s.groups
                                        << " groups, last " << last << ", " << name_of(dtype));
        const Order order = random() % 2 ? Order::kContiguous : Order::kMisaligned;
        const DType affine = random() % 2 ? dtype : float32;
        const double eps = 1e-2, offset = random() % 2 ? 3 : 0;  // a mean that is not 0
        const Shape shape{s.batch, s.channels, s.pixels};
        const Inputs in{random_array(random, dtype, shape, -1 + offset, 1 + offset, order),
                        random_array(random, dtype, shape, -1, 1, order),
                        random_array(random, affine, {s.channels}, 0.5, 2, order),
                        random_array(random, affine, {s.channels}, -1, 1, order),
                        random() % 4 != 0,
                        random() % 4 != 0};
        const DType wide = dtype == float64 ? float64 : float32;
        Array y(dtype, shape, order), mean(wide, {s.batch, s.groups}), rstd(wide, {s.batch, s.groups});
        Array dx(dtype, shape, order), dgamma(affine, {s.channels}), dbeta(affine, {s.channels});
        expect_same_in_every_run({&y, &mean, &rstd, &dx, &dgamma, &dbeta}, [&](Call& on) {
          const int64_t bytes = group_norm_workspace(on.stream(), s, dtype);
          group_norm_forward(on.stream(), s, on(in.x), on.when(in.with_gamma, in.gamma), on.when(in.with_beta, in.beta),
                             eps, on.workspace(bytes), on(y), on(mean), on(rstd));
          group_norm_backward(on.stream(), s, on(in.dy), on(in.x), on.when(in.with_gamma, in.gamma), on(mean), on(rstd),
                              on.workspace(bytes), on(dx), on(dgamma), on(dbeta));
        });
        check_forward(s, in, eps, y, mean, rstd);
        check_backward(s, in, eps, dx, dgamma, dbeta);
      }
}

/// A large mean and a small spread: sums of squares without the mean would lose all digits.
TEST_P(GroupNormKernel, ALargeMeanLosesNoDigits) {
  for (const bool last : {false, true}) {
    const GroupNormShape s{2, 40, 200, 4, last};
    Array x = random_array(random, float32, {2, 40, 200}, 0, 1), y(float32, {2, 40, 200});
    for (int64_t i = 0; i < x.numel(); ++i) x.set(i, 4096 + std::round(x.at(i) * 64) / 64);  // exact numbers
    Array mean(float32, {2, 4}), rstd(float32, {2, 4});
    run_kernel([&](Call& on) {
      group_norm_forward(on.stream(), s, on(x), {}, {}, 0, on.workspace(group_norm_workspace(on.stream(), s, float32)),
                         on(y), on(mean), on(rstd));
    });
    for (int64_t i = 0; i < rstd.numel(); ++i)
      ASSERT_NEAR(rstd.at(i) / Reference{s}.statistics(x, i / 4, i % 4, 0).second, 1, 1e-4) << i;
  }
}

}  // namespace
}  // namespace tern::kernels
