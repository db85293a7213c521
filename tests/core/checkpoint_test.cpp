// checkpoint(): bit-equal to a plain call, with less memory in between, and its errors.

#include <gtest/gtest.h>

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/checkpoint.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/fresh.h"

namespace tern::test {
namespace {

Tensor leaf(const Shape& shape, Generator& generator) { return randn(shape, generator).set_requires_grad(true); }

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_TRUE(a.defined() && b.defined()) << what;
  ASSERT_EQ(a.shape(), b.shape()) << what;
  EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>()) << what;
}

/// A block with everything that can be saved for backward: inputs, outputs, statistics, masks.
struct Block {
  explicit Block(Generator& generator)
      : w1(leaf({33, 17}, generator)),
        b1(leaf({33}, generator)),
        w2(leaf({17, 33}, generator)),
        gamma(leaf({17}, generator)) {}
  std::vector<Tensor> parameters() const { return {w1, b1, w2, gamma}; }
  Tensor forward(const Tensor& x, Generator& random) const {
    const Tensor h = dropout(tanh(linear(x, w1, b1, Activation::kGelu)), {.p = 0.3, .generator = &random});
    return softmax(layer_norm(add(linear(h, w2, Tensor()), x), gamma, Tensor(), 1e-5));
  }
  Tensor w1, b1, w2, gamma;
};

struct Outcome {
  std::vector<Tensor> tensors;
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

void expect_equal(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < want.tensors.size(); ++i) expect_same_bits(got.tensors[i], want.tensors[i], std::to_string(i));
  EXPECT_EQ(got.offset, want.offset);
}

TEST(CheckpointTest, GivesTheBitsOfAPlainCall) {
  for (const DType dtype : {float32, bfloat16}) {
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
      expect_equal(each, plain);
      EXPECT_LT(each.kept_bytes, plain.kept_bytes / 3);
      const Outcome nested = run(block, x, dtype, [&](Generator& random) {
        return checkpoint(
            [&](const Tensor& in) {
              const Tensor a = block.forward(in, random);
              const Tensor b = checkpoint([&](const Tensor& t) { return block.forward(t, random); }, a);
              return checkpoint(
                  [&](const Tensor& t) {
                    return checkpoint([&](const Tensor& u) { return block.forward(u, random); }, t);
                  },
                  b);
            },
            x);
      });
      expect_equal(nested, plain);
      EXPECT_LT(nested.kept_bytes, each.kept_bytes);
    }
  }
}

TEST(CheckpointTest, AutocastEndsBeforeBackwardAndIsRestored) {
  Generator generator = fresh_generator();
  const Tensor w = leaf({8, 8}, generator), x = leaf({5, 8}, generator);
  const auto forward = [&](const Tensor& in) { return tanh(linear(tanh(linear(in, w, Tensor())), w, Tensor())); };
  const auto gradients = [&](bool recompute) {
    const Tensor y = autocast(cpu, bfloat16, [&] { return recompute ? checkpoint(forward, x) : forward(x); });
    EXPECT_EQ(y.dtype(), bfloat16);
    return grad({sum(y.to(float32))}, {w, x});
  };
  const std::vector<Tensor> plain = gradients(false), recomputed = gradients(true);
  expect_same_bits(recomputed[0], plain[0], "w");
  expect_same_bits(recomputed[1], plain[1], "x");
}

TEST(CheckpointTest, SeveralInputsAndOutputs) {
  Generator generator = fresh_generator();
  const Tensor a = leaf({4, 6}, generator), b = leaf({4, 6}, generator), captured = leaf({6}, generator);
  const Tensor index = from_vector(std::vector<int64_t>{2, 0, 1}, {3});
  const auto fn = [captured](const Tensor& u, const Tensor& v, const Tensor& rows) {
    const Tensor p = exp(mul(u, captured));
    return std::vector<Tensor>{index_select(p, 0, rows), sigmoid(v), index_select(mul(u, v), 0, rows)};
  };
  const auto total = [](const std::vector<Tensor>& y) { return add(sum(mul(y[0], y[2])), mean(y[1])); };
  const std::vector<Tensor> plain = grad({total(fn(a, b, index))}, {a, b, captured});
  const std::vector<Tensor> outputs = checkpoint(fn, a, b, index);
  ASSERT_EQ(outputs.size(), 3u);
  const std::vector<Tensor> recomputed = grad({total(outputs)}, {a, b, captured});
  for (size_t i = 0; i < 3; ++i) expect_same_bits(recomputed[i], plain[i], std::to_string(i));
  // With one output only, and backward twice.
  const std::vector<Tensor> again = checkpoint(fn, a, b, index);
  const GradOptions keep{.retain_graph = true};
  const std::vector<Tensor> first = grad({sum(again[0])}, {a}, keep), second = grad({sum(again[0])}, {a}, keep);
  expect_same_bits(first[0], second[0], "twice");
  expect_same_bits(first[0], grad({sum(fn(a, b, index)[0])}, {a})[0], "one output");
}

