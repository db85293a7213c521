// Resizing along an axis and its transpose against the formulas in double precision, on every target.

#include "tern/kernels/resample.h"
#include "tern/tests/kernels/contracts/exact_sums.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class Resample : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Resample, testing::ValuesIn(all_targets()), name_of_target);

using Mode = ResampleMode;

double cubic(double x, double a) {
  x = std::abs(x);
  return x <= 1 ? (a + 2) * x * x * x - (a + 3) * x * x + 1 : x < 2 ? a * (x * x * x - 5 * x * x + 8 * x - 4) : 0;
}

/// The weights of all inputs for one output by the definition of each mode, in double precision.
std::vector<double> weights_of(const ResampleAxis& axis, int64_t o) {
  std::vector<double> weights(static_cast<size_t>(axis.in), 0);
  const double in = double(axis.in), out = double(axis.out);
  const double scale = axis.align_corners ? (out > 1 ? (in - 1) / (out - 1) : 0)
                       : axis.factor > 0  ? 1 / axis.factor
                                          : in / out;
  const auto add = [&](double i, double weight) { weights[size_t(std::min(std::max(i, 0.0), in - 1))] += weight; };
  const double center = axis.align_corners ? double(o) * scale : (double(o) + 0.5) * scale - 0.5;
  if (axis.antialias) {
    const double width = std::max(scale, 1.0), support = (axis.mode == Mode::kCubic ? 2 : 1) * width,
                 middle = (double(o) + 0.5) * scale;
    double total = 0;
    const double begin = std::max(std::trunc(middle - support + 0.5), 0.0),
                 end = std::min(std::trunc(middle + support + 0.5), in);
    for (double i = begin; i < end; ++i) {
      const double x = (i - middle + 0.5) / width;
      const double weight = axis.mode == Mode::kCubic ? cubic(x, -0.5) : std::max(0.0, 1 - std::abs(x));
      total += weight;
      add(i, weight);
    }
    for (double& weight : weights) weight /= total;
    return weights;
  }
  const double base = std::floor(axis.mode == Mode::kLinear ? std::max(center, 0.0) : center);
  const double share = (axis.mode == Mode::kLinear ? std::max(center, 0.0) : center) - base;
  switch (axis.mode) {
    case Mode::kNearest:
      add(std::floor(double(o) * scale), 1);
      break;
    case Mode::kNearestExact:
      add(std::floor((double(o) + 0.5) * scale), 1);
      break;
    case Mode::kLinear:
      add(base, 1 - share);
      add(base + 1, share);
      break;
    case Mode::kCubic:
      for (int k = -1; k <= 2; ++k) add(base + k, cubic(share - k, -0.75));
  }
  return weights;
}

/// Sizes whose ratio is a power of two, so that fp32 finds the same places; some others for fp64.
std::vector<ResampleAxis> axes() {
  std::vector<ResampleAxis> all;
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 4}, {4, 8}, {8, 4}, {12, 3}, {6, 6}, {16, 2}, {5, 10}, {32, 4}})
    for (const Mode mode : {Mode::kNearest, Mode::kNearestExact, Mode::kLinear, Mode::kCubic}) {
      all.push_back({mode, in, out});
      if (mode == Mode::kNearest || mode == Mode::kNearestExact) continue;
      all.push_back({mode, in, out, false, true});
      all.push_back({mode, in, in == 1 ? out : (in - 1) * 2 + 1, true});
    }
  return all;
}

struct Table {
  Array first, weights;
  Table(const ResampleAxis& axis, DType dtype) : first(int32, {axis.out}), weights(dtype, {axis.out, axis.taps()}) {
    run_kernel([&](Call& on) { resample_table(on.stream(), axis, on(first), on(weights)); });
  }
  void map(Call& on, const Array& x, Array& y) const {
    void* const work = on.workspace(resample_workspace(on.stream(), on(x), on(first), on(weights), on(y)));
    resample(on.stream(), on(x), on(first), on(weights), on(y), work);
  }
  void map_back(Call& on, const Array& dy, Array& dx) const {
    void* const work = on.workspace(resample_transposed_workspace(on.stream(), on(dy), on(first), on(weights), on(dx)));
    resample_transposed(on.stream(), on(dy), on(first), on(weights), on(dx), work);
  }
};

