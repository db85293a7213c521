// Layer normalisation with dropout and residual, and dropout, measured by the bytes that must be moved.

#include "tern/kernels/norm.h"

#include <string>
#include <utility>
#include <vector>

#include "tern/bench/benchmark.h"

namespace tern::bench {
namespace {

struct Norm {
  int64_t rows, cols;
  kernels::Dropout dropout;
  Buffer x, residual, z, y, gamma, beta, mean, rstd, dgamma, dbeta;
  Scratch workspace, tickets;

  Norm(int64_t r, int64_t c, DType dtype, double p)
      : rows(r),
        cols(c),
        dropout{p, {1, 2}},
        x(dtype, {r, c}),
        residual(dtype, {r, c}),
        z(dtype, {r, c}),
        y(dtype, {r, c}),
        gamma(float32, {c}),
        beta(float32, {c}),
        mean(float32, {r}),
        rstd(float32, {r}),
        dgamma(float32, {c}),
        dbeta(float32, {c}),
        workspace(kernels::layer_norm_backward_workspace(stream(), r, c, dtype)),
        tickets(kernels::kLayerNormTickets * 4) {}

  void forward() const {
    kernels::layer_norm_forward(stream(), x.view(), residual.view(), gamma.view(), beta.view(), 1e-12, dropout, {},
                                z.view(), y.view(), mean.view(), rstd.view(), tickets.data());
  }
  void backward() const {
    kernels::layer_norm_backward(stream(), y.view(), {}, z.view(), gamma.view(), mean.view(), rstd.view(), dropout, {},
                                 workspace.data(), tickets.data(), x.view(),
                                 dropout.p > 0 ? residual.view() : kernels::View(), dgamma.view(), dbeta.view());
  }
};

void add_layer_norm(DType dtype, bool backward, double p, int64_t rows, int64_t cols) {
  const int64_t tensors = backward && p == 0 ? 3 : 4;
  const Work work{.bytes = static_cast<double>(tensors * rows * cols * size_of(dtype)),
                  .dtype = dtype,
                  .share_budget = backward ? 0.70 : 0.75};
  const char* pass = backward ? "backward" : "forward";
  add(name_of_row("layer_norm", p > 0 ? std::string(pass) + "_dropout" : pass, dtype, rows, cols), work, [=]() -> Call {
    const Norm norm(rows, cols, dtype, p);
    norm.forward();
    return [=] { backward ? norm.backward() : norm.forward(); };
  });
}

void add_dropout(DType dtype, int64_t rows, int64_t cols) {
  const double bytes = static_cast<double>(2 * rows * cols * size_of(dtype));
  add(name_of_row("dropout", dtype, rows, cols), {.bytes = bytes, .dtype = dtype, .share_budget = 0.85}, [=]() -> Call {
    const Buffer x(dtype, {rows, cols}), y(dtype, {rows, cols});
    return [=] { kernels::dropout(stream(), x.view(), {0.1, {1, 2}}, {}, y.view()); };
  });
}

std::vector<std::pair<int64_t, int64_t>> sizes() {
  if (is_tiny()) return {{32, 32}};
  if (device().is_cuda()) return {{16384, 768}, {6144, 768}, {16384, 1024}};
  return {{16384, 768}, {4096, 768}, {8192, 128}};
}

const Rows registered([] {
  for (const auto& [rows, cols] : sizes()) {
    for (const DType dtype : {float32, bfloat16}) {
      for (const bool backward : {false, true})
        for (const double p : {0.0, 0.1}) add_layer_norm(dtype, backward, p, rows, cols);
      add_dropout(dtype, rows, cols);
    }
    add_layer_norm(float16, false, 0.1, rows, cols);
  }
});

}  // namespace
}  // namespace tern::bench
