// checkpoint(): bit-equal to a plain call, with less memory in between, and its errors.

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/autograd/function.h"
#include "tern/core/memory/allocator.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

Tensor single(const Shape& shape, Generator& generator) { return randn(shape, generator, {.requires_grad = true}); }

/// A block with everything that can be saved for backward: inputs, outputs, statistics, masks.
struct Block {
  explicit Block(Generator& generator)
      : w1(single({33, 17}, generator)),
        b1(single({33}, generator)),
        w2(single({17, 33}, generator)),
        gamma(single({17}, generator)) {}
  Tensors parameters() const { return {w1, b1, w2, gamma}; }
  Tensor forward(const Tensor& x, Generator& random) const {
    const Tensor h = dropout(tanh(linear(x, w1, b1, Activation::kGelu)), {.p = 0.3, .generator = &random});
    return softmax(layer_norm(add(linear(h, w2, Tensor()), x), gamma, Tensor(), 1e-5));
  }
  Tensor w1, b1, w2, gamma;
};

struct Outcome {
  Tensors tensors;
  uint64_t offset;
  int64_t kept_bytes;
};

template <class Forward>
Outcome run(const Block& block, const Tensor& x, DType dtype, const Forward& forward) {
  for (Tensor t : block.parameters()) t.set_grad(Tensor());
  Tensor(x).set_grad(Tensor());
  Generator random = fresh_generator(5);  // draws the same dropout in each run
  const int64_t before = allocator(cpu).statistics().live_bytes;
  Tensor y = autocast(cpu, dtype, [&] { return forward(random); });
  const int64_t kept = allocator(cpu).statistics().live_bytes - before;
  sum(mul(y, y)).backward();
  Outcome outcome{{y.detach()}, random.offset(), kept};
  for (const Tensor& t : block.parameters()) outcome.tensors.push_back(t.grad());
  if (x.requires_grad()) outcome.tensors.push_back(x.grad());
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& want) {
  expect_equal(got.tensors, want.tensors);
  EXPECT_EQ(got.offset, want.offset);
}

TEST(CheckpointTest, GivesTheBitsOfAPlainCall) {
  for (const DType dtype : {float32, bfloat16})
    for (const bool input_has_gradient : {true, false}) {
      Generator generator = fresh_generator(2 * (dtype == bfloat16) + input_has_gradient);
      const Block block(generator);
      const Tensor x = randn({29, 17}, generator).set_requires_grad(input_has_gradient);
      const Outcome plain = run(block, x, dtype, [&](Generator& random) {
        return block.forward(block.forward(block.forward(x, random), random), random);
      });
      const Outcome each = run(block, x, dtype, [&](Generator& random) {
        Tensor h = x;
        for (int i = 0; i < 3; ++i) h = checkpoint([&](const Tensor& in) { return block.forward(in, random); }, h);
        return h;
      });
      expect_same(each, plain);
      EXPECT_LT(each.kept_bytes, plain.kept_bytes / 3);
      const Outcome nested = run(block, x, dtype, [&](Generator& random) {
        const auto once = [&](const Tensor& in) { return block.forward(in, random); };
        const auto twice = [once](const Tensor& in) { return checkpoint(once, in); };
        const auto all = [once, twice](const Tensor& in) { return checkpoint(twice, checkpoint(once, once(in))); };
        return checkpoint(all, x);
      });
      expect_same(nested, plain);
      EXPECT_LT(nested.kept_bytes, each.kept_bytes);
    }
}

// The gradient inside fn runs the inner function again while the outer one is in its own second run.
TEST(CheckpointTest, DrawsWhenFnTakesAGradientThroughACheckpoint) {
  Generator generator = fresh_generator();
  const Tensor x = single({5, 7}, generator);
  const auto gradients = [&](bool recompute) {
    Generator random = fresh_generator(1);
    const auto drop = [&](const Tensor& in) { return tanh(dropout(exp(in), {.p = 0.5, .generator = &random})); };
    const auto fn = [&](const Tensor& in) {
      const Tensor u = in.detach().clone().set_requires_grad(true);
      const Tensor dropped = recompute ? checkpoint(drop, u) : drop(u);
      return mul(tanh(in), grad({sum(dropped)}, {u})[0]);
    };
    return grad({sum(recompute ? checkpoint(fn, x) : fn(x))}, {x});
  };
  expect_equal(gradients(true), gradients(false));
}

TEST(CheckpointTest, AutocastEndsBeforeBackwardAndIsRestored) {
  Generator generator = fresh_generator();
  const Tensor w = single({8, 8}, generator), x = single({5, 8}, generator);
  const auto forward = [&](const Tensor& in) { return tanh(linear(tanh(linear(in, w, Tensor())), w, Tensor())); };
  const auto gradients = [&](bool recompute) {
    const Tensor y = autocast(cpu, bfloat16, [&] { return recompute ? checkpoint(forward, x) : forward(x); });
    EXPECT_EQ(y.dtype(), bfloat16);
    return grad({sum(y.to(float32))}, {w, x});
  };
  expect_equal(gradients(true), gradients(false));
}