TEST_P(Resample, WeightsAreThoseOfTheDefinition) {
  std::vector<ResampleAxis> all = axes();
  for (int i = 0; i < 60; ++i) {  // any ratio, where fp64 still finds the places
    const auto size = [&] { return static_cast<int64_t>(1 + random() % 40); };
    const Mode mode = random() % 2 ? Mode::kLinear : Mode::kCubic;
    all.push_back({mode, size(), size(), random() % 3 == 0, random() % 3 == 0});
    if (random() % 3 == 0 && !all.back().align_corners) all.back().factor = 0.37 + double(random() % 100) / 40;
    if (all.back().factor > 0)
      all.back().out = std::max<int64_t>(1, int64_t(double(all.back().in) * all.back().factor));
  }
  for (const ResampleAxis& axis : all)
    for (const DType dtype : {float32, float64}) {
      if (!target().is_cpu() && random() % 4 != 0) continue;
      SCOPED_TRACE(testing::Message() << "mode " << int(axis.mode) << ", " << axis.in << " to " << axis.out
                                      << ", aligned " << axis.align_corners << ", antialias " << axis.antialias << ", "
                                      << axis.factor << ", " << name_of(dtype));
      const Table table(axis, dtype);
      for (int64_t o = 0; o < axis.out; ++o) {
        const std::vector<double> expected = weights_of(axis, o);
        const auto first = int64_t(table.first.at(o));
        ASSERT_GE(first, o == 0 ? 0 : int64_t(table.first.at(o - 1)));
        ASSERT_LE(first + axis.taps(), axis.in);
        for (int64_t i = 0; i < axis.in; ++i) {
          const bool inside = i >= first && i < first + axis.taps();
          const double got = inside ? table.weights.at(o * axis.taps() + i - first) : 0;
          // A place that rounding moves to the other side of an element has weights that differ little.
          ASSERT_NEAR(got, expected[size_t(i)], dtype == float64 ? 1e-12 : 1e-4) << o << ", " << i;
        }
      }
    }
}

TEST_P(Resample, SumsAndTheirTranspose) {
  for (const ResampleAxis& axis : axes())
    for (const DType dtype : kFloatTypes) {
      if (random() % (target().is_cpu() ? 2 : 8) != 0) continue;
      const DType wide = dtype == float64 ? float64 : float32;
      const DType given = random() % 2 ? dtype : wide, result = random() % 2 ? dtype : wide;
      if (given != wide && result != wide && given != result) continue;
      const Order order = random() % 2 ? Order::kContiguous : Order::kMisaligned;
      const int64_t outer = 1 + int64_t(random() % 3), inner = std::vector<int64_t>{1, 1, 3, 8, 300}[random() % 5];
      SCOPED_TRACE(testing::Message() << "mode " << int(axis.mode) << ", " << axis.in << " to " << axis.out << ", "
                                      << outer << " x . x " << inner << ", " << name_of(given) << " to "
                                      << name_of(result));
      const Table table(axis, wide);
      const Array x = random_array(random, given, {outer, axis.in, inner}, -1, 1, order);
      const Array dy = random_array(random, given, {outer, axis.out, inner}, -1, 1, order);
      Array y(result, dy.shape(), order), dx(result, x.shape(), order);
      expect_same_in_every_run({&y, &dx}, [&](Call& on) {
        table.map(on, x, y);
        table.map_back(on, dy, dx);
      });
      ExactSums sums(y.numel()), gradients(dx.numel());
      for (int64_t n = 0; n < outer; ++n)
        for (int64_t o = 0; o < axis.out; ++o)
          for (int64_t k = 0; k < axis.taps(); ++k)
            for (int64_t c = 0; c < inner; ++c) {
              const int64_t i = int64_t(table.first.at(o)) + k;
              const int64_t from = (n * axis.in + i) * inner + c, to = (n * axis.out + o) * inner + c;
              sums.add(to, table.weights.at(o * axis.taps() + k) * x.at(from));
              gradients.add(from, table.weights.at(o * axis.taps() + k) * dy.at(to));
            }
      sums.expect_near(y, wide);
      gradients.expect_near(dx, wide);
    }
}

/// What has no weight does not reach the result, even if it is not finite.
TEST_P(Resample, InputsOfWeightZeroAreNotRead) {
  const ResampleAxis axis{Mode::kLinear, 6, 6};
  const Table table(axis, float32);
  for (const int64_t inner : {1, 5}) {
    Array x = random_array(random, float32, {1, 6, inner}, -1, 1), y(float32, {1, 6, inner}),
          dx(float32, {1, 6, inner});
    for (int64_t c = 0; c < inner; ++c) x.set(3 * inner + c, NAN);
    run_kernel([&](Call& on) {
      table.map(on, x, y);
      table.map_back(on, x, dx);
    });
    for (int64_t i = 0; i < 6 * inner; ++i)
      for (const Array* result : {&y, &dx})
        ASSERT_TRUE(result->at(i) == x.at(i) || (i / inner == 3 && std::isnan(result->at(i)))) << i;
  }
}

}  // namespace
}  // namespace tern::kernels
