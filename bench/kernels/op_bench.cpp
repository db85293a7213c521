// Overhead of ops with recording, on the CPU: tiny products, item(), views, and an LSTM written by hand. One op takes
// nanoseconds, so a sample is many.

#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

Tensor random(const Shape& shape, bool requires_grad) {
  static Generator generator(1);
  return randn(shape, generator).set_requires_grad(requires_grad);
}

void add_products(int64_t n) {
  for (const bool recorded : {false, true})
    add(name_of_row("op/matmul", n, recorded ? "recorded" : "plain"), {}, [=]() -> Call {
      return [a = random({n, n}, recorded), b = random({n, n}, recorded)] { keep(matmul(a, b)); };
    });
}

void add_layers(int64_t n) {
  add(name_of_row("op/matmul_backward", n), {}, [=]() -> Call {
    return
        [a = random({n, n}, true), b = random({n, n}, true), dc = random({n, n}, false)] { matmul(a, b).backward(dc); };
  });
  add(name_of_row("op/linear", n), {}, [=]() -> Call {
    return [x = random({n, n}, true), weight = random({n, n}, true), bias = random({n}, true)] {
      keep(linear(x, weight, bias));
    };
  });
}

/// A training step of a hand-written LSTM.
void add_lstm(int64_t steps, int64_t batch, int64_t width) {
  add(name_of_row("op/lstm_by_hand", steps, batch, width), {}, [=]() -> Call {
    const Tensor x = random({steps, batch, width}, false);
    const Tensor w = random({4 * width, width}, true), u = random({4 * width, width}, true),
                 b = random({4 * width}, true);
    return [=] {
      Tensor h = zeros({batch, width}), c = h;
      for (const Tensor& step : linear(x, w, b).unbind(0)) {
        const std::vector<Tensor> gates = (step + linear(h, u)).chunk(4, 1);
        c = sigmoid(gates[0]) * c + sigmoid(gates[1]) * tanh(gates[2]);
        h = sigmoid(gates[3]) * tanh(c);
      }
      sum(h).backward();
      for (const Tensor& parameter : {w, u, b}) Tensor(parameter).set_grad({});
    };
  });
}

const Rows rows([] {
  if (!device().is_cpu()) return;  // on a GPU the time is that of kernels
  for (const int64_t n : {8, 16, 32, 64}) add_products(n);
  for (const int64_t n : {8, 32}) add_layers(n);
  add("op/add", {}, []() -> Call {
    return [a = random({8, 8}, true), b = random({8, 8}, true)] { keep(tern::add(a, b)); };
  });
  add("op/transpose", {}, []() -> Call { return [a = random({8, 8}, true)] { keep(a.t()); }; });
  add("op/item", {}, []() -> Call { return [x = random({}, true)] { keep(x.item<float>()); }; });
  add("op/item_bfloat16_as_double", {},
      []() -> Call { return [x = random({1}, false).to(bfloat16)] { keep(x.item<double>()); }; });
  add_lstm(scaled(64, 3), scaled(32, 2), scaled(128, 4));
});

}  // namespace
}  // namespace tern::bench