TEST(CheckpointTest, SeveralInputsAndOutputs) {
  Generator generator = fresh_generator();
  const Tensor a = single({4, 6}, generator), b = single({4, 6}, generator), captured = single({6}, generator);
  const Tensor index = from_vector(std::vector<int64_t>{2, 0, 1}, {3});
  const auto fn = [captured](const Tensor& u, const Tensor& v, const Tensor& rows) {
    const Tensor p = exp(mul(u, captured));
    return Tensors{index_select(p, 0, rows), sigmoid(v), index_select(mul(u, v), 0, rows)};
  };
  const auto total = [](const Tensors& y) { return add(sum(mul(y[0], y[2])), mean(y[1])); };
  const Tensors plain = grad({total(fn(a, b, index))}, {a, b, captured});
  const Tensors outputs = checkpoint(fn, a, b, index);
  ASSERT_EQ(outputs.size(), 3u);
  expect_equal(grad({total(outputs)}, {a, b, captured}), plain);
  // With one output only, and backward twice.
  const Tensors again = checkpoint(fn, a, b, index);
  const GradOptions keep{.retain_graph = true};
  const Tensors first = grad({sum(again[0])}, {a}, keep), second = grad({sum(again[0])}, {a}, keep);
  expect_equal(first, second);
  expect_equal(first, grad({sum(fn(a, b, index)[0])}, {a}));
}

TEST(CheckpointTest, NothingToRecord) {
  Generator generator = fresh_generator();
  const Tensor x = randn({3, 3}, generator), w = single({3, 3}, generator);
  int calls = 0;
  const auto fn = [&](const Tensor& in) {
    ++calls;
    return tanh(matmul(in, w));
  };
  without_grad([&] { EXPECT_FALSE(checkpoint(fn, x).requires_grad()); });
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(checkpoint([](const Tensor& in) { return exp(in); }, x).requires_grad());
  const Tensor y = checkpoint(fn, x);
  EXPECT_EQ(calls, 2);
  sum(y).backward();
  EXPECT_EQ(calls, 3);  // one more run, regardless of the number of saved tensors
}

/// Counts its runs; saves a buffer before filling it, like the ops with an activation.
struct Doubled final : Function<Doubled> {
  static constexpr const char* kName = "doubled";
  Saved factor_;
  Tensor forward(const Tensor& x, int* runs) {
    ++*runs;
    Tensor factor = empty(x.shape(), x.options());
    factor_ = factor;
    std::fill_n(factor.data<float>(), factor.numel(), 2.0f);
    return mul(x, factor);
  }
  Grads backward(const Tensor& gradient) override { return {mul(gradient, factor_.get())}; }
};

TEST(CheckpointTest, TheSecondRunEndsWithTheLastSavedTensor) {
  Generator generator = fresh_generator();
  const Tensor x = single({5, 7}, generator), w = single({6, 7}, generator), b = single({6}, generator);
  int runs = 0, rest = 0;
  const auto fn = [&](const Tensor& in) {
    Tensor h = Doubled::apply(linear(in, w, b, Activation::kGelu), &runs);
    ++rest;
    h = add(h, 1.0);  // saves nothing: the second run ends before it
    ++rest;
    return h;
  };
  const auto expect_recomputed = [&](const auto& function) {
    const Tensors plain = grad({sum(mul(function(x), 3.0))}, {x, w, b});
    expect_equal(grad({sum(mul(checkpoint(function, x), 3.0))}, {x, w, b}), plain);
  };
  expect_recomputed(fn);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(rest, 5);  // the op that saves last runs to its end; later code does not
  // An op with an activation fills its saved tensor after saving it.
  expect_recomputed([&](const Tensor& in) { return linear(in, w, b, Activation::kGelu); });
  // A product at the end is not repeated, even if fn catches exceptions.
  expect_recomputed([&](const Tensor& in) {
    try {
      return linear(tanh(in), w, b);
    } catch (const std::exception&) {
      fail("not for fn to see");
    }
  });
}

TEST(CheckpointTest, Errors) {
  Generator generator = fresh_generator();
  Tensor x = single({4, 4}, generator), w = single({4, 4}, generator);
  const auto forward = [&](const Tensor& in) { return tanh(matmul(in, w)); };
  for (Tensor* changed : {&w, &x}) {
    const Tensor y = checkpoint(forward, x);
    without_grad([&] { changed->mul_(2.0); });
    expect_error([&] { sum(y).backward(); }, {"modified in place"});
  }
  int calls = 0;
  const auto expect_differs = [&](const auto& fn, const std::string& part) {
    calls = 0;
    const Tensor y = checkpoint(fn, x);
    expect_error([&] { sum(y).backward(); }, {part});
  };
  expect_differs(
      [&](const Tensor& in) {
        return tanh(calls++ > 0 ? in.reshape({2, 8}) : in).reshape({4, 4});
      },
      "compute the same");
  expect_differs([&](const Tensor& in) { return calls++ > 0 ? tanh(in) : exp(tanh(in)); }, "compute the same");
  // As many tensors of the same shape, of another op.
  expect_differs([&](const Tensor& in) { return calls++ > 0 ? exp(in) : square(in); },
                 "exp saved float32 [4, 4] on cpu where in the first run of fn square saved float32 [4, 4]");
  Generator random = fresh_generator(7);
  const auto drawing = [&](const Tensor& in) {
    if (calls++ > 0) random.next();
    return tanh(in);
  };
  expect_differs(drawing, "random");
  const auto throwing = [&](const Tensor&) -> Tensor { fail("the function's own error"); };
  expect_error([&] { checkpoint(throwing, x); }, {"own error"});
  // After these errors the thread's state is valid.
  sum(tanh(x)).backward();

  const Tensor y = checkpoint([](const Tensor& in) { return mul(in, mul(in, in)); }, x);
  expect_error([&] { grad({sum(y)}, {x}, {.create_graph = true}); }, {"second derivative"});
}

TEST(CheckpointTest, ALongChainIsFreedWithoutRecursion) {
  Tensor x = ones({1}).set_requires_grad(true);
  Tensor h = x;
  for (int i = 0; i < 100'000; ++i) h = checkpoint([](const Tensor& in) { return mul(in, 1.0); }, h);
  h = Tensor();
}

}  // namespace
}  // namespace tern::test
