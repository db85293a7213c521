// An op and a kernel, measured: --help lists what the program can do.
#include <tern/bench/benchmark.h>
#include <tern/tern.h>

using namespace tern;

Tensor snake(const Tensor& x) { return x + square(sin(x)); }

void axpy(float a, const float* x, float* y, int64_t n) {  // y += a x
  kernels::parallel_for(n, 1 << 14, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] += a * x[i];
  });
}

const bench::Rows rows([] {
  bench::add_op("snake", snake, Shape{1024, 1024});
  bench::add_op_with_backward("snake/backward", snake, Shape{1024, 1024});

  const int64_t n = 1 << 20;
  bench::add("axpy", {.bytes = 12.0 * n}, [n]() -> bench::Call {
    const bench::Buffer x(float32, {n}), y(float32, {n});
    return [=] { axpy(0.5f, static_cast<const float*>(x.data()), static_cast<float*>(y.data()), n); };
  });
});

int main(int argc, char** argv) { return bench::run(argc, argv); }
