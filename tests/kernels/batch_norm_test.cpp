// Batch normalisation and its gradients against the definition in fp64, on every target.

#include "tern/kernels/batch_norm.h"
#include "tern/tests/kernels/contracts/exact_sums.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class BatchNorm : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, BatchNorm, testing::ValuesIn(all_targets()), name_of_target);

constexpr DType kTypes[] = {float32, float64, float16, bfloat16};
constexpr ImageActivation kActivations[] = {ImageActivation::kNone,      ImageActivation::kRelu,
                                            ImageActivation::kRelu6,     ImageActivation::kSilu,
                                            ImageActivation::kHardSwish, ImageActivation::kGelu};

/// The definitions of the activations (PyTorch's documentation), not those of the kernels.
double activate(ImageActivation activation, double z) {
  switch (activation) {
    case ImageActivation::kNone:
      return z;
    case ImageActivation::kRelu:
      return std::max(z, 0.0);
    case ImageActivation::kRelu6:
      return std::min(std::max(z, 0.0), 6.0);
    case ImageActivation::kSilu:
      return z / (1 + std::exp(-z));
    case ImageActivation::kHardSwish:
      return z * std::min(std::max(z + 3, 0.0), 6.0) / 6;
    case ImageActivation::kGelu:
      return z * 0.5 * std::erfc(-z * M_SQRT1_2);
  }
  return NAN;
}
double slope_of(ImageActivation activation, double z) {
  switch (activation) {
    case ImageActivation::kNone:
      return 1;
    case ImageActivation::kRelu:
      return z > 0;
    case ImageActivation::kRelu6:
      return z > 0 && z < 6;
    case ImageActivation::kSilu:
      return (1 + z / (1 + std::exp(z))) / (1 + std::exp(-z));
    case ImageActivation::kHardSwish:
      return z <= -3 ? 0 : z >= 3 ? 1 : z / 3 + 0.5;
    case ImageActivation::kGelu:
      return 0.5 * std::erfc(-z * M_SQRT1_2) + z * std::exp(-z * z / 2) * 0.3989422804014327;
  }
  return NAN;
}

struct Case {
  int64_t rows, channels;
};
/// Both sides of blocks, tiles and vectors; rows for several blocks of the CPU.
std::vector<Case> cases() {
  std::vector<Case> cases = {{1, 1}, {2, 3}, {7, 64}, {33, 17}, {5, 257}, {64, 8}, {129, 20}, {300, 130}, {3, 1030}};
  cases.push_back({kFewCases ? 1100 : 9001, 5});
  if (target().is_cpu()) cases.push_back({70001, 1});
  return cases;
}

struct Tensors {
  Case size;
  DType dtype, wide;
  Array x, residual, dy, mean, scale, shift, offset, slope;
  Tensors(std::mt19937_64& random, const Case& s, DType type, Order order)
      : size(s),
        dtype(type),
        wide(type == float64 ? float64 : float32),
        x(random_array(random, type, {s.rows, s.channels}, -3, 5, order)),
        residual(random_array(random, type, {s.rows, s.channels}, -1, 1, order)),
        dy(random_array(random, type, {s.rows, s.channels}, -1, 1, order)),
        mean(random_array(random, wide, {s.channels}, -1, 2, order)),
        scale(random_array(random, wide, {s.channels}, -2, 2, order)),
        shift(random_array(random, wide, {s.channels}, -1, 1, order)),
        offset(random_array(random, wide, {s.channels}, -1, 1, order)),
        slope(random_array(random, wide, {s.channels}, -1, 1, order)) {}
  double centered(int64_t i) const { return x.at(i) - mean.at(i % size.channels); }
  double z(int64_t i, bool shifted) const {
    return centered(i) * scale.at(i % size.channels) + (shifted ? shift.at(i % size.channels) : 0);
  }
  /// z is too near to a kink for its slope to be that of the exact number.
  static bool near_kink(ImageActivation activation, double z, double unit) {
    for (const double kink : {0.0, 6.0, -3.0, 3.0})
      if (activation != ImageActivation::kSilu && activation != ImageActivation::kGelu && std::abs(z - kink) < unit)
        return true;
    return false;
  }
};

template <class Body>
void for_each_case(std::mt19937_64& random, const Body& body) {
  const auto run = [&](const Case& s, DType dtype) {
    SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << s.rows << ", " << s.channels << "]");
    body(Tensors(random, s, dtype, random() % 2 ? Order::kContiguous : Order::kMisaligned));
  };
  for (const Case& s : cases())
    for (const DType dtype : kTypes)
      if (s.rows * s.channels <= 2000 || dtype == float32 || random() % 3 == 0) run(s, dtype);
}
/// Those of for_each_case, and one in which a thread of an emulated device adds more than one run of rows.
template <class Body>
void for_each_sum(std::mt19937_64& random, const Body& body) {
  for_each_case(random, body);
  if (!target().is_cpu()) body(Tensors(random, {530, 770}, float64, Order::kContiguous));
}

