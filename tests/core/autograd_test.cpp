// The engine: accumulation, hooks, in-place rules, errors, create_graph, long chains, custom ops, anomaly mode,
// threads.

#include "tern/core/autograd/function.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

Tensor leaf(const std::vector<double>& values) { return tensor(values, {.dtype = float64, .requires_grad = true}); }
Tensor constant(const std::vector<double>& values) { return tensor(values, {.dtype = float64}); }

TEST(Backward, AccumulatesAndUsesTensorsTwice) {
  const Tensor x = leaf({1, 2, 3});
  (x * x + x).backward(constant({1, 10, 100}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 50, 700}));
  sum(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 51, 701}));
  EXPECT_FALSE(x.grad().requires_grad());
  x.backward(constant({1, 1, 1}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{5, 52, 702}));
}

TEST(Backward, DoesNotTouchTheGivenGradient) {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4}), g = constant({1, 1});
  (x + y).backward(g);
  (x + y).backward(g);
  EXPECT_EQ(g.to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2}));
  EXPECT_NE(x.grad().storage(), y.grad().storage());
  backward({x * 2.0, y * 3.0, x * 2.0}, {g, g, g});
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 6}));
  EXPECT_EQ(g.to_vector<double>(), (std::vector<double>{1, 1}));
}

// A view of a gradient has its memory: it must not be added to while the gradient still waits for its own node, and two
// leaves must not keep it both.
TEST(Backward, GradientsThatShareMemoryStayApart) {
  const Tensor x = leaf({1, 2, 3, 4}), y = leaf({5, 6, 7, 8});
  const Tensor a = x * 2.0, b = y * 3.0, other_use = b * constant({10, 20, 30, 40});
  const Tensor joined = a.reshape({2, 2}) + b.reshape({2, 2});  // the gradients of both are views of one
  sum(joined * constant({1, 2, 3, 4}).reshape({2, 2}) + other_use.reshape({2, 2})).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(y.grad().to_vector<double>(), (std::vector<double>{33, 66, 99, 132}));

  const Tensor first = leaf({1, 2}), second = leaf({3, 4});
  sum((first.reshape({2, 1}) + second.reshape({2, 1})) * 5.0).backward();
  EXPECT_NE(first.grad().storage(), second.grad().storage());
}

TEST(Backward, SumsOverBroadcastDimensions) {
  const Tensor a = leaf({1, 2, 3}), b = full({2, 1}, 2, {.dtype = float64, .requires_grad = true}),
               c = full({}, 3, {.dtype = float64, .requires_grad = true});
  sum(a * b * c).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{12, 12, 12}));
  EXPECT_EQ(b.grad().shape(), Shape({2, 1}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{18, 18}));
  EXPECT_EQ(c.grad().shape(), Shape());
  EXPECT_EQ(c.grad().item<double>(), 24);
}

TEST(Backward, GradientsComeInTheInputsDtype) {
  const Tensor h = ones({2}, {.dtype = float16, .requires_grad = true}), f = ones({2}, {.requires_grad = true});
  sum(h * f).backward();
  EXPECT_EQ(h.grad().dtype(), float16);
  EXPECT_EQ(f.grad().dtype(), float32);
}

TEST(Backward, Errors) {
  const Tensor x = leaf({1, 2}), y = x * x;
  expect_error([&] { y.backward(); }, {"[2]", "gradient is needed"});
  expect_error([&] { y.backward(constant({1})); }, {"[1]", "[2]"});
  expect_error([&] { constant({1}).backward(); }, {"does not depend", "create_graph"});
  expect_error([&] { backward({}); }, {"no outputs"});
  expect_error([&] { backward({Tensor()}); }, {"undefined"});
  const Tensor loss = sum(y);
  loss.backward();
  expect_error([&] { loss.backward(); }, {"mul", "retain_graph"});
  expect_error([&] { sum(y).backward(); }, {"mul", "retain_graph"});
  const Tensor z = sum(x * x);
  z.backward({}, true);
  z.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 12}));
}

