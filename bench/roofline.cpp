#include "tern/bench/roofline.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"
#include "tern/core/cuda/backend.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/parallel.h"

namespace tern::bench {
namespace {

/// Fastest time in seconds over at least three calls and about a third of a second.
template <class Body>
double best_seconds(Body&& body) {
  using Clock = std::chrono::steady_clock;
  body();
  const auto end = Clock::now() + std::chrono::milliseconds(333);
  double best = INFINITY;
  for (int i = 0; i < 3 || Clock::now() < end; ++i) {
    const auto begin = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
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
  uint64_t key = 0;
  benchmark::DoNotOptimize(key);
  const int64_t repeats = std::max<int64_t>(1, (1 << 20) / words);  // long enough for the clock's resolution
  const double seconds = best_seconds([&] {
    for (int64_t r = 0; r < repeats; ++r) {
      kernels::parallel_for(words, 1 << 13, [&](int64_t begin, int64_t end) {
        copy_words(x.data() + begin, y.data() + begin, end - begin, key);
      });
      benchmark::ClobberMemory();
    }
  });
  return 16.0 * static_cast<double>(words * repeats) / seconds;
}

double measure_matrix(dnnl::memory::data_type type) {
  using dnnl::memory;
  constexpr memory::dim kSize = 2048;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  omp_set_num_threads(kernels::num_threads());  // oneDNN uses OpenMP threads
  const memory::desc plain({kSize, kSize}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc any({kSize, kSize}, type, memory::format_tag::any);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc product(engine, any, any, any);
#else
  const dnnl::matmul::primitive_desc product(dnnl::matmul::desc(any, any, any), engine);
#endif
  memory random(plain, engine);
  std::minstd_rand generator(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float* numbers = static_cast<float*>(random.get_data_handle());
  for (int64_t i = 0; i < kSize * kSize; ++i) numbers[i] = uniform(generator);
  memory a(product.src_desc(), engine), b(product.weights_desc(), engine), c(product.dst_desc(), engine);
  dnnl::reorder(random, a).execute(stream, random, a);
  dnnl::reorder(random, b).execute(stream, random, b);
  const dnnl::matmul matmul(product);
  const std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
  const double seconds = best_seconds([&] {
    matmul.execute(stream, arguments);
    stream.wait();
  });
  return 2.0 * kSize * kSize * kSize / seconds;
}

double measure_device_copy(int64_t bytes, DType dtype) {
  const int64_t n = std::max<int64_t>(1, bytes / 2 / size_of(dtype));
  const auto buffers = [&] { return std::pair(Buffer(dtype, {n}), Buffer(dtype, {n})); };
  double seconds = device_seconds(
      [&]() -> Call { return [b = buffers()] { kernels::copy(stream(), b.first.view(), b.second.view()); }; });
  seconds = std::min(seconds, device_seconds([&]() -> Call {
                       return [b = buffers()] {
                         cuda::copy_async(device().index, b.second.data(), b.first.data(),
                                          static_cast<int64_t>(b.first.bytes()), stream().handle);
                       };
                     }));
  return 2.0 * static_cast<double>(n * size_of(dtype)) / seconds;
}

double measure_device_matrix(DType dtype) {
  const int64_t n = scaled(8192);
  const double seconds = device_seconds([&]() -> Call {
    const Buffer a(dtype, {1, n, n}), b(dtype, {1, n, n}), c(dtype, {1, n, n});
    const Scratch scratch(kernels::gemm_workspace(stream(), false, true, a.view(), b.view(), c.view()));
    return [=] { kernels::gemm(stream(), false, true, 1, a.view(), b.view(), 0, c.view(), scratch.data()); };
  });
  return 2.0 * static_cast<double>(n * n * n) / seconds;
}

double measure_host_matrix(DType dtype) {
  if (dtype != float32 && dtype != bfloat16) return 0;
  using Type = dnnl::memory::data_type;
  try {
    return measure_matrix(dtype == float32 ? Type::f32 : Type::bf16);
  } catch (const dnnl::error&) {  // this machine does not support bfloat16
    return 0;
  }
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
  if (is_new) found->second = device().is_cuda() ? measure_device_matrix(dtype) : measure_host_matrix(dtype);
  return found->second;
}

}  // namespace tern::bench
