// Pooling and its gradients against plain loops, on every target.

#include "tern/kernels/pool.h"
#include "tern/tests/kernels/contracts/exact_sums.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class Pool : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Pool, testing::ValuesIn(all_targets()), name_of_target);

constexpr DType kTypes[] = {float32, float64, float16, bfloat16};

/// Sizes of one dimension; out 0: as many as fit.
struct Axis {
  int64_t in = 1, kernel = 1, stride = 1, padding = 0, dilation = 1, out = 0;
};
PoolShape pool_of(int64_t batch, int64_t channels, const std::vector<Axis>& axes, bool adaptive = false) {
  PoolShape s;
  s.batch = batch;
  s.channels = channels;
  s.adaptive = adaptive;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = 3 - axes.size() + i;
    const Axis& a = axes[i];
    s.in[d] = a.in;
    s.kernel[d] = a.kernel;
    s.stride[d] = a.stride;
    s.padding[d] = a.padding;
    s.dilation[d] = a.dilation;
    s.out[d] = a.out ? a.out : (a.in + 2 * a.padding - (a.kernel - 1) * a.dilation - 1) / a.stride + 1;
  }
  return s;
}

std::vector<PoolShape> cases() {
  return {
      pool_of(1, 1, {{1}}),
      pool_of(2, 5, {{7, 2, 2}, {6, 2, 2}}),
      pool_of(3, 8, {{9, 3, 2, 1}, {8, 3, 2, 1}}),
      pool_of(2, 67, {{5, 3, 1, 1}, {6, 3, 1, 1}}),             // windows that overlap
      pool_of(2, 4, {{9, 2, 3}, {7, 2, 3}}),                    // inputs that no window holds
      pool_of(2, 3, {{7, 3, 2, 1, 1, 4}, {6, 2, 3, 1, 1, 3}}),  // a last window partly outside
      pool_of(2, 6, {{11, 3, 2, 1, 2}, {9, 2, 1, 1, 3}}),       // dilation
      pool_of(4, 130, {{23, 5, 3, 2}}),
      pool_of(2, 67, {{2, 2, 1, 1, 3}, {2, 2, 1, 1, 3}}),  // no window holds an input
      pool_of(3, 8, {{9, 3, 2, 1}, {3, 2, 2, 1, 4, 2}}),   // the first window of a row holds none
      pool_of(2, 3, {{3, 2, 1, 1, 3}}),
      pool_of(1, 16, {{5, 2, 1, 1}, {4, 2, 2, 1}, {4, 3, 1, 1, 5, 2}}),
      pool_of(2, 4, {{4, 2, 1, 1}, {5, 3, 2, 1}, {3, 2, 2}}),
      pool_of(2, 9, {{7, 1, 1, 0, 1, 3}, {5, 1, 1, 0, 1, 5}}, true),
      pool_of(3, 16, {{6, 1, 1, 0, 1, 1}, {8, 1, 1, 0, 1, 1}}, true),
      pool_of(2, 4, {{3, 1, 1, 0, 1, 7}, {2, 1, 1, 0, 1, 5}}, true),  // more outputs than inputs
      pool_of(0, 4, {{3, 2}, {4, 2}}),
  };
}

Shape input_shape(const PoolShape& s) { return {s.batch, s.in[0], s.in[1], s.in[2], s.channels}; }
Shape output_shape(const PoolShape& s) { return {s.batch, s.out[0], s.out[1], s.out[2], s.channels}; }

/// body(image, output pixel, input pixel) for every input of every window, by the definition alone.
template <class Body>
void for_each_pair(const PoolShape& s, const Body& body) {
  const auto reads = [&](size_t d, int64_t o, int64_t i) {
    if (s.adaptive) {
      const double begin = std::floor(double(o) * double(s.in[d]) / double(s.out[d]));
      const double end = std::ceil(double(o + 1) * double(s.in[d]) / double(s.out[d]));
      return double(i) >= begin && double(i) < end;
    }
    for (int64_t k = 0; k < s.kernel[d]; ++k)
      if (o * s.stride[d] - s.padding[d] + k * s.dilation[d] == i) return true;
    return false;
  };
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t o = 0; o < s.out_pixels(); ++o)
      for (int64_t i = 0; i < s.in_pixels(); ++i)
        if (reads(0, o / (s.out[1] * s.out[2]), i / (s.in[1] * s.in[2])) &&
            reads(1, o / s.out[2] % s.out[1], i / s.in[2] % s.in[1]) && reads(2, o % s.out[2], i % s.in[2]))
          body(n, o, i);
}

template <class Body>
void for_each_case(std::mt19937_64& random, const Body& body) {
  int number = 0;
  for (const PoolShape& s : cases())
    for (const DType dtype : kTypes) {
      number += dtype == float32;
      if (dtype != float32 && random() % 3 != 0) continue;
      if (!target().is_cpu() && random() % 2 != 0) continue;
      SCOPED_TRACE(testing::Message() << "case " << number - 1 << ", " << name_of(dtype));
      body(s, dtype, random() % 2 ? Order::kContiguous : Order::kMisaligned);
    }
}