TEST(Leaves, DetachNoGradAndSwitching) {
  Tensor x = leaf({1, 2});
  EXPECT_FALSE((x.detach() * 2.0).requires_grad());
  {
    NoGrad off;
    EXPECT_FALSE((x * 2.0).requires_grad());
    GradMode on(true);
    EXPECT_TRUE((x * 2.0).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
  Tensor y = x * 2.0;
  EXPECT_FALSE(y.is_leaf());
  expect_error([&] { y.set_requires_grad(false); }, {"only leaves", "mul"});
  expect_error([&] { arange(0, 2).set_requires_grad(true); }, {"int64"});
  x.set_requires_grad(false);
  EXPECT_FALSE((x * 2.0).requires_grad());
  expect_error([&] { x.set_grad(constant({1})); }, {"set_grad", "[1]"});
}

TEST(Hooks, RunBeforeAndAfterAccumulation) {
  const Tensor x = leaf({1, 2});
  std::vector<std::string> log;
  Tensor h = x;
  h.register_hook([&](const Tensor& g) { return log.push_back("first"), g * 10.0; });
  const int64_t second = h.register_hook([&](const Tensor& g) {
    log.push_back("second " + std::to_string(g[0].item<int64_t>()));
    return Tensor();
  });
  h.register_post_accumulate_hook(
      [&](const Tensor& t) { log.push_back("after " + std::to_string(t.grad()[1].item<int64_t>())); });
  sum(x * x).backward();
  EXPECT_EQ(log, (std::vector<std::string>{"first", "second 20", "after 40"}));
  h.remove_hook(second);
  log.clear();
  sum(x * x).backward();
  EXPECT_EQ(log, (std::vector<std::string>{"first", "after 80"}));
  log.clear();
  EXPECT_EQ(grad({sum(x * x)}, {x})[0].to_vector<double>(), (std::vector<double>{20, 40}));  // as in PyTorch
  EXPECT_EQ(log, (std::vector<std::string>{"first"}));
}

TEST(Hooks, OnIntermediateTensorsAndFromHooks) {
  const Tensor x = leaf({3});
  Tensor y = x * 2.0;
  int calls = 0;
  int64_t handle = 0;
  handle = y.register_hook([&](const Tensor& g) {
    ++calls;
    y.remove_hook(handle);  // a hook may remove itself while it runs
    y.register_hook([](const Tensor&) { return Tensor(); });
    return g * 5.0;
  });
  y.retain_grad();
  y.retain_grad();
  sum(y * y).backward({}, true);
  EXPECT_EQ(x.grad().item<double>(), 120);
  EXPECT_EQ(y.grad().item<double>(), 60);
  sum(y * y).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(x.grad().item<double>(), 144);
  EXPECT_EQ(y.grad().item<double>(), 72);
}

TEST(Hooks, ALeafsGradientIsCompleteBeforeOlderOpsRun) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  std::vector<std::string> log;
  Tensor(x).register_post_accumulate_hook([&](const Tensor&) { log.push_back("x"); });
  Tensor(w).register_post_accumulate_hook([&](const Tensor&) { log.push_back("w"); });
  Tensor y = x * 2.0;
  y.register_hook([&](const Tensor&) { return log.push_back("y"), Tensor(); });
  sum(y * w).backward();
  EXPECT_EQ(log, (std::vector<std::string>{"w", "y", "x"}));
}

TEST(Hooks, BadReplacementsAndExceptionsAreErrors) {
  Tensor x = leaf({1, 2});
  const int64_t bad = x.register_hook([](const Tensor&) { return zeros({3}); });
  expect_error([&] { sum(x * 2.0).backward(); }, {"hook returned", "[3]", "[2]"});
  EXPECT_FALSE(x.grad().defined());
  x.remove_hook(bad);
  Tensor y = x * x;
  const int64_t thrower = y.register_hook([](const Tensor&) -> Tensor { fail("planted"); });
  expect_error([&] { sum(y).backward(); }, {"planted"});
  y.remove_hook(thrower);
  EXPECT_TRUE(grad_enabled());
  sum(y).backward();  // the failed run freed and accumulated nothing
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4}));
  expect_error([&] { constant({1}).register_hook([](const Tensor& g) { return g; }); }, {"register_hook"});
  expect_error([&] { y.register_post_accumulate_hook([](const Tensor&) {}); }, {"only leaves"});
}

