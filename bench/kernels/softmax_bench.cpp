// Softmax and cross entropy, measured by the bytes that must be moved.

#include "tern/kernels/softmax.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/core/memory/index_check.h"

namespace tern::bench {
namespace {

void add_softmax(DType dtype, bool log, bool backward, int64_t rows, int64_t cols) {
  const Work work{.bytes = static_cast<double>(rows * cols * size_of(dtype) * (backward ? 3 : 2)),
                  .dtype = dtype,
                  .share_budget = 0.85};
  const std::string name =
      name_of_row(log ? "log_softmax" : "softmax", backward ? "backward" : "forward", dtype, rows, cols);
  add(name, work, [=]() -> Call {
    const Buffer x(dtype, {rows, cols}), y(dtype, {rows, cols}), dx(dtype, {rows, cols});
    kernels::softmax_forward(stream(), log, x.view(), y.view());
    return [=] {
      if (backward)
        kernels::softmax_backward(stream(), log, y.view(), x.view(), dx.view());
      else
        kernels::softmax_forward(stream(), log, x.view(), y.view());
    };
  });
}

void add_cross_entropy(DType dtype, bool backward, int64_t rows, int64_t classes) {
  const Work work{.bytes = static_cast<double>(rows * classes * size_of(dtype) * (backward ? 2 : 1)),
                  .dtype = dtype,
                  .share_budget = 0.85};
  add(name_of_row("cross_entropy", backward ? "backward" : "forward", dtype, rows, classes), work, [=]() -> Call {
    const Buffer logits(dtype, {rows, classes}), dlogits(dtype, {backward ? rows : 0, classes});
    const Buffer targets(int64, {rows}, classes), losses(float32, {rows}), log_sum_exp(float32, {rows});
    const Buffer scale(float32, {rows});
    const auto check = std::make_shared<IndexCheck>("cross_entropy", place());
    const auto forward = [=] {
      kernels::cross_entropy_forward(stream(), logits.view(), targets.view(), {}, -100, 0, losses.view(),
                                     log_sum_exp.view(), check->data());
    };
    forward();
    if (!backward) return forward;
    return [=] {
      kernels::cross_entropy_backward(stream(), logits.view(), targets.view(), log_sum_exp.view(), scale.view(), -100,
                                      0, dlogits.view());
    };
  });
}

std::vector<std::pair<int64_t, int64_t>> sizes() {
  const std::pair<int64_t, int64_t> words{scaled(device().is_cuda() ? 8192 : 256, 8), scaled(30522, 1000)};
  if (device().is_cuda()) return {{scaled(98304), scaled(512)}, words};
  return {{scaled(65536), 2}, {scaled(16384), scaled(512)}, words};
}

const Rows registered([] {
  for (const DType dtype : {float32, bfloat16})
    for (const bool backward : {false, true})
      for (const auto& [rows, cols] : sizes()) {
        add_softmax(dtype, false, backward, rows, cols);
        if (dtype == float32) add_softmax(dtype, true, backward, rows, cols);
        add_cross_entropy(dtype, backward, rows, cols);
      }
});

}  // namespace
}  // namespace tern::bench
