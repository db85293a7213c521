#pragma once
// Assigns rows to batches, epoch by epoch. The number of steps of every epoch, and with it every schedule, is known
// before training starts. A plan depends only on the lengths and the options.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tern/kernels/base/check.h"

namespace tern::data {

struct BatchPlanOptions {
  /// Exactly one of the two is positive. batch_size: sequences per batch, padded to the longest (or images of one
  /// size). batch_tokens: sequences packed without padding, up to this many tokens in all.
  int64_t batch_size = 0;
  int64_t batch_tokens = 0;
  int64_t max_sequences = 0;     // packed: maximum of sequences per batch; 0: no limit
  bool shuffle = true;           // by (seed, epoch); if false, rows keep their order (packed: up to `window`)
  bool group_by_length = false;  // padded: batches of similar lengths (see plan_epoch)
  bool drop_last = false;        // padded: skip a last batch that is not full
  int64_t window = 1024;         // packed: how many rows ahead to search for a sequence that fills a batch
  uint64_t seed = 0;
};

/// Batches of one epoch in one array: batch b is rows[starts[b]] .. rows[starts[b + 1] - 1].
struct EpochPlan {
  std::vector<int32_t> rows;
  std::vector<int64_t> starts = {0};
  std::vector<int32_t> repeats = {};  // ItemKey::repeat of each of `rows`; empty: all 0

  int64_t steps() const { return starts.empty() ? 0 : static_cast<int64_t>(starts.size()) - 1; }
  /// Throws Error if `step` is not in 0 .. steps() - 1.
  std::span<const int32_t> batch(int64_t step) const {
    TERN_CHECK(step >= 0 && step < steps(), "batch plan: step ", step, " of ", steps());
    return std::span(rows).subspan(static_cast<size_t>(starts[step]),
                                   static_cast<size_t>(starts[step + 1] - starts[step]));
  }
};

/// The plan of one epoch. `rows`: the data set rows to use; `lengths`: tokens of every data set row (needed
/// for batch_tokens and group_by_length, otherwise it may be empty).
///
/// Packed: rows in shuffled order fill a batch until one does not fit; then the longest that fits is taken from the
/// next `window` rows, until none fits. Rows passed over come first in the next batch, so the order stays random up to
/// about `window` rows. With IMDB's lengths 99.9 % of the capacity is used at 8,192 tokens.
///
/// Padded with group_by_length: shuffled rows are cut into chunks of 50 batches, each chunk is sorted by length and cut
/// into batches, and the batches are shuffled, with the longest first (so that a lack of memory shows in the first
/// step). Without shuffle all rows are sorted by length, longest first.
///
/// Throws Error if not exactly one of the sizes is positive, a row is longer than batch_tokens or is outside `lengths`.
EpochPlan plan_epoch(std::span<const int32_t> rows, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                     int64_t epoch);

/// The plan of rows whose order a sampler chose. With options.shuffle the batches of similar lengths are shuffled.
EpochPlan plan_in_order(std::vector<int32_t> order, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                        int64_t epoch);

/// The plans of epochs 0 .. epochs - 1. An epoch's batches are planned when they are asked for; kept are the rows and
/// their lengths, the plans of the two epochs that were used last, and of packed batches the number of each epoch's.
/// Several threads may use it at a time. Copies share the plans.
class BatchPlan {
 public:
  /// More are an error.
  static constexpr int64_t kMaxEpochs = 100'000'000;

  BatchPlan() = default;
  /// Packed batches are counted here, epoch by epoch, which takes as long as planning them: `between` is called before
  /// each, and may throw to end it.
  BatchPlan(std::span<const int32_t> rows, std::span<const int32_t> lengths, const BatchPlanOptions& options,
            int64_t epochs, const std::function<void()>& between = {});

  const BatchPlanOptions& options() const { return options_; }
  /// The rows that are planned.
  std::span<const int32_t> rows() const;
  int64_t epochs() const { return epochs_; }
  /// Throws Error if `epoch` is not in 0 .. epochs() - 1, as steps() does.
  std::shared_ptr<const EpochPlan> epoch(int64_t epoch) const;
  int64_t steps(int64_t epoch) const;
  int64_t total_steps() const;
  /// Maximum of sequences in any batch, and the longest sequence: the capacity of batches of constant shape.
  int64_t max_batch_sequences() const { return max_batch_sequences_; }
  int64_t longest() const { return longest_; }
  /// Real tokens / computed token rows: capacity when packed, over all epochs; batch x longest when padded, of the
  /// first epoch.
  double fill() const { return fill_; }

 private:
  struct Shared;
  void check_epoch(int64_t epoch) const;

  BatchPlanOptions options_;
  int64_t epochs_ = 0;
  std::shared_ptr<Shared> shared_;  // null without epochs
  std::vector<int32_t> steps_;      // of each epoch; one for all where they are equal
  int64_t max_batch_sequences_ = 0;
  int64_t longest_ = 0;
  double fill_ = 1;
};

}  // namespace tern::data
