#include "tern/bench/train/op_rows.h"

#include <algorithm>
#include <memory>
#include <string>

#include "tern/bench/benchmark.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/optim/optim.h"

namespace tern::bench {
namespace {

Shape matrix() { return {scaled(4096), scaled(1024)}; }

/// Calls of one op are nanoseconds: so many are a step.
constexpr int64_t kSmallCalls = 1000;

template <class Op>
void add_forward(const std::string& name, const Op& op) {
  add_steps("op-" + name, "calls", [op]() -> Steps {
    Generator generator(1);
    return [op, x = randn(matrix(), generator), y = randn(matrix(), generator), row = randn({matrix()[1]}, generator)] {
      const NoGrad off;
      keep(op(x, y, row));
      return int64_t{1};
    };
  });
}

/// op(x, row) and the gradients of both.
template <class Op>
void add_training(const std::string& name, const Op& op) {
  add_steps("op-" + name + "-training", "calls", [op]() -> Steps {
    Generator generator(1);
    const auto leaf = [&](const Shape& shape) { return randn(shape, generator).set_requires_grad(true); };
    return [op, x = leaf(matrix()), row = leaf({matrix()[1]}), dy = randn(matrix(), generator)]() mutable {
      op(x, row).backward(dy);
      x.set_grad({});
      row.set_grad({});
      return int64_t{1};
    };
  });
}

/// One element, with recording.
template <class Op>
void add_small(const std::string& name, const Op& op) {
  add_steps("small-" + name, "calls", [op]() -> Steps {
    return [op, x = full({1}, 0.5).set_requires_grad(true), y = full({1}, 1.5).set_requires_grad(true)] {
      for (int64_t i = 0; i < kSmallCalls; ++i) keep(op(x, y));
      return kSmallCalls;
    };
  });
}

struct Mlp final : nn::Module {
  static constexpr int64_t kWidth = 32;
  explicit Mlp(const nn::Scope& s)
      : Module(s),
        one(sub("one"), kWidth, kWidth),
        two(sub("two"), kWidth, kWidth),
        three(sub("three"), kWidth, kWidth) {}
  Tensor forward(const Tensor& x) const { return three.forward(relu(two.forward(relu(one.forward(x))))); }
  nn::Linear one, two, three;
};

/// Forward, mean squared error, backward and SGD.
void add_mlp() {
  add_steps("small-mlp-step", "calls", []() -> Steps {
    Generator generator(1);
    const auto model = std::make_shared<Mlp>(nn::Scope({.generator = generator}));
    const auto optimizer = std::make_shared<optim::SGD>(model->parameters(), optim::SGDOptions{.lr = 0.01});
    const Tensor x = randn({32, Mlp::kWidth}, generator), y = randn({32, Mlp::kWidth}, generator);
    return [=] {
      mse_loss(model->forward(x), y).backward();
      optimizer->step();
      optimizer->zero_grad();
      return int64_t{1};
    };
  });
}

/// The matrix as rows of 16 elements, or of fewer where it is smaller.
int64_t short_row() { return std::min<int64_t>(16, matrix()[1]); }
Tensor short_rows(const Tensor& x) { return x.reshape({-1, short_row()}); }

/// What a loop over rows of contiguous elements is not made for: short rows, other dimensions, rare functions, orders.
void add_further_rows() {
  using T = const Tensor&;
  add_forward("sin", [](T x, T, T) { return sin(x); });
  add_forward("tan", [](T x, T, T) { return tan(x); });
  add_forward("pow", [](T x, T, T) { return pow(x, 2.5); });
  add_forward("fmod", [](T x, T y, T) { return fmod(x, y); });
  add_forward("sum-short", [](T x, T, T) { return sum(short_rows(x), {1}); });
  add_forward("max-short", [](T x, T, T) { return max(short_rows(x), {1}); });
  add_forward("argmax-short", [](T x, T, T) { return argmax(short_rows(x), 1); });
  add_forward("logsumexp-short", [](T x, T, T) { return logsumexp(short_rows(x), {1}); });
  add_forward("softmax-short", [](T x, T, T) { return softmax(short_rows(x)); });
  add_forward("layer-norm-short", [](T x, T, T row) {
    return layer_norm(short_rows(x), row.slice(0, 0, short_row()), row.slice(0, 0, short_row()));
  });
  add_forward("logsumexp-columns", [](T x, T, T) { return logsumexp(x, {0}); });
  add_forward("softmax-columns", [](T x, T, T) { return softmax(x, 0); });
  add_forward("cumsum-rows", [](T x, T, T) { return cumsum(x, 1); });
  add_forward("cumprod-rows", [](T x, T, T) { return cumprod(x, 1); });
  add_forward("cummax-rows", [](T x, T, T) { return cummax(x, 1).values; });
  add_forward("median-rows", [](T x, T, T) { return median(x, 1).values; });
  add_forward("topk-rows", [](T x, T, T) { return topk(x, 2).values; });
  add_forward("select-columns", [](T x, T, T row) { return index_select(x, 1, argsort(row)); });
  add_forward("roll-rows", [](T x, T, T) { return roll(x, {1}, {1}); });
  add_forward("flip-rows", [](T x, T, T) { return flip(x, {1}); });
}

}  // namespace

void add_op_rows() {
  using T = const Tensor&;
  add_forward("add", [](T x, T y, T) { return x + y; });
  add_forward("add-row", [](T x, T, T row) { return x + row; });
  add_forward("mul-scalar", [](T x, T, T) { return x * 0.5; });
  add_forward("relu", [](T x, T, T) { return relu(x); });
  add_forward("gelu", [](T x, T, T) { return gelu(x); });
  add_forward("exp", [](T x, T, T) { return exp(x); });
  add_forward("tanh", [](T x, T, T) { return tanh(x); });
  add_forward("where", [](T x, T y, T) { return where(x > 0.0, x, y); });
  add_forward("sum", [](T x, T, T) { return sum(x); });
  add_forward("sum-rows", [](T x, T, T) { return sum(x, {1}); });
  add_forward("sum-columns", [](T x, T, T) { return sum(x, {0}); });
  add_forward("max-rows", [](T x, T, T) { return max(x, {1}); });
  add_forward("max-columns", [](T x, T, T) { return max(x, {0}); });
  add_forward("max-all", [](T x, T, T) { return max(x, {0, 1}); });
  add_forward("var-rows", [](T x, T, T) { return var(x, {1}); });
  add_forward("logsumexp-rows", [](T x, T, T) { return logsumexp(x, {1}); });
  add_forward("argmax-rows", [](T x, T, T) { return argmax(x, 1); });
  add_forward("softmax", [](T x, T, T) { return softmax(x); });
  add_forward("log-softmax", [](T x, T, T) { return log_softmax(x); });
  add_forward("layer-norm", [](T x, T, T row) { return layer_norm(x, row, row); });
  add_forward("rms-norm", [](T x, T, T row) { return rms_norm(x, row); });
  add_further_rows();
  add_training("gelu", [](T x, T) { return gelu(x); });
  add_training("add-row", [](T x, T row) { return x + row; });
  add_training("softmax", [](T x, T) { return softmax(x); });
  add_training("layer-norm", [](T x, T row) { return layer_norm(x, row, row); });
  add_training("rms-norm", [](T x, T row) { return rms_norm(x, row); });
  add_small("add", [](T x, T y) { return x + y; });
  add_small("mul-scalar", [](T x, T) { return x * 0.5; });
  add_small("exp", [](T x, T) { return exp(x); });
  add_small("sum", [](T x, T) { return sum(x); });
  add_small("reshape", [](T x, T) { return x.reshape({1, 1}); });
  add_mlp();
}

}  // namespace tern::bench
