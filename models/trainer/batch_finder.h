#pragma once
// How many examples of a batch fit into memory, and how fast training is at each size.

#include <functional>
#include <memory>
#include <vector>

#include "tern/models/trainer/trainer.h"

namespace tern::models {

struct BatchTrial {
  int64_t size = 0;
  double items_per_second = 0;
  double step_seconds = 0;
  int64_t peak_bytes = 0;  // of the device's memory
};

struct BatchFinding {
  std::vector<BatchTrial> trials = {};  // that fit, from the smallest size
  int64_t too_large = 0;                // the smallest size for which memory did not suffice; 0: all fit
  bool interrupted = false;             // by TrainOptions::should_stop
  /// The trial with the most items per second; null without trials.
  const BatchTrial* fastest() const;
};

/// Tries sizes smallest, 2 smallest, 4 smallest, ... up to `largest`, with a few steps each. When one throws
/// OutOfMemoryError, sizes between it and the last that fitted are halved until they are at most a sixteenth apart. The
/// module, which is that of every task, is afterwards as before. `make` gives a task with batches of a size and four
/// steps or more. Throws Error for several processes, of which one could run out of memory alone.
BatchFinding find_batch_size(nn::Module& module, const std::function<std::unique_ptr<TrainingTask>(int64_t size)>& make,
                             int64_t smallest, int64_t largest, const TrainOptions& options);

}  // namespace tern::models
