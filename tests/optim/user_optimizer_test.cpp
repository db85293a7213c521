// An optimizer that is not the library's has all that the library's have: groups, clipping, skipped steps, 16-bit
// weights, state by name.

#include <gtest/gtest.h>

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/optim/optim.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/optim/rmsprop.h"

namespace tern {
namespace {

using test::error_of;
using test::Rmsprop;
using test::RmspropOptions;

Tensor leaf(const Tensor& values) {
  Tensor tensor = values.clone();
  tensor.set_requires_grad(true);
  return tensor;
}

Tensor random(const Shape& shape, uint64_t salt, DType dtype) {
  Generator generator = test::fresh_generator(salt);
  return randn(shape, generator, {.dtype = dtype});
}

/// One weight, in double.
struct Scalar {
  double w, square = 0, average = 0, buffer = 0;
  void step(double g, double lr, double decay, const RmspropOptions& o) {
    if (o.maximize) g = -g;
    g += decay * w;
    square = o.alpha * square + (1 - o.alpha) * g * g;
    average = o.alpha * average + (1 - o.alpha) * g;
    const double spread = o.centered ? square - average * average : square;
    buffer = o.momentum * buffer + g / (std::sqrt(spread) + o.eps);
    w -= lr * buffer;
  }
};

TEST(UserOptimizer, StepsAsItsFormula) {
  for (const bool centered : {false, true})
    for (const double momentum : {0.0, 0.7}) {
      // With this eps a step is a smooth function of the gradient.
      const RmspropOptions options{
          .eps = 0.1, .weight_decay = 0.02, .momentum = momentum, .centered = centered, .maximize = centered};
      const Shape shapes[] = {{37}, {3, 5}};
      std::vector<NamedTensor> parameters;
      std::vector<std::vector<Scalar>> expected;
      for (uint64_t p = 0; p < 2; ++p) {
        const Tensor start = random(shapes[p], p, float64);
        parameters.push_back({"p" + std::to_string(p), leaf(start)});
        expected.emplace_back();
        for (const double w : start.to_vector<double>()) expected.back().push_back({w});
      }
      Rmsprop optimizer(
          {{.parameters = {parameters[0]}, .weight_decay = 0.3}, {.parameters = {parameters[1]}, .lr = 0.2}}, options);
      for (uint64_t step = 0; step < 10; ++step) {
        optimizer.set_lr_factor(1 / (1.0 + static_cast<double>(step)));
        for (size_t p = 0; p < 2; ++p) {
          const Tensor gradient = random(shapes[p], 10 + 2 * step + p, float64);
          parameters[p].tensor.set_grad(gradient);
          const std::vector<double> values = gradient.to_vector<double>();
          const double lr = (p == 0 ? options.lr : 0.2) / (1.0 + static_cast<double>(step));
          for (size_t i = 0; i < values.size(); ++i)
            expected[p][i].step(values[i], lr, p == 0 ? 0.3 : options.weight_decay, options);
        }
        optimizer.step();
      }
      for (size_t p = 0; p < 2; ++p) {
        const std::vector<double> got = parameters[p].tensor.to_vector<double>();
        // Ten steps of some ten roundings, each of which 1 / eps makes ten times as large.
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], expected[p][i].w, 1000 * 0x1p-53 * (1 + std::fabs(got[i]))) << p << " " << i;
      }
    }
}

/// With momentum and not centered the first and the third state are kept.
TEST(UserOptimizer, KeepsTheStatesOfItsOptions) {
  Tensor one = leaf(random({41}, 1, bfloat16));
  const RmspropOptions options{.momentum = 0.9};
  Rmsprop a({{"w", one}}, options);
  const auto run = [&](optim::Optimizer& optimizer, Tensor& weight, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step < to; ++step) {
      weight.set_grad(random({41}, 100 + step, bfloat16));
      EXPECT_FALSE(optimizer.step({.max_norm = 3, .skip_non_finite = true}).skipped());
    }
  };
  run(a, one, 0, 4);
  StateView saved;
  std::vector<std::string> names;
  for (const NamedTensor& entry : a.state_dict()) {
    saved.push_back({entry.name, entry.tensor.clone()});
    names.push_back(entry.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"step.w", "square_avg.w", "momentum_buffer.w", "master.w"}));
  EXPECT_EQ(a.state_bytes(), 41 * 3 * 4);
  EXPECT_EQ(a.state_bytes_of(one), 41 * 3 * 4);
  Tensor two = leaf(one.detach());
  Rmsprop b({{"w", two}}, options);
  b.load_state_dict(saved);
  run(a, one, 4, 9);
  run(b, two, 4, 9);
  EXPECT_EQ(one.to_vector<float>(), two.to_vector<float>());
  // A step that is left out changes nothing.
  const std::vector<float> before = two.to_vector<float>();
  two.set_grad(full({41}, NAN, {.dtype = bfloat16}));
  EXPECT_TRUE(b.step({.skip_non_finite = true}).skipped());
  EXPECT_EQ(two.to_vector<float>(), before);
  EXPECT_EQ(find(b.state_dict(), "step.w").item<int64_t>(), 9);
}

TEST(UserOptimizer, MistakesAreErrorsOfItsName) {
  const std::vector<NamedTensor> p = {{"w", leaf(ones({2}))}};
  EXPECT_NE(error_of([&] { Rmsprop(p, {.alpha = 1}); }).find("rmsprop: alpha must be in [0, 1), got 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Rmsprop(p, {.lr = -1}); }).find("rmsprop: lr must be"), std::string::npos);
}

}  // namespace
}  // namespace tern
