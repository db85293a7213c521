#include "tern/data/plan/batch_plan.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <numeric>
#include <utility>

#include "tern/data/plan/shuffle.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr int64_t kStretchBatches = 50;

void check(std::span<const int32_t> rows, std::span<const int32_t> lengths, const BatchPlanOptions& options) {
  TERN_CHECK(
      options.batch_size >= 0 && options.batch_tokens >= 0 && (options.batch_size > 0) != (options.batch_tokens > 0),
      "batch plan: give either a batch size or a token budget, positive (got ", options.batch_size, " and ",
      options.batch_tokens, ")");
  TERN_CHECK(options.max_sequences >= 0 && options.window >= 1,
             "batch plan: max_sequences must be >= 0 and window >= 1");
  if (lengths.empty() && options.batch_size > 0 && !options.group_by_length) return;
  for (const int32_t row : rows) {
    TERN_CHECK(row >= 0 && static_cast<size_t>(row) < lengths.size(), "batch plan: row ", row, " of ", lengths.size());
    TERN_CHECK(options.batch_size > 0 || lengths[row] <= options.batch_tokens, "a batch of ", options.batch_tokens,
               " tokens cannot hold the longest sequence (", lengths[row], " tokens): raise --batch-tokens or lower ",
               "--max-length");
  }
}

void plan_padded(std::vector<int32_t> order, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                 int64_t epoch, EpochPlan& plan) {
  const int64_t n = static_cast<int64_t>(order.size());
  const auto longer = [&](int32_t a, int32_t b) { return lengths[a] > lengths[b]; };
  if (options.group_by_length) {
    const int64_t stretch = options.shuffle ? std::min(n, kStretchBatches * std::min(n, options.batch_size)) : n;
    for (int64_t begin = 0; begin < n; begin += stretch) {
      std::stable_sort(order.begin() + begin, order.begin() + std::min(n, begin + stretch), longer);
    }
  }
  std::vector<int64_t> begins;
  for (int64_t begin = 0; begin < n; begin += std::min(n, options.batch_size)) begins.push_back(begin);
  if (options.drop_last && n % options.batch_size != 0) begins.pop_back();
  if (options.group_by_length && options.shuffle && !begins.empty()) {
    shuffle(std::span(begins), RandomStream(options.seed, Draw::kBatchOrder, static_cast<uint64_t>(epoch)));
    // Rows are sorted within a chunk, so the first row of a batch is its longest.
    const auto longest = std::max_element(begins.begin(), begins.end(),
                                          [&](int64_t a, int64_t b) { return lengths[order[a]] < lengths[order[b]]; });
    std::iter_swap(begins.begin(), longest);
  }
  for (const int64_t begin : begins) {
    const int64_t end = std::min(n, begin + std::min(n, options.batch_size));
    plan.rows.insert(plan.rows.end(), order.begin() + begin, order.begin() + end);
    plan.starts.push_back(static_cast<int64_t>(plan.rows.size()));
  }
}