TEST(CheckpointTest, NothingToRecord) {
  Generator generator = fresh_generator();
  const Tensor x = randn({3, 3}, generator), w = leaf({3, 3}, generator);
  int calls = 0;
  const auto fn = [&](const Tensor& in) {
    ++calls;
    return tanh(matmul(in, w));
  };
  {
    NoGrad off;
    EXPECT_FALSE(checkpoint(fn, x).requires_grad());
  }
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
  const Tensor x = leaf({5, 7}, generator), w = leaf({6, 7}, generator), b = leaf({6}, generator);
  int runs = 0, rest = 0;
  const auto fn = [&](const Tensor& in) {
    Tensor h = Doubled::apply(linear(in, w, b, Activation::kGelu), &runs);
    ++rest;
    h = add(h, 1.0);  // saves nothing: the second run ends before it
    ++rest;
    return h;
  };
  const std::vector<Tensor> plain = grad({sum(fn(x))}, {x, w, b});
  const Tensor y = checkpoint(fn, x);
  const std::vector<Tensor> recomputed = grad({sum(y)}, {x, w, b});
  for (size_t i = 0; i < 3; ++i) expect_same_bits(recomputed[i], plain[i], std::to_string(i));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(rest, 5);  // the op that saves last runs to its end; later code does not
  // An op with an activation fills its saved tensor after saving it.
  const auto last = [&](const Tensor& in) { return linear(in, w, b, Activation::kGelu); };
  const std::vector<Tensor> want = grad({sum(mul(last(x), 3.0))}, {x, w, b});
  const std::vector<Tensor> got = grad({sum(mul(checkpoint(last, x), 3.0))}, {x, w, b});
  for (size_t i = 0; i < 3; ++i) expect_same_bits(got[i], want[i], std::to_string(i));
  // A product at the end is not repeated, even if fn catches exceptions.
  const auto guarded = [&](const Tensor& in) {
    try {
      return linear(tanh(in), w, b);
    } catch (const std::exception&) {
      fail("not for fn to see");
    }
  };
  const std::vector<Tensor> straight = grad({sum(mul(guarded(x), 3.0))}, {x, w, b});
  const std::vector<Tensor> caught = grad({sum(mul(checkpoint(guarded, x), 3.0))}, {x, w, b});
  for (size_t i = 0; i < 3; ++i) expect_same_bits(caught[i], straight[i], std::to_string(i));
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CheckpointTest, Errors) {
  Generator generator = fresh_generator();
  Tensor x = leaf({4, 4}, generator), w = leaf({4, 4}, generator);
  const auto forward = [&](const Tensor& in) { return tanh(matmul(in, w)); };
  const auto expect_error = [](const std::string& part, const std::function<void()>& fn) {
    const std::string message = message_of(fn);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  Tensor y = checkpoint(forward, x);
  {
    NoGrad off;
    w.mul_(2.0);
  }
  expect_error("modified in place", [&] { sum(y).backward(); });
  y = checkpoint(forward, x);
  {
    NoGrad off;
    x.mul_(2.0);
  }
  expect_error("modified in place", [&] { sum(y).backward(); });

  int calls = 0;
  const auto changing = [&](const Tensor& in) {
    const Tensor h = calls++ > 0 ? in.reshape({2, 8}) : in;
    return tanh(h).reshape({4, 4});
  };
  y = checkpoint(changing, x);
  expect_error("compute the same", [&] { sum(y).backward(); });
  calls = 0;
  const auto fewer = [&](const Tensor& in) { return calls++ > 0 ? tanh(in) : exp(tanh(in)); };
  y = checkpoint(fewer, x);
  expect_error("compute the same", [&] { sum(y).backward(); });
  calls = 0;
  Generator random = fresh_generator(7);
  const auto drawing = [&](const Tensor& in) {
    if (calls++ > 0) random.next();
    return tanh(in);
  };
  y = checkpoint(drawing, x);
  expect_error("random", [&] { sum(y).backward(); });
  const auto throwing = [&](const Tensor&) -> Tensor { fail("the function's own error"); };
  expect_error("own error", [&] { checkpoint(throwing, x); });
  // After these errors the thread's state is valid.
  sum(tanh(x)).backward();

  y = checkpoint([](const Tensor& in) { return mul(in, mul(in, in)); }, x);
  expect_error("second derivative", [&] { grad({sum(y)}, {x}, {.create_graph = true}); });
}

TEST(CheckpointTest, ALongChainIsFreedWithoutRecursion) {
  Tensor x = ones({1}).set_requires_grad(true);
  Tensor h = x;
  for (int i = 0; i < 100'000; ++i) h = checkpoint([](const Tensor& in) { return mul(in, 1.0); }, h);
  h = Tensor();
}

}  // namespace
}  // namespace tern::test
