#include "tern/bench/roofline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <unordered_map>
#include <vector>

#include "tern/kernels/kernel.h"
#include "tern/kernels/parallel.h"

namespace tern::bench {
namespace {

/// Seconds of the fastest call out of as many as fit into a third of a second, at least three.
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

/// The exclusive or with a value known at run time alone keeps the compiler from calling memcpy, whose stores go past
/// the caches and would make a bandwidth that no kernel with a use for its result can have.
__attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512"))) void copy_words(const uint64_t* x,
                                                                                                 uint64_t* y, int64_t n,
                                                                                                 uint64_t key) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] ^ key;
}

double measure_copy(int64_t words) {
  std::vector<uint64_t> x(static_cast<size_t>(words), 1), y(static_cast<size_t>(words), 2);
  uint64_t key = 0;
  benchmark::DoNotOptimize(key);
  const int64_t repeats = std::max<int64_t>(1, (1 << 20) / words);  // long enough for the clock
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

}  // namespace

double copy_rate(double bytes) {
  static std::map<int, double> rates;
  const int power = std::clamp(static_cast<int>(std::lround(std::log2(std::max(bytes, 1.0)))), 14, 30);
  const auto [found, is_new] = rates.try_emplace(power, 0.0);
  if (is_new) found->second = measure_copy((int64_t{1} << power) / 16);
  return found->second;
}

double matrix_rate(DType dtype) {
  static std::map<DType, double> rates;
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) return 0;
  const auto [found, is_new] = rates.try_emplace(dtype, 0.0);
  if (is_new) {
    using Type = dnnl::memory::data_type;
    try {
      found->second = measure_matrix(dtype == DType::kFloat32 ? Type::f32 : Type::bf16);
    } catch (const dnnl::error&) {  // no bfloat16 on this machine
    }
  }
  return found->second;
}

void report(benchmark::State& state, double bytes, double operations, DType dtype) {
  using benchmark::Counter;
  const double iterations = static_cast<double>(state.iterations());
  double floor = 0;
  if (bytes > 0) {
    state.counters["bytes/s"] = Counter(bytes * iterations, Counter::kIsRate, Counter::kIs1000);
    floor = std::max(floor, bytes / copy_rate(bytes));
  }
  if (operations > 0) {
    state.counters["FLOP/s"] = Counter(operations * iterations, Counter::kIsRate, Counter::kIs1000);
    if (const double rate = matrix_rate(dtype); rate > 0) floor = std::max(floor, operations / rate);
  }
  if (floor > 0) state.counters["share"] = Counter(floor * iterations, Counter::kIsRate);
}

}  // namespace tern::bench