TEST(Saved, NoticesInPlaceChanges) {
  Generator g = fresh_generator();
  Tensor x = randn({2, 4}, g, {.requires_grad = true}), w = ones({4});
  Tensor y = layer_norm(x, w, {});
  w.add_(1);
  expect_error([&] { sum(y).backward(); }, {"layer_norm: a tensor needed for backward", "float32 [4] on cpu",
                                            "modified in place", "version 1, expected 0"});
  Tensor z = tanh(x);
  z.mul_(2);
  expect_error([&] { sum(z).backward(); }, {"tanh", "modified in place"});
  Tensor targets = zeros({2}, {.dtype = int64});
  const Tensor loss = cross_entropy(x, targets);
  targets.fill_(99);
  expect_error([&] { loss.backward(); }, {"cross_entropy", "modified in place"});
  for (const bool scatters : {false, true}) {
    Tensor factor = ones({2, 4});
    const Tensor product = x * factor;
    if (scatters)
      factor.index_fill_(0, zeros({1}, {.dtype = int64}), 2);
    else
      factor.index_put_({1}, 2);
    expect_error([&] { sum(product).backward(); }, {"mul", "modified in place"});
  }
  const SequenceLayout layout = packed_layout({2});
  const Tensor attended = self_attention(randn({2, 3, 1, 4}, g, {.requires_grad = true}), layout);
  Tensor(layout.offsets).fill_(1000);
  expect_error([&] { sum(attended).backward(); }, {"attention", "modified in place"});
}

TEST(InPlace, OnLeavesAndViews) {
  Tensor x = leaf({1, 2});
  expect_error([&] { x.add_(1); }, {"add_", "leaf", "NoGrad"});
  expect_error([&] { x.fill_(1); }, {"fill_", "leaf"});
  expect_error([&] { x.copy_(constant({1, 1})); }, {"copy_", "leaf"});
  without_grad([&] { x.add_(1); });
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{2, 3}));
  Tensor y = x * 1.0, view = y.slice(0, 0, 1);
  expect_error([&] { view.mul_(2); }, {"mul_", "view"});
  Tensor buffer = zeros({2, 2}, {.dtype = float64});
  expect_error([&] { buffer[0].copy_(x); }, {"copy_", "view"});  // the base's history would lack the copy
  y.mul_(2);
  expect_error([&] { view * 2.0; }, {"mul", "view whose base was modified"});
  expect_error([&] { view.backward(); }, {"view whose base was modified"});
}

TEST(InPlace, IsDifferentiable) {
  const Tensor x = leaf({1, 2}), w = leaf({5, 7});
  Tensor y = x * 3.0;
  y.mul_(w);  // y.mul_ needs the old y
  y.add_(x, 0.5);
  y.mul_(y);
  y.sub_(w).div_(constant({2, 4}));
  sum(y).backward();
  // y = ((3 x w + x / 2)^2 - w) / d
  for (int i = 0; i < 2; ++i) {
    const double a = i + 1, b = i ? 7 : 5, d = i ? 4 : 2, root = 3 * a * b + a / 2;
    EXPECT_NEAR(x.grad()[i].item<double>(), 2 * root * (3 * b + 0.5) / d, 1e-12);
    EXPECT_NEAR(w.grad()[i].item<double>(), (2 * root * 3 * a - 1) / d, 1e-12);
  }
  gradcheck(
      [](const std::vector<Tensor>& in) {
        Tensor z = in[0] * 1.0;
        z.mul_(in[1]).add_(2);
        Tensor u = zeros({2}, {.dtype = float64});
        u.copy_(z);
        return u.mul_(z);
      },
      {x, w}, {.second = true});
  expect_error([] { gradcheck([](const std::vector<Tensor>& in) { return in[0]; }, {ones({2}, {.dtype = float64})}); },
               {"gradcheck", "set_requires_grad(true)"});
}

