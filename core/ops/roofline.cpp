#include "tern/core/ops/roofline.h"

#include <algorithm>
#include <chrono>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/matmul/matmul.h"
#include "tern/kernels/copy.h"

namespace tern {
namespace {

/// Seconds of the fastest call of run() until its result is ready. Short calls are timed several at once.
template <class Run>
double best_seconds(double budget, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  const auto timed = [&](int calls) {
    const Clock::time_point begin = Clock::now();
    Tensor result;
    for (int i = 0; i < calls; ++i) result = run();
    result.flatten().select(0, 0).template item<double>();  // waits for the device
    return std::max(seconds(begin), 1e-9);
  };
  timed(1);
  int calls = 1;
  const Clock::time_point start = Clock::now();
  double best = timed(calls);
  while (best * calls < 2e-3 && calls < 1024) {
    calls *= 2;
    best = timed(calls) / calls;
  }
  // On a busy machine a call may wait for a core, so the best of a few is taken.
  for (int i = 0; i < 4 || seconds(start) < budget; ++i) best = std::min(best, timed(calls) / calls);
  return best;
}

double measure_copy_rate(Device device) {
  // Larger than the caches, but a small part of the available memory.
  const int64_t bytes =
      std::clamp<int64_t>(detail::available_system_memory() / 16, int64_t{1} << 20, int64_t{128} << 20);
  const Tensor from = zeros({bytes / 4}, {.device = device}), to = zeros({bytes / 4}, {.device = device});
  const double seconds = best_seconds(0.1, [&] {
    kernels::copy(current_stream(device), from.view(), to.view());
    return to;
  });
  return 2 * static_cast<double>(bytes) / seconds;
}

}  // namespace

double detail::measure_matrix_rate(Device device, DType dtype) {
  require_available(device);
  NoGrad off;
  double rate = 0;
  for (int64_t n = 256; n <= 8192; n *= 2) {
    Generator generator(1);
    const TensorOptions on{.device = device};
    const Tensor a = randn({n, n}, generator, on).to(dtype), b = randn({n, n}, generator, on).to(dtype);
    const double seconds = best_seconds(0.03, [&] { return matmul(a, b); });
    rate = std::max(rate, 2.0 * static_cast<double>(n * n * n) / seconds);
    // The next size takes eight times as long. On a busy machine small sizes are slow, as threads wait for cores.
    if (8 * seconds > (n < 1024 ? 0.4 : 0.05)) break;
  }
  return rate;
}

detail::Roofline measure_roofline(Device device, const std::vector<DType>& dtypes) {
  require_available(device);
  detail::Roofline roofline;
  roofline.bytes_per_second = measure_copy_rate(device);
  for (const DType dtype : dtypes) roofline.flops_per_second[dtype] = detail::measure_matrix_rate(device, dtype);
  return roofline;
}

}  // namespace tern
