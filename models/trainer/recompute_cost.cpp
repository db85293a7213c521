#include "tern/models/trainer/recompute_cost.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <sstream>

#include "tern/core/autograd/autocast.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/stream.h"
#include "tern/models/trainer/snapshot.h"
#include "tern/nn/layers/batch_norm.h"

namespace tern::models {
namespace {

PassCost run_pass(TrainingTask& task, const TrainOptions& options) {
  CachingAllocator& memory = allocator(options.device);
  memory.reset_peak();
  const int64_t before = memory.statistics().live_bytes;
  synchronize(options.device);
  const auto start = std::chrono::steady_clock::now();
  autocast(options.device, options.dtype, [&] { return task.batch().loss(); }).backward();
  synchronize(options.device);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {memory.statistics().peak_live_bytes - before, seconds.count()};
}

/// The newer pass, with the shorter of the two times.
PassCost better(const PassCost& old, const PassCost& now) { return {now.bytes, std::min(old.seconds, now.seconds)}; }

/// Changes what a training pass changes in the module: gradients, random state, and buffers such as running statistics.
RecomputeCost measure(TrainingTask& task, const TrainOptions& options, const std::function<void(bool)>& set_recompute) {
  nn::train_except_frozen_norms(task.module());
  task.begin_epoch(0);
  TERN_CHECK(task.next_batch(), "recompute: there is no batch to measure on");
  RecomputeCost cost;
  // Alternates the two and takes the best of each: in the first passes gradients and memory are new, and other programs
  // may slow down any pass.
  for (int round = 0; round < 3; ++round) {
    set_recompute(true);
    cost.recomputed = better(cost.recomputed, run_pass(task, options));
    if (round > 0 && !cost.plain) continue;
    try {
      set_recompute(false);
      cost.plain = better(cost.plain.value_or(PassCost()), run_pass(task, options));
    } catch (const OutOfMemoryError&) {
      cost.plain.reset();
    }
  }
  set_recompute(true);
  return cost;
}

}  // namespace

std::string RecomputeCost::text() const {
  std::ostringstream out;
  out << std::fixed << "activations " << (recomputed.bytes >> 20) << " MiB";
  if (plain)
    out << " instead of " << (plain->bytes >> 20) << " MiB (" << std::setprecision(0)
        << 100 - 100.0 * static_cast<double>(recomputed.bytes) / static_cast<double>(std::max<int64_t>(plain->bytes, 1))
        << " % less)";
  out << ", forward and backward " << std::setprecision(2) << recomputed.seconds << " s";
  if (plain)
    out << " instead of " << plain->seconds << " s (" << std::setprecision(0)
        << 100 * recomputed.seconds / plain->seconds - 100 << " % more)";
  else
    out << "; without recomputation this batch does not fit";
  return out.str();
}

RecomputeCost measure_recompute(TrainingTask& task, const TrainOptions& options,
                                const std::function<void(bool)>& set_recompute) {
  RecomputeCost cost;
  {
    ModuleState before(task.module());
    cost = measure(task, options, set_recompute);
    before.restore();
  }
  allocator(options.device).empty_cache();
  return cost;
}

}  // namespace tern::models
