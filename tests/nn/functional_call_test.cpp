// nn::functional_call: other tensors in place of a module's own.
#include <cmath>
#include <stdexcept>

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/autograd/engine.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/fresh.h"

namespace tern::test {
namespace {

struct Body final : nn::Module {
  explicit Body(const nn::Scope& s)
      : Module(s),
        first(sub("first"), 3, 4),
        norm(sub("norm"), 4),
        scale(this, "scale", ones({4}, {.dtype = float64})) {}
  Tensor forward(const Tensor& x) const { return norm.forward(gelu(first.forward(x))) * scale; }
  nn::Linear first;
  nn::LayerNorm norm;
  nn::Buffer scale;
};
struct Net final : nn::Module {
  explicit Net(const nn::Scope& s) : Module(s), body(sub("body")), last(sub("last"), 4, 2) {}
  Tensor forward(const Tensor& x) const { return last.forward(body.forward(x)); }
  Body body;
  nn::Linear last;
};

nn::Scope fresh_scope() { return nn::Scope({.dtype = float64, .generator = fresh_generator(1)}); }

/// Fresh tensors of the same names and shapes.
StateView others_of(const StateView& state, uint64_t salt) {
  StateView others;
  for (const NamedTensor& entry : state)
    others.push_back({entry.name, fresh_normal(entry.tensor.shape(), salt++, float64)});
  return others;
}

TEST(FunctionalCall, IsTheModuleThatHasTheseWeights) {
  const Net net(fresh_scope());
  Net copy(fresh_scope());
  const Tensor x = fresh_normal({5, 3}, 1, float64), before = net.forward(x);
  const StateView others = others_of(net.state_dict(), 2);  // with the buffer
  ASSERT_EQ(others.size(), 7u);
  copy.load_state_dict(others);
  const Tensor y = nn::functional_call(net, others, [&] { return net.forward(x); });
  EXPECT_EQ(y.to_vector<double>(), copy.forward(x).to_vector<double>());
  EXPECT_EQ(net.forward(x).to_vector<double>(), before.to_vector<double>());  // the module's own again

  // Some of them; the others are the module's own.
  copy.load_state_dict(net.state_dict());
  copy.load_state_dict({others[0], others[6]}, {.strict = false});
  EXPECT_EQ(nn::functional_call(net, {others[0], others[6]}, [&] { return net.forward(x); }).to_vector<double>(),
            copy.forward(x).to_vector<double>());
  // A part of a module, by names that are relative to it.
  const Tensor weight = fresh_normal({4, 3}, 20, float64);
  EXPECT_EQ(
      nn::functional_call(net.body, {{"first.weight", weight}}, [&] { return net.forward(x); }).to_vector<double>(),
      nn::functional_call(net, {{"body.first.weight", weight}}, [&] { return net.forward(x); }).to_vector<double>());
}

TEST(FunctionalCall, GradientsReachTheGivenTensors) {
  const Net net(fresh_scope());
  const Tensor x = fresh_normal({5, 3}, 1, float64), factor = fresh_normal({}, 2, float64).set_requires_grad(true);
  const Tensor base = fresh_normal({4, 3}, 3, float64), bias = net.body.first.bias();
  const auto loss = [&](const Tensor& w) {
    return sum(square(nn::functional_call(net, {{"body.first.weight", w}}, [&] { return net.forward(x); })));
  };
  loss(base * factor).backward();
  EXPECT_FALSE(net.body.first.weight().grad().defined());
  EXPECT_TRUE(bias.grad().defined());
  const double h = 1e-6, by_difference = (loss(base * (factor.detach() + h)).item<double>() -
                                          loss(base * (factor.detach() - h)).item<double>()) /
                                         (2 * h);
  EXPECT_NEAR(factor.grad().item<double>(), by_difference, 1e-6 * (1 + std::abs(by_difference)));
}

TEST(FunctionalCall, DifferentiatesThroughAStepOfGradientDescent) {
  const nn::Linear net(fresh_scope(), 1, 1, {.bias = false});
  const double w = net.weight().tensor().item<double>(), rate = 0.1;
  const Tensor x = full({1, 1}, 2, {.dtype = float64}), y = full({1, 1}, 3, {.dtype = float64});
  StateView fast = net.parameters();
  for (int step = 0; step < 2; ++step) {
    const Tensor inner = nn::functional_call(net, fast, [&] { return sum(square(net.forward(x) - y)); });
    const auto slopes = grad({inner}, tensors_of(fast), {.create_graph = true});
    fast[0].tensor = fast[0].tensor - rate * slopes[0];
  }
  sum(nn::functional_call(net, fast, [&] { return net.forward(y); })).backward();
  // A step maps w to w (1 - 2 rate x^2) + const.
  const double keep = 1 - 2 * rate * 4;
  EXPECT_NEAR(net.weight().grad().item<double>(), 3 * keep * keep, 1e-12);
  EXPECT_EQ(net.weight().tensor().item<double>(), w);
}

struct Tied final : nn::Module {
  explicit Tied(const nn::Scope& s)
      : Module(s), word(sub("word"), 5, 3), head(sub("head"), 3, 5, {.bias = false, .weight = share(word.weight())}) {}
  Tensor forward(const Tensor& ids) const { return head.forward(word.forward(ids)); }
  nn::Embedding word;
  nn::Linear head;
};

TEST(FunctionalCall, ReplacesASharedTensorEverywhere) {
  const Tied net(fresh_scope());
  Tied copy(fresh_scope());
  const Tensor ids = arange(0, 5), weight = fresh_normal({5, 3}, 2, float64);
  copy.load_state_dict({{"word.weight", weight}});
  for (const char* name : {"word.weight", "head.weight"})
    EXPECT_EQ(nn::functional_call(net, {{name, weight}}, [&] { return net.forward(ids); }).to_vector<double>(),
              copy.forward(ids).to_vector<double>());
  expect_error(
      [&] {
        nn::functional_call(net, {{"word.weight", weight}, {"head.weight", weight}}, [] {});
      },
      {"functional_call", "given twice: head.weight"});
}

TEST(FunctionalCall, NestsAndEndsWithExceptions) {
  const nn::Linear net(fresh_scope(), 1, 1, {.bias = false});
  const double own = net.weight().tensor().item<double>();
  const auto now = [&] { return net.forward(ones({1, 1}, {.dtype = float64})).item<double>(); };
  const auto with = [&](double value, const auto& fn) {
    return nn::functional_call(net, {{"weight", full({1, 1}, value, {.dtype = float64})}}, fn);
  };
  with(2, [&] {
    EXPECT_EQ(now(), 2);
    EXPECT_EQ(with(3, now), 3);
    EXPECT_EQ(now(), 2);
    EXPECT_THROW(with(4, []() -> double { throw std::runtime_error("stop"); }), std::runtime_error);
    EXPECT_EQ(now(), 2);
    EXPECT_EQ(net.parameters()[0].tensor.item<double>(), own);
    EXPECT_EQ(net.state_dict()[0].tensor.item<double>(), own);
  });
  EXPECT_EQ(now(), own);
}

TEST(FunctionalCall, Errors) {
  const Net net(fresh_scope());
  bool called = false;
  const auto with = [&](const StateView& tensors) {
    return [&net, &called, tensors] { nn::functional_call(net, tensors, [&] { called = true; }); };
  };
  const Tensor good = zeros({2}, {.dtype = float64});
  expect_error(with({{"last.bias", good}, {"last.basi", good}, {"x", good}}), {"unexpected: last.basi; unexpected: x"});
  expect_error(with({{"last.bias", zeros({3}, {.dtype = float64})}}),
               {"last.bias is float64 [3] on cpu, expected float64 [2] on cpu"});
  expect_error(with({{"last.bias", zeros({2})}}), {"float32 [2]", "expected float64 [2]"});
  expect_error(with({{"last.bias", Tensor()}}), {"undefined", "expected float64 [2]"});
  EXPECT_FALSE(called);
  with({{"last.bias", good}})();
  EXPECT_TRUE(called);
}

TEST(FunctionalCall, RecomputationSeesTheSameTensors) {
  const nn::Linear net(fresh_scope(), 3, 4, {.bias = false});
  const Tensor x = fresh_normal({2, 3}, 1, float64);
  Tensor weight = fresh_normal({4, 3}, 2, float64).set_requires_grad(true);
  // x^4, so that the gradient depends on what is computed again.
  const auto forward = [&](const Tensor& in) { return square(square(net.forward(in))); };
  const auto with = [&](const Tensor& w, const auto& fn) { return nn::functional_call(net, {{"weight", w}}, fn); };
  const auto gradient = [&](const auto& run) {
    weight.set_grad({});
    run();
    return weight.grad().to_vector<double>();
  };
  const auto expected = gradient([&] { with(weight, [&] { return sum(forward(x)); }).backward(); });
  const auto again = [&] { return sum(checkpoint(forward, x)); };
  // backward during the call, after it, and during another one.
  EXPECT_EQ(gradient([&] { with(weight, [&] { again().backward(); }); }), expected);
  EXPECT_EQ(gradient([&] { with(weight, again).backward(); }), expected);
  const Tensor other = fresh_normal({4, 3}, 3, float64);
  EXPECT_EQ(gradient([&] {
              const Tensor y = with(weight, again);
              with(other, [&] { y.backward(); });
            }),
            expected);
  // A call within the checkpoint, and a checkpoint of the module's own weight that is computed again in a call.
  EXPECT_EQ(gradient([&] {
              const Tensor y =
                  checkpoint([&](const Tensor& in) { return with(weight, [&] { return forward(in); }); }, x);
              with(other, [&] { sum(y).backward(); });
            }),
            expected);
  const Tensor y = again();
  with(other, [&] { with(weight, [&] { y.backward(); }); });
  const auto own = net.weight().grad().to_vector<double>();
  Tensor plain = net.weight();
  plain.set_grad({});
  sum(forward(x)).backward();
  EXPECT_EQ(net.weight().grad().to_vector<double>(), own);
}

}  // namespace
}  // namespace tern::test