TEST_P(Pool, Maximum) {
  for_each_case(random, [&](const PoolShape& s, DType dtype, Order order) {
    Array x = random_array(random, dtype, input_shape(s), -1, 1, order);
    // Many equal values, and now and then infinities and NaN.
    for (int64_t i = 0; i < x.numel(); ++i) {
      x.set(i, std::round(x.at(i) * 3));
      if (random() % 50 == 0) x.set(i, random() % 2 ? -INFINITY : NAN);
    }
    Array y(dtype, output_shape(s), order), index(int64, output_shape(s), order), alone(dtype, output_shape(s), order);
    expect_same_in_every_run({&y, &index, &alone}, [&](Call& on) {
      max_pool(on.stream(), s, on(x), on(y), on(index));
      max_pool(on.stream(), s, on(x), on(alone), {});
    });
    std::vector<double> best(static_cast<size_t>(y.numel()), -INFINITY);
    std::vector<int64_t> place(best.size(), -1);
    for_each_pair(s, [&](int64_t n, int64_t o, int64_t i) {
      for (int64_t c = 0; c < s.channels; ++c) {
        const auto at = static_cast<size_t>((n * s.out_pixels() + o) * s.channels + c);
        const double value = x.at((n * s.in_pixels() + i) * s.channels + c);
        if (place[at] < 0 || value > best[at] || std::isnan(value)) {
          best[at] = value;
          place[at] = i;
        }
      }
    });
    for (int64_t i = 0; i < y.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_TRUE(y.at(i) == best[at] || (std::isnan(y.at(i)) && std::isnan(best[at]))) << i;
      ASSERT_EQ(index.at(i), double(place[at])) << i;
      ASSERT_TRUE(y.at(i) == alone.at(i) || std::isnan(y.at(i))) << i;
    }
    const Array dy = random_array(random, dtype, output_shape(s), -1, 1, order);
    Array dx(dtype, input_shape(s), order);
    expect_same_in_every_run({&dx}, [&](Call& on) { max_pool_backward(on.stream(), s, on(dy), on(index), on(dx)); });
    std::vector<double> sums(static_cast<size_t>(x.numel()), 0), sizes = sums;
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t n = i / (s.out_pixels() * s.channels), c = i % s.channels;
      if (place[static_cast<size_t>(i)] < 0) continue;
      const auto at = static_cast<size_t>((n * s.in_pixels() + place[static_cast<size_t>(i)]) * s.channels + c);
      sums[at] += dy.at(i);
      sizes[at] += std::abs(dy.at(i));
    }
    for (int64_t i = 0; i < dx.numel(); ++i)
      ASSERT_TRUE(near(dx.at(i), sums[static_cast<size_t>(i)], 1.01 * epsilon_of(dtype),
                       4e-7 * sizes[static_cast<size_t>(i)] + 1e-7 * (dtype == float16)))
          << i;
  });
}

TEST_P(Pool, Mean) {
  for_each_case(random, [&](PoolShape s, DType dtype, Order order) {
    s.dilation = {1, 1, 1};
    for (size_t d = 0; d < 3 && !s.adaptive; ++d)
      s.out[d] = std::min(s.out[d], (s.in[d] + s.padding[d] - 1) / s.stride[d] + 1);
    const PoolDivisor divisor{random() % 2 == 0, random() % 4 == 0 ? 7 : 0};
    const Array x = random_array(random, dtype, input_shape(s), -1, 1, order);
    const Array dy = random_array(random, dtype, output_shape(s), -1, 1, order);
    Array y(dtype, output_shape(s), order), dx(dtype, input_shape(s), order);
    expect_same_in_every_run({&y, &dx}, [&](Call& on) {
      mean_pool(on.stream(), s, divisor, on(x), on(y));
      mean_pool_backward(on.stream(), s, divisor, on(dy), on(dx));
    });
    // Elements of the padding that a window holds are those of an image with a border of zeros.
    std::vector<double> counts(static_cast<size_t>(s.batch * s.out_pixels()), 0);
    if (divisor.fixed != 0) {
      std::fill(counts.begin(), counts.end(), double(divisor.fixed));
    } else if (divisor.counts_padding && !s.adaptive) {
      PoolShape padded = s;
      for (size_t d = 0; d < 3; ++d) {
        padded.in[d] += 2 * s.padding[d];
        padded.padding[d] = 0;
      }
      for_each_pair(padded,
                    [&](int64_t n, int64_t o, int64_t) { ++counts[static_cast<size_t>(n * s.out_pixels() + o)]; });
    } else {
      for_each_pair(s, [&](int64_t n, int64_t o, int64_t) { ++counts[static_cast<size_t>(n * s.out_pixels() + o)]; });
    }
    ExactSums means(y.numel()), sums(dx.numel());
    for_each_pair(s, [&](int64_t n, int64_t o, int64_t i) {
      for (int64_t c = 0; c < s.channels; ++c) {
        const int64_t out = (n * s.out_pixels() + o) * s.channels + c, in = (n * s.in_pixels() + i) * s.channels + c;
        const double count = counts[static_cast<size_t>(n * s.out_pixels() + o)];
        means.add(out, x.at(in) / count);
        sums.add(in, dy.at(out) / count);
      }
    });
    means.expect_near(y, dtype);
    sums.expect_near(dx, dtype);
  });
}

}  // namespace
}  // namespace tern::kernels
