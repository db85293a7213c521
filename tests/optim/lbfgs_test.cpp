// optim::LBFGS against torch.optim.LBFGS, step by step, in fp64 (tests/golden/make_lbfgs.py); its state; and errors.

#include "tern/optim/lbfgs.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tern/core/ops/ops.h"
#include "tern/dist/loop/loop_state.h"
#include "tern/tests/optim/optim_test.h"
#include "tern/tests/places.h"

namespace tern::test {
namespace {

using Json = nlohmann::json;
using optim::LBFGS;
using optim::LBFGSOptions;
using optim::LineSearch;

Tensor read(const Json& values, const Json& shape) {
  return from_vector(values.get<std::vector<double>>(), Shape(shape.get<std::vector<int64_t>>()));
}

Tensor rosenbrock(const Tensor& x) {
  const Tensor head = x.slice(0, 0, -1), tail = x.slice(0, 1);
  return sum(square(tail - square(head)) * 100 + square(1.0 - head));
}

/// The loss of a case at its parameters.
Tensor loss_of(const Json& test_case, const std::vector<NamedTensor>& p) {
  if (test_case["function"] == "rosenbrock") return rosenbrock(p[0].tensor);
  const auto data = [&](const char* name) {
    return read(test_case["data"][name]["values"], test_case["data"][name]["shape"]);
  };
  const Tensor hidden = tern::tanh(linear(data("x"), p[0].tensor, p[1].tensor));
  return mse_loss(linear(hidden, p[2].tensor, p[3].tensor), data("y"));
}

LBFGSOptions options_of(const Json& options) {
  LBFGSOptions result;
  result.lr = options.value("lr", 1.0);
  result.max_iter = options.value("max_iter", 20);
  if (options.contains("max_eval")) result.max_eval = options["max_eval"].get<int64_t>();
  result.tolerance_grad = options.value("tolerance_grad", 1e-7);
  result.tolerance_change = options.value("tolerance_change", 1e-9);
  result.history_size = options.value("history_size", 100);
  if (options.contains("line_search_fn")) result.line_search = LineSearch::kStrongWolfe;
  return result;
}

std::vector<NamedTensor> parameters_of(const Json& test_case, bool single = false) {
  std::vector<NamedTensor> parameters;
  for (size_t i = 0; i < test_case["start"].size(); ++i) {
    const Tensor start = read(test_case["start"][i], test_case["shapes"][i]);
    parameters.push_back({"p" + std::to_string(i), leaf(single ? start.to(float32) : start)});
  }
  return parameters;
}

std::function<Tensor()> closure_of(const Json& test_case, LBFGS& optimizer,
                                   const std::vector<NamedTensor>& parameters) {
  return [&test_case, &optimizer, parameters] {
    optimizer.zero_grad();
    const Tensor loss = loss_of(test_case, parameters);
    loss.backward();
    return loss;
  };
}

const Json& reference_cases() {
  static const Json all = Json::parse(std::ifstream(source_dir() + "/tests/golden/lbfgs.json"));
  return all;
}

TEST(LBFGSOptimizer, MatchesPyTorch) {
  int compared = 0;
  for (const Json& c : reference_cases()) {
    const std::vector<NamedTensor> parameters = parameters_of(c);
    LBFGS optimizer(parameters, options_of(c["options"]));
    for (const Json& expected : c["steps"]) {
      SCOPED_TRACE(testing::Message() << c["function"] << " " << c["options"] << " of " << parameters[0].tensor.shape()
                                      << ", " << expected["iterations"] << " iterations");
      const double loss = optimizer.step(closure_of(c, optimizer, parameters)).item<double>();
      const double reference = expected["loss"];
      if (reference < 1e-9) {  // what is left there are rounding errors
        EXPECT_LT(loss, 1e-8);
        continue;
      }
      // The iterations magnify rounding errors.
      EXPECT_NEAR(loss, reference, 1e-7 * reference);
      for (size_t i = 0; i < parameters.size(); ++i) {
        const std::vector<double> got = parameters[i].tensor.to_vector<double>();
        EXPECT_LT(relative_error(got, expected["parameters"][i]), 1e-5) << parameters[i].name;
      }
      ++compared;
      if (reference > 1e-3) {
        EXPECT_EQ(optimizer.iterations(), expected["iterations"].get<int64_t>());
      }
    }
  }
  EXPECT_GT(compared, 35);
}

TEST(LBFGSOptimizer, Float32Converges) {
  for (const size_t i : {0, 5}) {
    const Json& c = reference_cases()[i];
    const std::vector<NamedTensor> parameters = parameters_of(c, true);
    LBFGS optimizer(parameters, options_of(c["options"]));
    for (int step = 0; step < 6; ++step) optimizer.step(closure_of(c, optimizer, parameters));
    EXPECT_LT(loss_of(c, parameters).item<double>(), 1e-6);
    EXPECT_EQ(parameters[0].tensor.dtype(), float32);
  }
}

/// A quadratic function of n numbers has its minimum after about n exact line searches.
TEST(LBFGSOptimizer, FindsTheMinimumOfAQuadraticFunction) {
  Generator generator = fresh_generator();
  for (const int64_t n : {1, 2, 7}) {
    const Tensor root = randn({n, n}, generator, {.dtype = float64});
    const Tensor matrix = matmul(root, root.t()) + eye(n, {.dtype = float64});
    const Tensor centre = randn({n}, generator, {.dtype = float64});
    const Tensor x = leaf(zeros({n}, {.dtype = float64})), unused = leaf(zeros({0}, {.dtype = float64}));
    // The eigenvalues are 1 or more, so the distance to the minimum is at most the root of the loss. It would be 3e-5
    // or more with the default tolerance of 1e-9 for a change of the loss.
    LBFGS optimizer({{"x", x}, {"unused", unused}},
                    {.max_iter = 100, .tolerance_change = 1e-15, .line_search = LineSearch::kStrongWolfe});
    optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor apart = x - centre, loss = dot(apart, mv(matrix, apart));
      loss.backward();
      return loss;
    });
    EXPECT_LT(relative_error(x.to_vector<double>(), centre.to_vector<double>()), 1e-5) << n;
    const int64_t evaluations = optimizer.evaluations(), iterations = optimizer.iterations();
    EXPECT_GE(evaluations, iterations);
    EXPECT_EQ(unused.numel(), 0);
  }
}