TEST_P(BatchNorm, Statistics) {
  for_each_sum(random, [&](Tensors t) {
    // Far from zero compared to its spread, so that a difference of squares would lose all digits.
    const double far = t.dtype == float32 ? 1000 : 0;
    for (int64_t i = 0; i < t.x.numel(); ++i) t.x.set(i, t.x.at(i) + far);
    Array mean(t.wide, {t.size.channels}), squares(t.wide, {t.size.channels});
    expect_same_in_every_run({&mean, &squares}, [&](Call& on) {
      void* const work = on.workspace(batch_norm_workspace(on.stream(), t.size.rows, t.size.channels, t.dtype));
      batch_norm_statistics(on.stream(), on(t.x), on(mean), on(squares), work);
    });
    for (int64_t c = 0; c < t.size.channels; ++c) {
      long double sum = 0, deviations = 0;
      double size = 0;
      for (int64_t r = 0; r < t.size.rows; ++r) sum += t.x.at(r * t.size.channels + c);
      const long double center = sum / double(t.size.rows);
      for (int64_t r = 0; r < t.size.rows; ++r) {
        const double value = t.x.at(r * t.size.channels + c);
        deviations += (value - center) * (value - center);
        size += std::abs(value);
      }
      const double unit = t.wide == float64 ? 1.2e-16 : 6e-8, n = double(t.size.rows);
      // Runs of 64 rows, runs of a block and blocks: three sums of up to 64 terms, whose errors add like their roots.
      const double off = 24 * unit * size / n;  // of the mean
      ASSERT_NEAR(mean.at(c), double(center), off) << c;
      const double exact = double(deviations);
      ASSERT_NEAR(squares.at(c), exact, 24 * unit * exact + n * off * off + 2 * off * std::sqrt(n * exact)) << c;
    }
  });
}

TEST_P(BatchNorm, Apply) {
  for_each_case(random, [&](const Tensors& t) {
    const ImageActivation activation = kActivations[random() % std::size(kActivations)];
    const bool shifted = random() % 2, added = random() % 2;
    SCOPED_TRACE(testing::Message() << "activation " << int(activation) << " shift " << shifted << " residual "
                                    << added);
    Array y(t.dtype, t.x.shape());
    expect_same_in_every_run({&y}, [&](Call& on) {
      const BatchNormMap map{on(t.mean), on(t.scale), on.when(shifted, t.shift), activation};
      batch_norm_apply(on.stream(), on(t.x), map, on.when(added, t.residual), on(y));
    });
    for (int64_t i = 0; i < y.numel(); ++i) {
      const double z = t.z(i, shifted) + (added ? t.residual.at(i) : 0), want = activate(activation, z);
      const double unit = t.wide == float64 ? 1.2e-16 : 6e-8;
      ASSERT_TRUE(near(y.at(i), want, 1.01 * epsilon_of(t.dtype), 100 * unit + 1e-7 * (t.dtype == float16)))
          << i << ": " << y.at(i) << ", " << want;
    }
  });
}

/// A number of values as the kernels take it: of all processes, or this one's rows.
struct Values {
  int64_t rows;
  Array all{float32, {1}};
  bool of_all;
  Values(std::mt19937_64& random, DType wide)
      : rows(2 + int64_t(random() % 5000)), all(wide, {1}), of_all(random() % 2) {
    all.set(0, double(3 + random() % 100000));
  }
  double number() const { return of_all ? all.at(0) : double(rows); }
  BatchNormCount on(Call& call) const { return {of_all ? 0 : rows, call.when(of_all, all)}; }
};
double unit_of(DType dtype) { return dtype == float64 ? 1.2e-16 : 6e-8; }

