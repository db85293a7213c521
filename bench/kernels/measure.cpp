#include "tern/bench/kernels/measure.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "tern/bench/kernels/tensors.h"
#include "tern/bench/roofline.h"
#include "tern/core/allocator.h"
#include "tern/core/captured_step.h"
#include "tern/core/check.h"
#include "tern/core/ops/ops.h"
#include "tern/core/stream.h"

namespace tern::bench {
namespace {

constexpr double kRotatedBytes = 256e6;  // four times the largest current L2 cache
constexpr size_t kMostSets = 64;
constexpr size_t kLeastCalls = 32;  // per graph, so that the gap between two replays is negligible
constexpr int kSamples = 30;
constexpr double kSampleSeconds = 0.3;  // limit on the time of all samples

std::string last_error;

/// Makes enough sets of buffers that the cache holds no data of a set when it is used again.
std::vector<Call> make_calls(const std::function<Call()>& make) {
  CachingAllocator& memory = allocator(device());
  const int64_t before = memory.statistics().live_bytes;
  std::vector<Call> calls = {make()};
  const double bytes = std::max<double>(1, static_cast<double>(memory.statistics().live_bytes - before));
  const size_t sets = is_tiny() ? 2 : std::min(kMostSets, static_cast<size_t>(kRotatedBytes / bytes) + 1);
  while (calls.size() < sets) calls.push_back(make());
  return calls;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// Bound on the norm of the difference relative to the result's norm, for sums in another order and, in 16 bits, for
/// intermediate rounding. Normal random numbers of any dtype agree to 2e-6 between devices.
double tolerance_of(DType dtype) {
  if (dtype == bfloat16) return 4e-2;
  if (dtype == float16) return 6e-3;
  return dtype == float64 ? 1e-5 : 2e-4;
}

void compare(const Tensor& on_cpu, const Tensor& on_gpu, size_t index) {
  const auto what = [&] {
    return tern::detail::concatenate("buffer ", index, ", ", on_cpu.dtype(), " ", on_cpu.shape(), ": ");
  };
  if (!is_floating(on_cpu.dtype())) {
    TERN_CHECK(all(eq(on_cpu, on_gpu)).item<bool>(), what(), "the GPU's result is not the CPU's");
    return;
  }
  const Tensor a = on_cpu.to(float64), b = on_gpu.to(float64), zero = zeros({}, {.dtype = float64});
  const Tensor same = logical_or(eq(a, b), logical_and(isnan(a), isnan(b)));  // equal infinities and NaNs
  const double difference = norm(where(same, zero, sub(a, b))).item<double>();
  const double size = norm(where(isfinite(a), a, zero)).item<double>();
  TERN_CHECK(difference <= tolerance_of(on_cpu.dtype()) * size, what(), "the GPU's result differs from the CPU's by ",
             difference, ", whose norm is ", size);
}

/// Runs one call on both devices with the same numbers and compares the buffers.
void check_first(const std::function<Call()>& make) {
  const uint64_t made = Buffer::made;
  std::vector<Tensor> results[2];
  const auto run = [&](std::vector<Tensor>& buffers) {
    Buffer::made = made;
    Buffer::noted = &buffers;
    const Call call = make();
    Buffer::noted = nullptr;
    call();
    synchronize(place());
  };
  {
    const OnCpu on_cpu;
    run(results[0]);
  }
  run(results[1]);
  TERN_CHECK(results[0].size() == results[1].size(), "the devices' calls have ", results[0].size(), " and ",
             results[1].size(), " buffers");
  for (size_t i = 0; i < results[0].size(); ++i) compare(results[0][i], results[1][i].to(cpu), i);
}

double on_cpu(benchmark::State& state, const Call& call) {
  using Clock = std::chrono::steady_clock;
  call();
  const auto begin = Clock::now();
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(state.iterations());
}

double on_gpu(benchmark::State& state, const std::function<Call()>& make) {
  double seconds = 0;
  for (auto _ : state) {  // one iteration: see timed()
    seconds = device_seconds(make);
    state.SetIterationTime(seconds);
  }
  return seconds;
}

benchmark::Counter rate_of(double per_second) {
  return {per_second, benchmark::Counter::kDefaults, benchmark::Counter::kIs1000};
}

void report(benchmark::State& state, const Work& work, double seconds) {
  double floor = 0;
  if (work.bytes > 0) {
    state.counters["bytes/s"] = rate_of(work.bytes / seconds);
    floor = work.bytes / copy_rate(work.bytes, work.dtype);
  }
  if (work.flops > 0) {
    state.counters["FLOP/s"] = rate_of(work.flops / seconds);
    if (const double rate = matrix_rate(work.dtype); rate > 0) floor = std::max(floor, work.flops / rate);
  }
  if (floor > 0) state.counters["share"] = floor / seconds;
  if (device().is_cpu()) return;
  state.counters["seconds"] = seconds;
  if (is_tiny()) return;
  if (work.share_budget > 0) state.counters["share_budget"] = work.share_budget;
  if (work.rate_budget > 0) state.counters["FLOP/s_budget"] = work.rate_budget;
}

}  // namespace

double device_seconds(const std::function<Call()>& make) {
  const std::vector<Call> calls = make_calls(make);
  const size_t least = is_tiny() ? 1 : kLeastCalls, turns = (least + calls.size() - 1) / calls.size();
  CapturedStep step(
      [&](const std::vector<Tensor>&) {
        for (size_t turn = 0; turn < turns; ++turn)
          for (const Call& call : calls) call();
        return std::vector<Tensor>();
      },
      {.warmup = 1});
  step({});  // eager
  step({});  // captures
  synchronize(device());
  Event begin(device(), true), end(device(), true);
  std::vector<double> samples;
  for (double spent = 0; samples.size() < 3 || (samples.size() < kSamples && spent < kSampleSeconds);) {
    begin.record();
    step({});
    end.record();
    end.synchronize();
    samples.push_back(std::max(1e-12, end.seconds_since(begin)) / static_cast<double>(turns * calls.size()));
    spent += end.seconds_since(begin);
  }
  synchronize(device());  // throws asynchronous errors of the kernels
  return median(samples);
}

void measure(benchmark::State& state, const Work& work, const std::function<Call()>& make) {
  try {
    if (checks_results()) check_first(make);
    const double seconds = device().is_cuda() ? on_gpu(state, make) : on_cpu(state, make());
    report(state, work, seconds);
  } catch (const std::exception& error) {
    last_error = error.what();
    state.SkipWithError(last_error.c_str());
  }
}

void timed(benchmark::internal::Benchmark* bench) {
  if (device().is_cuda())
    bench->Iterations(1)->UseManualTime();
  else
    bench->UseRealTime();
}

std::string take_error() { return std::exchange(last_error, {}); }

}  // namespace tern::bench