void plan_packed(const std::vector<int32_t>& order, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                 EpochPlan& plan) {
  // `line` holds at most `window` pending rows, in shuffled order.
  std::vector<int32_t> line;
  size_t next = 0;
  while (next < order.size() || !line.empty()) {
    int64_t room = options.batch_tokens;
    int64_t sequences = 0;
    for (;;) {
      while (static_cast<int64_t>(line.size()) < options.window && next < order.size()) line.push_back(order[next++]);
      if (line.empty() || (options.max_sequences > 0 && sequences == options.max_sequences)) break;
      size_t chosen = 0;
      if (lengths[line[0]] > room) {
        // The longest that fits; the first of several.
        chosen = line.size();
        for (size_t i = 0; i < line.size(); ++i) {
          const bool better = chosen == line.size() || lengths[line[i]] > lengths[line[chosen]];
          if (lengths[line[i]] <= room && better) chosen = i;
        }
        if (chosen == line.size()) break;
      }
      room -= lengths[line[chosen]];
      ++sequences;
      plan.rows.push_back(line[chosen]);
      line.erase(line.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    plan.starts.push_back(static_cast<int64_t>(plan.rows.size()));
  }
}

}  // namespace

EpochPlan plan_epoch(std::span<const int32_t> rows, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                     int64_t epoch) {
  std::vector<int32_t> order(rows.begin(), rows.end());
  if (options.shuffle) {
    shuffle(std::span(order), RandomStream(options.seed, Draw::kEpoch, static_cast<uint64_t>(epoch)));
  }
  return plan_in_order(std::move(order), lengths, options, epoch);
}

EpochPlan plan_in_order(std::vector<int32_t> order, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                        int64_t epoch) {
  check(order, lengths, options);
  EpochPlan plan;
  plan.rows.reserve(order.size());
  if (options.batch_size > 0) {
    plan_padded(std::move(order), lengths, options, epoch, plan);
  } else {
    plan_packed(order, lengths, options, plan);
  }
  return plan;
}

struct BatchPlan::Shared {
  Shared(std::span<const int32_t> all, std::span<const int32_t> of_rows)
      : rows(all.begin(), all.end()), lengths(of_rows.begin(), of_rows.end()) {}
  const std::vector<int32_t> rows, lengths;
  std::mutex mutex;
  std::deque<std::pair<int64_t, std::shared_ptr<const EpochPlan>>> recent;  // the one that was used last is last
};

BatchPlan::BatchPlan(std::span<const int32_t> rows, std::span<const int32_t> lengths, const BatchPlanOptions& options,
                     int64_t epochs, const std::function<void()>& between)
    : options_(options), epochs_(epochs) {
  TERN_CHECK(epochs >= 0, "batch plan: the number of epochs must not be negative, got ", epochs);
  TERN_CHECK(epochs <= kMaxEpochs, "batch plan: at most ", kMaxEpochs, " epochs can be planned, got ", epochs,
             "; give fewer epochs");
  if (epochs == 0) return;
  shared_ = std::make_shared<Shared>(rows, lengths);
  const bool packed = options.batch_tokens > 0;
  int64_t tokens = 0, computed = 0;
  for (int64_t epoch = 0; epoch < (packed && options.shuffle ? epochs : 1); ++epoch) {
    if (between) between();
    const EpochPlan plan = plan_epoch(rows, lengths, options, epoch);
    steps_.push_back(static_cast<int32_t>(plan.steps()));
    for (int64_t step = 0; step < plan.steps(); ++step) {
      const std::span<const int32_t> batch = plan.batch(step);
      const int64_t sequences = static_cast<int64_t>(batch.size());
      max_batch_sequences_ = std::max(max_batch_sequences_, sequences);
      if (lengths.empty()) continue;
      int64_t longest = 0;
      for (const int32_t row : batch) {
        tokens += lengths[row];
        longest = std::max<int64_t>(longest, lengths[row]);
      }
      computed += packed ? options.batch_tokens : sequences * longest;
    }
  }
  // The longest of all rows, as those that are left out of a last batch differ between epochs.
  if (!lengths.empty())
    for (const int32_t row : rows) longest_ = std::max<int64_t>(longest_, lengths[row]);
  if (computed > 0) fill_ = static_cast<double>(tokens) / static_cast<double>(computed);
}

std::span<const int32_t> BatchPlan::rows() const {
  return shared_ ? std::span<const int32_t>(shared_->rows) : std::span<const int32_t>();
}

void BatchPlan::check_epoch(int64_t epoch) const {
  TERN_CHECK(epoch >= 0 && epoch < epochs(), "batch plan: epoch ", epoch, " of ", epochs());
}

std::shared_ptr<const EpochPlan> BatchPlan::epoch(int64_t epoch) const {
  constexpr size_t kKept = 2;  // the next epoch's batches are made while the last one's are in use
  check_epoch(epoch);
  if (!options_.shuffle) epoch = 0;  // all epochs have the same plan
  const std::lock_guard lock(shared_->mutex);
  auto& recent = shared_->recent;
  const auto found = std::find_if(recent.begin(), recent.end(), [&](const auto& e) { return e.first == epoch; });
  if (found != recent.end()) {
    std::rotate(found, found + 1, recent.end());
    return recent.back().second;
  }
  auto plan = std::make_shared<const EpochPlan>(plan_epoch(shared_->rows, shared_->lengths, options_, epoch));
  if (recent.size() == kKept) recent.pop_front();
  recent.emplace_back(epoch, plan);
  return plan;
}

int64_t BatchPlan::steps(int64_t epoch) const {
  check_epoch(epoch);
  return steps_[steps_.size() == 1 ? 0 : static_cast<size_t>(epoch)];
}

int64_t BatchPlan::total_steps() const {
  const int64_t sum = std::accumulate(steps_.begin(), steps_.end(), int64_t{0});
  return steps_.size() == 1 ? sum * epochs_ : sum;
}

}  // namespace tern::data