/// Weight and running statistics of any floating type, with any stride.
TEST_P(BatchNorm, Numbers) {
  for (const int64_t channels : {1, 17, 128, 129, 1030})
    for (const DType wide : {float32, float64}) {
      const Values values(random, wide);
      const DType types[] = {kTypes[random() % 4], kTypes[random() % 4], kTypes[random() % 4]};
      const int64_t step = 1 + int64_t(random() % 3);
      const bool weighted = random() % 4, followed = random() % 4;
      const double eps = 1e-3, momentum = 0.3;
      SCOPED_TRACE(testing::Message() << name_of(wide) << ' ' << channels << " step " << step << ' ' << weighted
                                      << followed << ' ' << name_of(types[0]) << ' ' << name_of(types[1]) << ' '
                                      << name_of(types[2]));
      const Array mean = random_array(random, wide, {channels}, -3, 3),
                  weight = random_array(random, types[0], {channels * step}, -2, 2);
      const Array squares = random_array(random, wide, {channels}, 0, values.number() * 2);
      const Array before_mean = random_array(random, types[1], {channels * step}, -1, 1),
                  before_variance = random_array(random, types[2], {channels * step}, 0, 2);
      Array rstd(wide, {channels}), scale(wide, {channels}), after_mean(types[1], {channels * step}),
          after_variance(types[2], {channels * step});
      expect_same_in_every_run({&rstd, &scale, &after_mean, &after_variance}, [&](Call& on) {
        for (int64_t i = 0; i < channels * step; ++i) {
          after_mean.set(i, before_mean.at(i));
          after_variance.set(i, before_variance.at(i));
        }
        const auto spread = [&](auto view) {
          view.shape[0] = channels;
          view.strides[0] = step;
          return view;
        };
        BatchNormRunning running;
        if (followed) running = {spread(on(after_mean)), spread(on(after_variance)), momentum};
        for (int64_t c = 0; c < channels; ++c) scale.set(c, 7);
        batch_norm_numbers(on.stream(), on(mean), on(squares), values.on(on),
                           weighted ? spread(on(weight)) : ConstView(), eps, on(rstd), on.when(weighted, scale),
                           running);
      });
      for (int64_t i = 0; i < channels * step; ++i) {
        const int64_t c = i / step;
        const bool hit = i % step == 0;
        const double n = values.number(), factor = 1 / std::sqrt(squares.at(c) / n + eps);
        if (hit) {
          ASSERT_NEAR(rstd.at(c), factor, 8 * unit_of(wide) * factor) << c;
          const double want = weighted ? factor * weight.at(i) : 7;
          ASSERT_NEAR(scale.at(c), want, 10 * unit_of(wide) * std::abs(want)) << c;
        }
        const auto expect_followed = [&](const Array& before, const Array& after, double now) {
          const double old = before.at(i), want = hit && followed ? old + momentum * (now - old) : old;
          const double unit = std::max(unit_of(wide), unit_of(after.dtype()));
          ASSERT_NEAR(after.at(i), want,
                      1.01 * epsilon_of(after.dtype()) * std::abs(want) + 8 * unit * (std::abs(now) + std::abs(old)) +
                          6e-8 * (after.dtype() == float16))
              << i;
        };
        expect_followed(before_mean, after_mean, mean.at(c));
        expect_followed(before_variance, after_variance, squares.at(c) / (n - 1));
      }
    }
}

TEST_P(BatchNorm, ApplyKeepsNaN) {
  for (const ImageActivation activation : kActivations) {
    Tensors t(random, {3, 9}, float32, Order::kContiguous);
    t.x.set(13, NAN);
    Array y(float32, t.x.shape());
    run_kernel([&](Call& on) {
      batch_norm_apply(on.stream(), on(t.x), {on(t.mean), on(t.scale), on(t.shift), activation}, {}, on(y));
    });
    for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(std::isnan(y.at(i)), i == 13) << i << " " << int(activation);
  }
}

TEST_P(BatchNorm, BackwardSums) {
  for_each_sum(random, [&](Tensors t) {
    const ImageActivation activation = kActivations[random() % std::size(kActivations)];
    const bool by_result = activation == ImageActivation::kRelu && random() % 2, shifted = random() % 2;
    const bool kept = random() % 2;
    SCOPED_TRACE(testing::Message() << "activation " << int(activation) << " y " << by_result << " g " << kept);
    Array y(t.dtype, t.x.shape());
    for (int64_t i = 0; i < y.numel(); ++i) {
      if (Tensors::near_kink(activation, t.z(i, shifted), 1e-3)) t.dy.set(i, 0);
      y.set(i, random() % 2 ? 0 : 1);  // of a sum with a residual: any
    }
    Array sums(t.wide, {2, t.size.channels}), g(t.dtype, t.x.shape());
    std::vector<Array*> results = {&sums};
    if (kept) results.push_back(&g);
    expect_same_in_every_run(results, [&](Call& on) {
      void* const work = on.workspace(batch_norm_workspace(on.stream(), t.size.rows, t.size.channels, t.dtype));
      const BatchNormMap map{on(t.mean), on(t.scale), on.when(shifted, t.shift), activation};
      batch_norm_backward_sums(on.stream(), on(t.dy), on.when(by_result, y), on(t.x), map, on(sums), on.when(kept, g),
                               work);
    });
    ExactSums want(2 * t.size.channels);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const double slope = by_result ? double(y.at(i) > 0) : slope_of(activation, t.z(i, shifted));
      const double gradient = t.dy.at(i) * slope;
      want.add(i % t.size.channels, gradient);
      want.add(t.size.channels + i % t.size.channels, gradient * t.centered(i));
      // A slope has the rounding errors of z, whatever its own size is.
      const double error = std::abs(t.dy.at(i)) * (1 + std::abs(t.z(i, shifted)));
      want.size[static_cast<size_t>(i % t.size.channels)] += error;
      want.size[static_cast<size_t>(t.size.channels + i % t.size.channels)] += error * std::abs(t.centered(i));
      const double unit = t.wide == float64 ? 1.2e-16 : 6e-8;
      if (kept) {
        ASSERT_TRUE(near(g.at(i), gradient, 1.01 * epsilon_of(t.dtype), 100 * unit + 1e-7 * (t.dtype == float16))) << i;
      }
    }
    want.expect_near(sums, t.wide);
  });
}

