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
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tern/core/profiler/profiler.h"
#include "tern/data/loaders/data_waits.h"
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

}  // namespace tern::data
namespace tern::detail {
/// Throws Error, which begins with `name`, unless workers and prefetch are >= 0 and such numbers of threads and places
/// are possible.
void check_stream_sizes(const char* name, const data::StreamOptions& options);
}  // namespace tern::detail
namespace tern::data {

/// Batches in order, the same for any number of workers. At most `prefetch` of them are held in addition to the current
/// one. What fails a batch is rethrown by the next() that returns it. A stream may be destroyed at any time: its
/// destructor waits for the batches being made.
template <class Batch>
class BatchStream {
 public:
  using Make = std::function<Batch(int64_t step)>;
  using Job = std::function<Batch()>;
  /// Gives what makes the next batch, an empty Job at the end. Called by one thread at a time; its exception ends the
  /// stream. The Jobs themselves run on several threads.
  using Jobs = std::function<Job()>;

  explicit BatchStream(Jobs jobs, const StreamOptions& options, int64_t size = kUnknownSize)
      : shared_(std::make_unique<Shared>()), size_(size) {
    tern::detail::check_stream_sizes("loader", options);
    shared_->jobs = std::move(jobs);
    const int64_t workers = size < 0 ? options.workers : std::min<int64_t>(options.workers, size);
    const int64_t prefetch = options.prefetch > 0 ? options.prefetch : 2 * std::max<int64_t>(workers, 1);
    shared_->allowed = prefetch;
    shared_->slots.resize(static_cast<size_t>(prefetch));
    Shared* shared = shared_.get();
    try {
      for (int64_t i = 0; i < workers; ++i) shared_->workers.emplace_back([shared] { shared->work(); });
    } catch (const std::system_error& error) {
      fail("loader: the system gave ", shared_->workers.size(), " of ", workers, " threads (", error.what(),
           "); ask for fewer workers");
    }
  }

  /// The batches make(begin) .. make(end - 1). `make` must depend on its argument alone.
  BatchStream(int64_t begin, int64_t end, Make make, const StreamOptions& options)
      : BatchStream(
            [make = std::make_shared<const Make>(std::move(make)), next = begin, end]() mutable -> Job {
              if (next >= end) return {};
              return [make, step = next++] { return (*make)(step); };
            },
            options, end - begin) {}

  /// The stripe's batches of an epoch of `steps`: make(step) for each. An Error for a bad stripe begins with `what`.
  static BatchStream striped(const char* what, int64_t steps, const BatchStripe& stripe, Make make,
                             const StreamOptions& options) {
    return BatchStream(
        0, stripe.size(what, steps),
        [make = std::move(make), stripe, steps](int64_t i) { return make(stripe.batch(i, steps)); }, options);
  }

  /// Number of batches; kUnknownSize where only the source knows.
  int64_t size() const { return size_; }
  static constexpr int64_t kUnknownSize = -1;

  /// The next batch, or nothing at the end. Throws Error if the stream was moved from, also within a loop over it.
  std::optional<Batch> next() {
    TERN_CHECK(shared_, "loader: this stream of batches was moved from; use the one that it was moved to");
    if (finished_) return std::nullopt;
    Slot slot = shared_->workers.empty() ? shared_->make_next() : shared_->take(consumed_);
    ++consumed_;
    finished_ = slot.last || consumed_ == size_;
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
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
    bool last = false;  // no batch follows
    bool ready() const { return batch || error || last; }
  };

  /// State shared by workers and consumer. Its address is fixed, so the stream can be moved.
  struct Shared {
    std::mutex order;  // held while a job is fetched; locked before `mutex`
    Jobs jobs;
    bool ended = false;
    std::mutex mutex;
    std::condition_variable room, ready;
    int64_t next = 0;     // first batch that no worker has taken
    int64_t allowed = 0;  // workers may take batches below this
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

    Job next_job(Slot& slot) {
      Job job;
      try {
        job = jobs();
      } catch (...) {
        slot.error = std::current_exception();
      }
      slot.last = !job;
      return job;
    }
    void run(const Job& job, Slot& slot) {
      if (!job) return;
      try {
        slot.batch.emplace(job());
      } catch (...) {
        slot.error = std::current_exception();
      }
    }
    /// In the consumer's thread.
    Slot make_next() {
      Slot slot;
      run(next_job(slot), slot);
      return slot;
    }

    void work() {
      for (;;) {
        std::unique_lock in_order(order);
        std::unique_lock lock(mutex);
        room.wait(lock, [&] { return stop || next < allowed; });
        if (stop || ended) return;
        const int64_t step = next++;
        lock.unlock();
        Slot slot;
        const Job job = next_job(slot);
        ended = slot.last;
        in_order.unlock();
        run(job, slot);
        lock.lock();
        slots[static_cast<size_t>(step) % slots.size()] = std::move(slot);
        lock.unlock();
        ready.notify_one();
      }
    }

    Slot take(int64_t step) {
      std::unique_lock lock(mutex);
      std::optional<ProfileRange> range;
      if (profiling()) {
        const auto depth = std::count_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.ready(); });
        range.emplace(kTakeRanges[std::min(static_cast<size_t>(depth), kTakeRanges.size() - 1)]);
      }
      Slot& slot = slots[static_cast<size_t>(step) % slots.size()];
      ready.wait(lock, [&] { return slot.ready(); });
      Slot taken = std::exchange(slot, Slot());
      ++allowed;
      lock.unlock();
      room.notify_one();
      return taken;
    }
  };

  std::unique_ptr<Shared> shared_;
  int64_t size_, consumed_ = 0;
  bool finished_ = size_ == 0;
  std::optional<Batch> current_;
};

}  // namespace tern::data