TEST(LBFGSOptimizer, StateContinuesBitForBit) {
  for (const Json& c : reference_cases()) {
    SCOPED_TRACE(testing::Message() << c["options"]);
    const std::vector<NamedTensor> one = parameters_of(c), two = parameters_of(c);
    LBFGS a(one, options_of(c["options"])), b(two, options_of(c["options"]));
    const StateView empty = b.state_dict();
    a.step(closure_of(c, a, one));
    const StateView state = a.state_dict();
    ASSERT_EQ(names_of(empty), names_of(state));
    for (size_t i = 0; i < state.size(); ++i) EXPECT_EQ(empty[i].tensor.shape(), state[i].tensor.shape());
    b.load_state_dict(state);
    for (size_t i = 0; i < one.size(); ++i) without_grad([&] { Tensor(two[i].tensor).copy_(one[i].tensor); });
    EXPECT_EQ(b.evaluations(), a.evaluations());
    for (int step = 0; step < 2; ++step) {
      const double first = a.step(closure_of(c, a, one)).item<double>();
      EXPECT_EQ(b.step(closure_of(c, b, two)).item<double>(), first);
    }
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(one[i].tensor.to_vector<double>(), two[i].tensor.to_vector<double>());
    EXPECT_EQ(values_of(a.state_dict()), values_of(b.state_dict()));
  }
}

static_assert(dist::HasState<LBFGS>, "a LoopState takes it");

TEST(LBFGSOptimizer, Errors) {
  const Tensor x = leaf(ones({2}));
  expect_error([] { LBFGS({}); }, {"lbfgs", "no parameters"});
  expect_error([&] { LBFGS({{"x", x}, {"y", x}}); }, {"'y'", "twice"});
  expect_error([&] { LBFGS({{"x", x}, {"x", leaf(ones({2}))}}); }, {"the name 'x'"});
  expect_error([] { LBFGS({{"x", leaf(ones({2}).to(bfloat16))}}); }, {"float32 or float64", "bfloat16"});
  expect_error([] { LBFGS({{"x", Tensor()}}); }, {"undefined"});
  expect_error([&] { LBFGS({{"x", x}}, {.lr = -1}); }, {"lr"});
  expect_error([&] { LBFGS({{"x", x}}, {.max_iter = 0}); }, {"max_iter"});
  expect_error([&] { LBFGS({{"x", x}}, {.history_size = 0}); }, {"history_size"});
  expect_error([&] { LBFGS({{"x", x}}, {.max_eval = 0}); }, {"max_eval"});
  LBFGS optimizer({{"x", x}});
  expect_error([&] { optimizer.step([] { return Tensor(); }); }, {"closure", "undefined"});
  expect_error([&] { optimizer.step([&] { return x; }); }, {"closure", "[2]"});
  expect_error([&] { optimizer.set_lr(NAN); }, {"lr"});
  // Without a line search a step that is too long leaves the numbers that have a finite loss.
  LBFGS far({{"x", x}}, {.lr = 1e30, .max_iter = 30});
  expect_error(
      [&] {
        far.step([&] {
          far.zero_grad();
          const Tensor loss = sum(square(square(x)));
          loss.backward();
          return loss;
        });
      },
      {"the loss is", "kStrongWolfe"});
  StateView state = optimizer.state_dict();
  state.pop_back();
  expect_error([&] { optimizer.load_state_dict(state); }, {"numbers"});
  state.push_back({"numbers", from_vector(std::vector<double>{1, 0, 1, 1, 2}, {5})});
  expect_error([&] { optimizer.load_state_dict(state); }, {"2 changes, 1 iterations"});
  EXPECT_EQ(optimizer.iterations(), 0);
}

}  // namespace
}  // namespace tern::test