TEST(InPlace, ConstantsReplaceHistory) {
  const Tensor x = leaf({1, 2});
  for (const bool copy : {false, true}) {
    Tensor y = x * 2.0;
    if (copy)
      y.copy_(constant({4, 4}));
    else
      y.fill_(4);
    const Tensor g = grad({sum(y * x)}, {x})[0];
    EXPECT_EQ(g.to_vector<double>(), (std::vector<double>{4, 4}));
  }
  Tensor ints = zeros({2}, {.dtype = int64});
  ints.copy_(x);
  EXPECT_FALSE(ints.requires_grad());
}

TEST(InPlace, RetainedGradientsFollowTheNewValue) {
  const Tensor x = leaf({3});
  Tensor y = x * 2.0;
  double before = 0, after = 0;
  y.retain_grad();
  y.register_hook([&](const Tensor& g) { return before = g.item<double>(), Tensor(); });
  y.mul_(5);
  y.register_hook([&](const Tensor& g) { return after = g.item<double>(), Tensor(); });
  sum(y * 7.0).backward();
  EXPECT_EQ(before, 35);
  EXPECT_EQ(after, 7);
  EXPECT_EQ(y.grad().item<double>(), 7);
}

TEST(Grad, OfInputsOnly) {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4}), unused = leaf({5});
  const Tensor middle = x * y, out = sum(middle * middle);
  const std::vector<Tensor> grads = grad({out}, {middle, x}, {.retain_graph = true});
  EXPECT_EQ(grads[0].to_vector<double>(), (std::vector<double>{6, 16}));
  EXPECT_EQ(grads[1].to_vector<double>(), (std::vector<double>{18, 64}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(y.grad().defined());
  EXPECT_EQ(grad({out}, {out}, {.retain_graph = true})[0].item<double>(), 1);
  expect_error([&] { grad({out}, {unused}, {.retain_graph = true}); }, {"input 0", "allow_unused"});
  EXPECT_FALSE(grad({out}, {unused}, {.retain_graph = true, .allow_unused = true})[0].defined());
  expect_error([&] { grad({out}, {constant({1})}); }, {"does not require"});
  // Nodes that did not run are not freed: x * y comes before the given input.
  const Tensor other = x * y, sum_of = sum(other * other);
  grad({sum_of}, {other});
  sum(other).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 4}));
}

/// A user's op: it has two derivatives.
struct Cube {
  static constexpr const char* name = "cube";
  static constexpr auto saves = kernels::Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return x * x * x;
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(3) * x * x;
  }
};

TEST(Grad, OfGradients) {
  const Tensor x = leaf({2}), y = pow(x, 4);
  const Tensor first = grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_NEAR(first.item<double>(), 32, 1e-12);
  const Tensor second = grad({first}, {x}, {.create_graph = true})[0];
  EXPECT_NEAR(second.item<double>(), 48, 1e-12);
  const Tensor third = grad({second}, {x}, {.create_graph = true})[0];
  EXPECT_NEAR(third.item<double>(), 48, 1e-12);
  EXPECT_NEAR(grad({third}, {x})[0].item<double>(), 24, 1e-12);
  const Tensor own = pointwise(Cube{}, x);
  const Tensor slope = grad({own}, {x}, {.create_graph = true})[0];
  const Tensor bend = grad({slope}, {x}, {.create_graph = true})[0];
  EXPECT_NEAR(bend.item<double>(), 12, 1e-12);
  expect_error([&] { grad({bend}, {x}); }, {"cube", "differentiated again", "no third"});
  sum(x * x * x).backward({}, false, true);
  EXPECT_TRUE(x.grad().requires_grad());
  EXPECT_NEAR(grad({x.grad()}, {x})[0].item<double>(), 12, 1e-12);
  Tensor(x).set_grad({});  // x.grad() has a graph that holds x
}

