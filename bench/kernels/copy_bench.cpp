// Copies: within a dtype (the machine's copy), casts, transposes, fills and random numbers.

#include "tern/bench/benchmark.h"

namespace tern::bench {
namespace {

// On a GPU: the size of DistilBERT's hidden layer for 16,384 tokens.
int64_t rows() { return scaled(device().is_cuda() ? 16384 : 4096); }
int64_t cols() { return scaled(device().is_cuda() ? 3072 : 1024); }
double elements() { return static_cast<double>(rows() * cols()); }

void add_copy(DType from, DType to) {
  const double bytes = elements() * static_cast<double>(size_of(from) + size_of(to));
  add(name_of_row("copy", from, "to", to), {.bytes = bytes, .dtype = to, .share_budget = 0.85}, [=]() -> Call {
    const Buffer x(from, {rows(), cols()}, 1000), y(to, {rows(), cols()});
    return [=] { kernels::copy(stream(), x.view(), y.view()); };
  });
}

void add_transposed() {
  add("copy/transposed", {.bytes = 8 * elements()}, []() -> Call {
    const Buffer x(float32, {cols(), rows()}), y(float32, {rows(), cols()});
    return [=] {
      const int64_t shape[] = {rows(), cols()}, strides[] = {1, rows()};
      kernels::copy(stream(), kernels::ConstView(x.data(), float32, 2, shape, strides), y.view());
    };
  });
}

/// A kernel that only writes.
void add_fill(const char* name, void (*fill)(kernels::View)) {
  add(name, {.bytes = 4 * elements()}, [=]() -> Call {
    return [fill, y = Buffer(float32, {rows(), cols()})] { fill(y.view()); };
  });
}

const Rows registered([] {
  add_copy(float32, float32);
  add_copy(bfloat16, bfloat16);
  add_copy(float32, bfloat16);
  add_copy(bfloat16, float32);
  add_copy(float32, float16);
  add_copy(int64, float32);
  add_transposed();
  add_fill("fill", [](kernels::View y) { kernels::fill(stream(), 0.0, y); });
  add_fill("fill_uniform", [](kernels::View y) { kernels::fill_uniform(stream(), {1, 2}, 0.0, 1.0, y); });
  add_fill("fill_normal", [](kernels::View y) { kernels::fill_normal(stream(), {1, 2}, 0.0, 1.0, y); });
});

}  // namespace
}  // namespace tern::bench