TEST_P(BatchNorm, Gradients) {
  for (const int64_t channels : {1, 17, 128, 129, 1030})
    for (const DType wide : {float32, float64}) {
      const Values values(random, wide);
      const DType types[] = {kTypes[random() % 4], kTypes[random() % 4]};
      const bool weighted = random() % 4, biased = random() % 4, of_batch = random() % 4;
      SCOPED_TRACE(testing::Message() << name_of(wide) << ' ' << channels << ' ' << weighted << biased << of_batch
                                      << ' ' << name_of(types[0]) << ' ' << name_of(types[1]));
      const Array sums = random_array(random, wide, {2, channels}, -50, 50),
                  total = random_array(random, wide, {2, channels}, -90, 90);
      const Array rstd = random_array(random, wide, {channels}, 0.1, 3),
                  scale = random_array(random, wide, {channels}, -2, 2);
      Array weight(types[0], {channels}), bias(types[1], {channels}), offset(wide, {channels}), slope(wide, {channels});
      expect_same_in_every_run({&weight, &bias, &offset, &slope}, [&](Call& on) {
        for (Array* a : {&weight, &bias, &offset, &slope})
          for (int64_t c = 0; c < channels; ++c) a->set(c, 7);
        batch_norm_gradients(
            on.stream(), on(sums), on(total), values.on(on), on(rstd), on(scale),
            {on.when(weighted, weight), on.when(biased, bias), on.when(of_batch, offset), on.when(of_batch, slope)});
      });
      for (int64_t c = 0; c < channels; ++c) {
        const double n = values.number(), factor = rstd.at(c), by = -scale.at(c);
        const auto expect = [&](const Array& got, bool present, double want) {
          if (!present) want = 7;
          ASSERT_NEAR(
              got.at(c), want,
              (1.01 * epsilon_of(got.dtype()) + 8 * unit_of(wide)) * std::abs(want) + 6e-8 * (got.dtype() == float16))
              << c;
        };
        expect(weight, weighted, sums.at(channels + c) * factor);
        expect(bias, biased, sums.at(c));
        expect(offset, of_batch, by * total.at(c) / n);
        expect(slope, of_batch, by * factor * factor * total.at(channels + c) / n);
      }
    }
}

TEST_P(BatchNorm, BackwardApply) {
  for_each_case(random, [&](Tensors t) {
    const ImageActivation activation = kActivations[random() % std::size(kActivations)];
    const bool shifted = random() % 2, of_batch = random() % 2;
    SCOPED_TRACE(testing::Message() << "activation " << int(activation) << " shift " << shifted << " of x "
                                    << of_batch);
    for (int64_t i = 0; i < t.dy.numel(); ++i)
      if (Tensors::near_kink(activation, t.z(i, shifted), 1e-3)) t.dy.set(i, 0);
    Array dx(t.dtype, t.x.shape());
    const bool reads = of_batch || activation != ImageActivation::kNone;
    expect_same_in_every_run({&dx}, [&](Call& on) {
      const BatchNormMap map{on(t.mean), on(t.scale), on.when(shifted, t.shift), activation};
      batch_norm_backward_apply(on.stream(), on(t.dy), on.when(reads, t.x), map, on.when(of_batch, t.offset),
                                on.when(of_batch, t.slope), on(dx));
    });
    for (int64_t i = 0; i < dx.numel(); ++i) {
      const int64_t c = i % t.size.channels;
      double want = t.scale.at(c) * t.dy.at(i) * slope_of(activation, t.z(i, shifted));
      if (of_batch) want += t.offset.at(c) + t.slope.at(c) * t.centered(i);
      const double unit = t.wide == float64 ? 1.2e-16 : 6e-8;
      ASSERT_TRUE(near(dx.at(i), want, 1.01 * epsilon_of(t.dtype), 100 * unit + 1e-7 * (t.dtype == float16)))
          << i << ": " << dx.at(i) << ", " << want;
    }
  });
}

}  // namespace
}  // namespace tern::kernels