/// A function whose backward calls no differentiable op.
struct Opaque final : Function<Opaque> {
  static constexpr const char* kName = "opaque";
  Saved w_;
  Tensor forward(const Tensor& x, const Tensor& w) {
    w_ = w;
    return mul(x, w);
  }
  Grads backward(const Tensor& dy) override { return {mul(dy, w_.get()), dy}; }
};

TEST(Grad, SecondDerivativeThroughAKernelNamesTheOp) {
  Generator g = fresh_generator();
  const Tensor x = test::leaf({2, 3}, g), w = test::leaf({3}, g), elsewhere = test::leaf({3}, g);
  const std::vector<Tensor> first = grad({sum(square(Opaque::apply(x, w)))}, {x, w}, {.create_graph = true});
  expect_error([&] { sum(first[0]).backward(); }, {"opaque", "differentiated again", "TwiceDifferentiable"},
               {"kernel"});
  expect_error([&] { grad({sum(first[1])}, {w}); }, {"opaque", "differentiated again"});
  expect_error([&] { grad({sum(first[1])}, {x}); }, {"opaque", "differentiated again"});
  // The error occurs only when that derivative is needed.
  const Tensor other = sum(first[0] * elsewhere);
  EXPECT_EQ(grad({other}, {elsewhere})[0].to_vector<double>(), sum(first[0], {0}).to_vector<double>());
}

TEST(Chains, OfAMillionNodes) {
  const auto build = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = y + 0.5;
    return y;
  };
  const Tensor x = leaf({1});
  build(x).backward();
  EXPECT_EQ(x.grad().item<double>(), 1);
  EXPECT_EQ(build(x).item<double>(), 500001);  // freed without backward
}

TEST(Chains, ThroughSavedTensors) {
  const Tensor x = leaf({1});
  const auto build = [&] {
    Tensor y = x;
    for (int i = 0; i < 200'000; ++i) y = y * x;  // every node holds the previous tensor
    return y;
  };
  EXPECT_EQ(build().item<double>(), 1);
  build().backward();
  EXPECT_EQ(x.grad().item<double>(), 200'001);
}

TEST(Threads, EachWithASeparateGraph) {
  std::vector<double> results(4);
  const Tensor shared = constant({2});
  in_threads(results.size(), [&](size_t t) {
    const Tensor x = leaf({static_cast<double>(t)});
    for (int i = 0; i < 200; ++i) {
      NoGrad off;
      GradMode on(true);
      sum(x * x * shared).backward();
    }
    results[t] = x.grad().item<double>();
  });
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], 800.0 * static_cast<double>(t));
}

TEST(Memory, GraphsAreFreed) {
  const int64_t before = allocator(cpu).statistics().live_bytes;
  {
    Generator g = fresh_generator();
    const Tensor x = test::leaf({8, 8}, g);
    const Tensor y = tanh(softmax(matmul(x, x)));
    Tensor z = y * 2.0;
    z.mul_(x).retain_grad();
    const Tensor g1 = grad({sum(z)}, {x}, {.create_graph = true})[0];
    sum(g1).backward();
    self_attention(randn({4, 3, 2, 4}, g, {.requires_grad = true}), packed_layout({4}));
  }
  EXPECT_EQ(allocator(cpu).statistics().live_bytes, before);
}

/// A callback of a hook runs once, at the end of the outermost backward, although another backward ran inside.
TEST(Autograd, CallbacksRunAfterTheOutermostBackward) {
  const Tensor x = full({3}, 2, {.requires_grad = true}), z = full({3}, 5, {.requires_grad = true});
  Tensor y = x * 2.0;
  const Tensor inner = sum(square(z));
  std::vector<bool> calls;
  y.register_hook([&](const Tensor&) {
    after_backward([&](bool completed) { calls.push_back(completed); });
    inner.backward();
    EXPECT_TRUE(calls.empty());
    return Tensor();
  });
  sum(y).backward();
  EXPECT_EQ(calls, std::vector<bool>{true});
  EXPECT_EQ(z.grad().to_vector<double>(), std::vector<double>(3, 10));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 2));
}

}  // namespace
}  // namespace tern::test
