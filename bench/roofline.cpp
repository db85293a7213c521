#include "tern/bench/roofline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tern/bench/timing.h"
#include "tern/core/device/backend.h"
#include "tern/core/ops/roofline.h"
#include "tern/kernels/parallel.h"

namespace tern::bench {
namespace {

constexpr double kRateSeconds = 0.3;  // for each rate

/// Seconds of the fastest sample's call.
double best_seconds(const std::function<Call()>& make) {
  const Row row{.name = "copy", .work = {}, .make_call = [&](Work&) { return make(); }, .unit = "", .make_steps = {}};
  Timer timer(row);
  double best = INFINITY;
  for (const Sample& sample : take_samples(timer, kRateSeconds)) best = std::min(best, sample.per_item());
  return best;
}

/// The XOR with a value unknown at compile time prevents a replacement by memcpy, whose non-temporal stores give a
/// bandwidth that no kernel with a consumer for its result can reach.
__attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512"))) void copy_words(const uint64_t* x,
                                                                                                 uint64_t* y, int64_t n,
                                                                                                 uint64_t key) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] ^ key;
}

double measure_copy(int64_t words) {
  std::vector<uint64_t> x(static_cast<size_t>(words), 1), y(static_cast<size_t>(words), 2);
  volatile uint64_t unknown = 0;
  const uint64_t key = unknown;
  const double seconds = best_seconds([&]() -> Call {
    return [&] {
      kernels::parallel_for(words, 1 << 13, [&](int64_t begin, int64_t end) {
        copy_words(x.data() + begin, y.data() + begin, end - begin, key);
      });
    };
  });
  return 16.0 * static_cast<double>(words) / seconds;
}

double measure_device_copy(int64_t bytes, DType dtype) {
  const int64_t n = std::max<int64_t>(1, bytes / 2 / size_of(dtype));
  const auto buffers = [&] { return std::pair(Buffer(dtype, {n}), Buffer(dtype, {n})); };
  double seconds = best_seconds(
      [&]() -> Call { return [b = buffers()] { kernels::copy(stream(), b.first.view(), b.second.view()); }; });
  seconds = std::min(seconds, best_seconds([&]() -> Call {
                       return [b = buffers()] {
                         cuda::copy_async(device().index, b.second.data(), b.first.data(),
                                          static_cast<int64_t>(b.first.bytes()), stream().handle);
                       };
                     }));
  return 2.0 * static_cast<double>(n * size_of(dtype)) / seconds;
}

}  // namespace

double copy_rate(double bytes, DType dtype) {
  static std::map<std::pair<DType, int64_t>, double> rates;
  const bool on_gpu = device().is_cuda();
  const int power = std::clamp(static_cast<int>(std::lround(std::log2(std::max(bytes, 1.0)))), 14, 30);
  const int64_t size = on_gpu ? static_cast<int64_t>(bytes) : int64_t{1} << power;
  const auto [found, is_new] = rates.try_emplace({on_gpu ? dtype : float32, size}, 0.0);
  if (is_new) found->second = on_gpu ? measure_device_copy(size, dtype) : measure_copy(size / 16);
  return found->second;
}

double matrix_rate(DType dtype) {
  static std::map<DType, double> rates;
  if (!is_floating(dtype) || dtype == float64) return 0;
  const auto [found, is_new] = rates.try_emplace(dtype, 0.0);
  if (is_new) found->second = tern::detail::measure_matrix_rate(device(), dtype);
  return found->second;
}

double min_seconds(const Work& work) {
  if (is_tiny()) return 0;
  double least = 0;
  if (work.bytes > 0) least = work.bytes / copy_rate(work.bytes, work.dtype);
  if (work.flops > 0)
    if (const double rate = matrix_rate(work.dtype); rate > 0) least = std::max(least, work.flops / rate);
  return least;
}

}  // namespace tern::bench
