#pragma once
// Batches that worker threads prepare ahead and that are returned in order.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tern/kernels/base/check.h"

namespace tern::data {

/// The batches first, first + stride, ... of an epoch. count >= 0: that many, continuing at the epoch's first batch
/// after its last (so that every process of a job gets the same number); negative: all up to the end.
struct BatchStripe {
  int64_t first = 0, stride = 1, count = -1;

  /// Number of batches, of an epoch of `steps`. Throws Error that begins with `what` if the stripe is out of range.
  int64_t size(const char* what, int64_t steps) const {
    TERN_CHECK(stride >= 1 && first >= 0 && (count >= 0 || first <= steps), what, ": batch ", first, " of ", steps);
    TERN_CHECK(count <= 0 || steps > 0, what, ": there are no batches");
    return count >= 0 ? count : (steps - first + stride - 1) / stride;
  }
  int64_t batch(int64_t i, int64_t steps) const { return (first + i * stride) % steps; }
};

struct StreamOptions {
  int workers = 2;       // 0: the consumer's thread makes each batch in next()
  int64_t prefetch = 0;  // batches finished or being made ahead of the consumer; 0: two per worker
};

/// The batches make(begin) .. make(end - 1), in this order for any number of workers. `make` runs on several threads,
/// so it must depend on its argument alone. At most `prefetch` batches are held in addition to the current one. An
/// exception of make(i) is rethrown by the next() that returns batch i. A stream may be destroyed at any time: its
/// destructor waits for the batches being made.
template <class Batch>
class BatchStream {
 public:
  using Make = std::function<Batch(int64_t step)>;

  BatchStream(int64_t begin, int64_t end, Make make, const StreamOptions& options)
      : shared_(std::make_unique<Shared>()), begin_(begin), end_(end), consumed_(begin) {
    TERN_CHECK(options.workers >= 0 && options.prefetch >= 0, "loader: workers and prefetch must be >= 0, got ",
               options.workers, " and ", options.prefetch);
    shared_->make = std::move(make);
    shared_->next = begin;
    shared_->end = end;
    const int64_t workers = std::min<int64_t>(options.workers, end - begin);
    const int64_t prefetch = options.prefetch > 0 ? options.prefetch : 2 * std::max<int64_t>(workers, 1);
    shared_->allowed = begin + prefetch;
    shared_->slots.resize(static_cast<size_t>(prefetch));
    Shared* shared = shared_.get();
    for (int64_t i = 0; i < workers; ++i) shared_->workers.emplace_back([shared] { shared->work(); });
  }

  /// The stripe's batches of an epoch of `steps`: make(step) for each. An Error for a bad stripe begins with `what`.
  static BatchStream striped(const char* what, int64_t steps, const BatchStripe& stripe, Make make,
                             const StreamOptions& options) {
    return BatchStream(
        0, stripe.size(what, steps),
        [make = std::move(make), stripe, steps](int64_t i) { return make(stripe.batch(i, steps)); }, options);
  }

  int64_t size() const { return end_ - begin_; }

  /// The next batch, or nothing at the end. Throws Error if the stream was moved from, also within a loop over it.
  std::optional<Batch> next() {
    TERN_CHECK(shared_, "loader: this stream of batches was moved from; use the one that it was moved to");
    if (consumed_ >= end_) return std::nullopt;
    const int64_t step = consumed_++;
    return shared_->workers.empty() ? shared_->make(step) : shared_->take(step);
  }

  class Iterator {
   public:
    explicit Iterator(BatchStream* stream) : stream_(stream) { ++*this; }
    Batch& operator*() const {
      TERN_CHECK(stream_->current_, "loader: there is no batch at the end of a stream");
      return *stream_->current_;
    }
    Batch* operator->() const { return &**this; }
    Iterator& operator++() {
      stream_->current_.reset();  // frees its memory for the next batch
      stream_->current_ = stream_->next();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !stream_->current_; }

   private:
    BatchStream* stream_;
  };
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  /// State shared by workers and consumer. Its address is fixed, so the stream can be moved.
  struct Shared {
    Make make;
    std::mutex mutex;
    std::condition_variable room, ready;
    int64_t next = 0;     // first batch that no worker has taken
    int64_t allowed = 0;  // workers may take batches below this
    int64_t end = 0;
    bool stop = false;
    std::vector<Slot> slots;  // batch i is in slot i % slots.size()
    std::vector<std::jthread> workers;

    ~Shared() {
      {
        const std::lock_guard lock(mutex);
        stop = true;
      }
      room.notify_all();
      workers.clear();  // joins
    }

    void work() {
      for (;;) {
        std::unique_lock lock(mutex);
        room.wait(lock, [&] { return stop || next >= end || next < allowed; });
        if (stop || next >= end) return;
        const int64_t step = next++;
        lock.unlock();
        Slot slot;
        try {
          slot.batch.emplace(make(step));
        } catch (...) {
          slot.error = std::current_exception();
        }
        lock.lock();
        slots[static_cast<size_t>(step) % slots.size()] = std::move(slot);
        lock.unlock();
        ready.notify_one();
      }
    }

    std::optional<Batch> take(int64_t step) {
      std::unique_lock lock(mutex);
      Slot& slot = slots[static_cast<size_t>(step) % slots.size()];
      ready.wait(lock, [&] { return slot.batch || slot.error; });
      Slot taken = std::exchange(slot, Slot());
      ++allowed;
      lock.unlock();
      room.notify_one();
      if (taken.error) std::rethrow_exception(taken.error);
      return std::move(taken.batch);
    }
  };

  std::unique_ptr<Shared> shared_;
  int64_t begin_, end_, consumed_;
  std::optional<Batch> current_;
};

}  // namespace tern::data
