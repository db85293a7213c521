#include "tern/models/trainer/batch_finder.h"

#include <algorithm>
#include <optional>

#include "tern/core/memory/allocator.h"
#include "tern/kernels/base/check.h"
#include "tern/models/trainer/snapshot.h"

namespace tern::models {
namespace {

/// Times steps; the first ones also make memory and kernels ready.
class StepTimer final : public TrainObserver {
 public:
  void on_step(const StepMetrics& m) override {
    if (m.step == 2) items = steps = 0, seconds = 0;
    items += m.items;
    seconds += m.seconds;
    ++steps;
  }
  int64_t items = 0, steps = 0;
  double seconds = 0;
};

class BatchSearch {
 public:
  using Make = std::function<std::unique_ptr<TrainingTask>(int64_t size)>;
  BatchSearch(nn::Module& module, const Make& make, const TrainOptions& options)
      : make_(make), options_(options), before_(module) {
    constexpr int64_t kSteps = 4;
    options_.ema = 0;
    options_.max_steps = kSteps;
    options_.patience = 0;
    options_.validate = false;
    options_.explain_non_finite = false;
    options_.checkpoints = nullptr;
    options_.resume = nullptr;
  }

  BatchFinding run(int64_t smallest, int64_t largest) {
    int64_t size = smallest;
    while (tried(size) && size < largest) size = size > largest / 2 ? largest : 2 * size;
    while (!finding_.interrupted && finding_.too_large > 0 && !finding_.trials.empty()) {
      const int64_t fits = finding_.trials.back().size, gap = finding_.too_large - fits;
      if (gap <= std::max<int64_t>(1, fits / 16)) break;
      tried(fits + gap / 2);
    }
    return finding_;
  }

 private:
  /// Whether it fits, and the search may go on.
  bool tried(int64_t size) {
    CachingAllocator& memory = allocator(options_.device);
    memory.empty_cache();
    memory.reset_peak();
    bool fits = false;
    StepTimer timer;
    try {
      finding_.interrupted = train(*make_(size), options_, timer).stopped;
      fits = true;
    } catch (const OutOfMemoryError&) {
      finding_.too_large = size;
    }
    before_.restore();
    if (finding_.interrupted || !fits) return false;
    finding_.trials.push_back({size, static_cast<double>(timer.items) / std::max(timer.seconds, 1e-9),
                               timer.seconds / static_cast<double>(timer.steps), memory.statistics().peak_live_bytes});
    return true;
  }

  const Make& make_;
  TrainOptions options_;
  ModuleState before_;
  BatchFinding finding_;
};

}  // namespace

const BatchTrial* BatchFinding::fastest() const {
  const auto found = std::max_element(trials.begin(), trials.end(), [](const BatchTrial& a, const BatchTrial& b) {
    return a.items_per_second < b.items_per_second;
  });
  return found == trials.end() ? nullptr : &*found;
}

BatchFinding find_batch_size(nn::Module& module, const std::function<std::unique_ptr<TrainingTask>(int64_t size)>& make,
                             int64_t smallest, int64_t largest, const TrainOptions& options) {
  TERN_CHECK(smallest >= 1 && largest >= smallest, "find_batch_size: expected 1 <= smallest <= largest, got ", smallest,
             " and ", largest);
  TERN_CHECK(
      !options.parallel || options.parallel->group()->size() == 1,
      "find_batch_size: several processes cannot recover when one of them runs out of memory; start a single one");
  return BatchSearch(module, make, options).run(smallest, largest);
}

}  // namespace tern::models
