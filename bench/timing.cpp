#include "tern/bench/timing.h"

#include <algorithm>
#include <cmath>

#include "tern/bench/statistics.h"
#include "tern/core/autograd/captured_step.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/stream.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

constexpr double kSampleSeconds = 0.01;  // at least, on the CPU
constexpr size_t kMinSamples = 3;
constexpr double kRotatedBytes = 256e6;  // four times the largest current L2 cache
constexpr size_t kMaxSets = 64;
constexpr size_t kMinCalls = 32;  // per graph, so that the gap between two replays is negligible

/// Makes enough sets of buffers that the cache holds no data of a set when it is used again.
std::vector<Call> make_calls(const std::function<Call()>& make) {
  CachingAllocator& memory = allocator(device());
  const int64_t before = memory.statistics().live_bytes;
  std::vector<Call> calls = {make()};
  const double bytes = std::max<double>(1, static_cast<double>(memory.statistics().live_bytes - before));
  const size_t sets = is_tiny() ? 2 : std::min(kMaxSets, static_cast<size_t>(kRotatedBytes / bytes) + 1);
  while (calls.size() < sets) calls.push_back(make());
  return calls;
}

Sample time_steps(const Step& step, int64_t steps) {
  Sample sample;
  int64_t items = 0;
  const double cpu = cpu_seconds();
  Stopwatch watch;
  for (int64_t i = 0; i < steps; ++i) items += step();
  sample.seconds = watch.lap();
  sample.cpu_seconds = cpu_seconds() - cpu;
  sample.items = static_cast<double>(items);
  return sample;
}

/// The number of steps that take kSampleSeconds.
int64_t steps_per_sample(const Step& step) {
  if (is_tiny()) return 1;
  int64_t steps = 1;
  for (;;) {
    const double seconds = time_steps(step, steps).seconds;
    if (seconds >= kSampleSeconds) return steps;
    // The time of few steps is uncertain, so the number grows by a factor of 10 at most.
    const double factor = std::clamp(1.2 * kSampleSeconds / std::max(seconds, 1e-9), 1.2, 10.0);
    steps = static_cast<int64_t>(std::ceil(static_cast<double>(steps) * factor));
  }
}

}  // namespace

/// Calls captured in one CUDA graph.
struct Timer::Graph {
  explicit Graph(const std::function<Call()>& make)
      : calls(make_calls(make)),
        turns(((is_tiny() ? 1 : kMinCalls) + calls.size() - 1) / calls.size()),
        step(
            [this](const std::vector<Tensor>&) {
              for (size_t turn = 0; turn < turns; ++turn)
                for (const Call& call : calls) call();
              return std::vector<Tensor>();
            },
            {.warmup = 1}) {
    step({});  // eager
    step({});  // captures
    synchronize(device());
  }

  Sample sample() {
    const double cpu = cpu_seconds();
    begin.record();
    step({});
    end.record();
    end.synchronize();
    return {static_cast<double>(turns * calls.size()), std::max(1e-12, end.seconds_since(begin)), cpu_seconds() - cpu};
  }

  std::vector<Call> calls;
  size_t turns;
  CapturedStep step;
  Event begin{device(), true}, end{device(), true};
};

Timer::Timer(const Row& row) : work_(row.work) {
  if (row.make_steps) {
    Steps steps = row.make_steps();
    step_ = std::move(steps.step);
    facts_ = std::move(steps.facts);
    work_.flops = steps.flops_per_item;
    for (int i = 0; i < kWarmUpSteps; ++i) step_();
  } else {
    const auto make = [&] { return row.make_call(work_); };
    if (device().is_cuda()) {
      graph_ = std::make_unique<Graph>(make);
      return;
    }
    step_ = [call = make()] {
      call();
      return int64_t{1};
    };
    step_();
  }
  steps_per_sample_ = steps_per_sample(step_);
}

Timer::~Timer() = default;

std::string Timer::facts() const { return facts_ ? facts_() : "{}"; }

Sample Timer::sample() {
  if (!graph_) return time_steps(step_, steps_per_sample_);
  const Sample sample = graph_->sample();
  synchronize(device());  // throws asynchronous errors of the kernels
  return sample;
}

std::vector<Sample> take_samples(Timer& timer, double seconds) {
  std::vector<Sample> samples;
  for (double spent = 0; samples.size() < kMinSamples || spent < seconds; spent += samples.back().seconds)
    samples.push_back(timer.sample());
  return samples;
}

double seconds_per_item(const std::vector<Sample>& samples, bool steps) {
  TERN_CHECK(!samples.empty(), "there are no samples");
  if (steps) {
    Sample all;
    for (const Sample& sample : samples) {
      all.items += sample.items;
      all.seconds += sample.seconds;
    }
    return all.per_item();
  }
  std::vector<double> times;
  for (const Sample& sample : samples) times.push_back(sample.per_item());
  return median(times);
}

}  // namespace tern::bench
