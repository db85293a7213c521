#include "tern/kernels/base/thread_pool.h"

#include <execinfo.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>

#include "tern/kernels/base/denormals.h"
#include "tern/kernels/base/signal_guard.h"

namespace tern::kernels {
namespace {

// Times in nanoseconds.
constexpr int64_t kSpin = 50'000;           // spinning time of a waiting thread before it sleeps
constexpr int64_t kShortSpin = 2'000;       // the same while another program uses the core
constexpr int64_t kInterruption = 100'000;  // a gap this long in spinning: another program used the core
constexpr int64_t kCaution = 20'000'000;    // time after such a gap during which spins are short
constexpr int64_t kWakeCost = 5'000;        // the caller's time for waking one worker
constexpr int64_t kMaxDebt = 1'000'000;     // debt at which a worker pauses
constexpr int64_t kMaxCredit = 4'000'000;   // a time slice: two programs of equal priority take turns
constexpr int64_t kPauseForDebt = 16;       // length of the pause divided by the debt
constexpr int64_t kLongestPause = 1'000'000'000;
constexpr int64_t kRefusal = 1'000'000'000;      // time without new attempts after the system refused a thread
constexpr int kWakesOfOne = 2;                   // workers that one thread wakes at a time
constexpr size_t kStackBytes = size_t{8} << 20;  // as for a usual main thread, independent of the shell's limit

thread_local bool inside = false;

// glibc opens its unwinder when an exception first passes through it, as from std::call_once, or when a thread ends,
// and aborts where there is no memory for that. There is some when the library is loaded.
[[maybe_unused]] const int frames = [] {
  void* frame = nullptr;
  return backtrace(&frame, 1);
}();

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Sleeps while `word` is `value`, but no longer than `nanoseconds` (negative: without limit); may end early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t nanoseconds = -1) {
  timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nanoseconds < 0 ? nullptr : &time,
          nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

/// Spins until done() or for about `limit`. Returns done(). Sets interrupted if the thread did not run for a while.
template <class Done>
bool spin(int64_t limit, bool& interrupted, const Done& done) {
  const int64_t begin = now();
  for (int64_t last = begin;;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      __builtin_ia32_pause();
    }
    const int64_t time = now();
    if (time - last > kInterruption) interrupted = true;
    if (interrupted || time - begin > limit) return done();
    last = time;
  }
}

/// A caller's blocks, and the first exception that one of them threw.
struct Blocks {
  BlockFunction body;
  void* context;
  std::atomic<bool> failed = false;
  std::exception_ptr error = nullptr;

  static void run(void* raw, int64_t block) noexcept {
    Blocks& blocks = *static_cast<Blocks*>(raw);
    if (blocks.failed.load(std::memory_order_relaxed)) return;
    try {
      blocks.body(blocks.context, block);
    } catch (...) {
      if (!blocks.failed.exchange(true)) blocks.error = std::current_exception();
    }
  }
};

}  // namespace

/// A caller's work. A worker may read a job after another caller has taken it over: the values are valid only if the
/// worker then succeeds in taking a share.
struct alignas(64) ThreadPool::Job {
  /// Upper half: the job's number. Lower half: the number of shares that are not yet taken.
  std::atomic<uint64_t> ticket = 0;
  std::atomic<BlockFunction> body = nullptr;
  std::atomic<void*> context = nullptr;
  std::atomic<int64_t> blocks = 0, blocks_per_share = 0;
  std::atomic<uint32_t> shares = 0;
  std::atomic<unsigned> denormals = 0;  // denormal_bits() of the caller
  std::atomic<bool> claimed = false;
  /// Number of shares that workers have finished, and the flag kCallerSleeps.
  alignas(64) std::atomic<uint32_t> finished = 0;
  std::atomic<int64_t> waiting_since = 0;    // 0: the caller is not waiting
  std::atomic<int64_t> share_of_caller = 0;  // the caller's mean time for one of its shares

  static constexpr uint32_t kCallerSleeps = uint32_t{1} << 31;
  static constexpr int64_t kMaxShares = 1 << 16;

  static uint32_t left(uint64_t value) { return static_cast<uint32_t>(value); }
  int64_t left() const { return left(ticket.load(std::memory_order_relaxed)); }

  /// Runs shares while any are left. before() returns whether to take one; after() is called after each.
  template <class Before, class After>
  int64_t work(const Before& before, const After& after);
  void open(BlockFunction new_body, void* new_context, int64_t new_blocks);
  void wait(uint32_t taken, int64_t begin, int64_t own_count);
};

template <class Before, class After>
int64_t ThreadPool::Job::work(const Before& before, const After& after) {
  int64_t done = 0;
  uint64_t value = ticket.load(std::memory_order_acquire);
  while (left(value) > 0 && before()) {
    const BlockFunction run = body.load(std::memory_order_relaxed);
    void* const data = context.load(std::memory_order_relaxed);
    const int64_t count = blocks.load(std::memory_order_relaxed),
                  size = blocks_per_share.load(std::memory_order_relaxed);
    const int64_t all = shares.load(std::memory_order_relaxed);
    const unsigned bits = denormals.load(std::memory_order_relaxed);
    // Fails when the job that was read has ended, since `value` contains its number.
    if (!ticket.compare_exchange_weak(value, value - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    set_denormal_bits(bits);
    const int64_t first = (all - left(value)) * size;
    for (int64_t b = first; b < std::min(first + size, count); ++b) run(data, b);
    ++done;
    after();
    value = ticket.load(std::memory_order_acquire);
  }
  return done;
}

void ThreadPool::Job::open(BlockFunction new_body, void* new_context, int64_t new_blocks) {
  const int64_t size = (new_blocks + kMaxShares - 1) / kMaxShares;
  const auto all = static_cast<uint32_t>((new_blocks + size - 1) / size);
  body.store(new_body, std::memory_order_relaxed);
  context.store(new_context, std::memory_order_relaxed);
  blocks.store(new_blocks, std::memory_order_relaxed);
  blocks_per_share.store(size, std::memory_order_relaxed);
  shares.store(all, std::memory_order_relaxed);
  denormals.store(denormal_bits(), std::memory_order_relaxed);
  finished.store(0, std::memory_order_relaxed);
  waiting_since.store(0, std::memory_order_relaxed);
  const uint64_t number = (ticket.load(std::memory_order_relaxed) >> 32) + 1;
  ticket.store(number << 32 | all, std::memory_order_release);
}

/// Waits until workers have finished their `taken` shares. The caller ran `own_count` shares, starting at time `begin`.
void ThreadPool::Job::wait(uint32_t taken, int64_t begin, int64_t own_count) {
  const auto done = [&] { return finished.load(std::memory_order_acquire) == taken; };
  if (done()) return;
  const int64_t time = now();
  if (own_count > 0) share_of_caller.store((time - begin) / own_count, std::memory_order_relaxed);
  if (own_count == 0) share_of_caller.store(kLongestPause, std::memory_order_relaxed);
  waiting_since.store(time, std::memory_order_relaxed);
  bool interrupted = false;
  if (spin(kSpin, interrupted, done)) return;
  uint32_t value = finished.load(std::memory_order_acquire);
  while ((value & ~kCallerSleeps) != taken) {
    if (!(value & kCallerSleeps) &&
        !finished.compare_exchange_weak(value, value | kCallerSleeps, std::memory_order_acquire)) {
      continue;
    }
    futex_wait(finished, value | kCallerSleeps);
    value = finished.load(std::memory_order_acquire);
  }
}

class alignas(64) ThreadPool::Worker {
 public:
  Worker(ThreadPool& pool, int index) : pool_(pool), index_(index) {}

  bool start() noexcept;
  /// Ends the worker's sleep; returns false if it does not sleep.
  bool wake() noexcept;

  std::atomic<Worker*> next = nullptr;
  bool has_thread = false;  // guarded by starting_

 private:
  enum State : uint32_t { kAwake, kAsleep, kPaused };

  void loop() noexcept;
  bool end();
  int64_t run_jobs();
  int64_t settle(const Job& job, int64_t begin);
  bool await(uint32_t seen);
  void pause();

  ThreadPool& pool_;
  const int index_;
  std::atomic<uint32_t> state_ = kAwake;
  // Used only by the worker's thread. debt_: the time that callers waited for it minus the time that it saved them.
  int64_t debt_ = 0, cautious_until_ = 0;
};

bool ThreadPool::Worker::start() noexcept {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // Signals from outside are left to the program's threads, except a profiler's.
  sigset_t blocked = signals_from_outside(), before;
  sigdelset(&blocked, SIGPROF);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const int error = pthread_create(
      &thread, &attributes,
      [](void* self) -> void* {
        static_cast<Worker*>(self)->loop();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

void ThreadPool::Worker::loop() noexcept {
  const std::string name = "tern worker " + std::to_string(index_);
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  inside = true;
  debt_ = cautious_until_ = 0;
  for (bool woken = false;;) {
    const uint32_t seen = pool_.published_.load(std::memory_order_seq_cst);
    if (woken) pool_.wake_more();
    const int64_t done = run_jobs();
    if (index_ >= current_threads() - 1 && end()) return;
    if (done == 0 && woken) debt_ += kWakeCost;
    woken = false;
    if (debt_ > kMaxDebt)
      pause();
    else if (done == 0)
      woken = await(seen);
  }
}

/// Ends the thread if it is surplus; returns whether it did.
bool ThreadPool::Worker::end() {
  std::lock_guard<std::mutex> lock(pool_.starting_);
  if (index_ < current_threads() - 1) return false;
  has_thread = false;
  pool_.ready_.store(std::min(pool_.ready_.load(), index_));
  return true;
}

int64_t ThreadPool::Worker::run_jobs() {
  int64_t done = 0;
  const int used = pool_.jobs_used_.load(std::memory_order_acquire);
  for (int i = 0; i < used; ++i) {
    Job& job = pool_.jobs_[i];
    // No more workers than could get a share: they would only delay each other.
    if (index_ >= 2 * job.left()) continue;
    int64_t begin = now();
    done += job.work([&] { return debt_ <= kMaxDebt && index_ < current_threads() - 1; },
                     [&] {
                       begin = settle(job, begin);
                       const uint32_t value = job.finished.fetch_add(1, std::memory_order_acq_rel);
                       // Only the last share's end releases the caller, but the worker does not know which is last.
                       if (value & Job::kCallerSleeps) futex_wake(job.finished);
                     });
  }
  return done;
}

/// Updates debt_ for the share that began at `begin`. Returns the current time.
int64_t ThreadPool::Worker::settle(const Job& job, int64_t begin) {
  const int64_t time = now(), waiting = job.waiting_since.load(std::memory_order_relaxed);
  int64_t saved = time - begin, waited = 0;
  if (waiting != 0) {
    waited = std::max<int64_t>(0, time - std::max(begin, waiting));
    saved = std::min(saved, job.share_of_caller.load(std::memory_order_relaxed));
  }
  debt_ = std::max(debt_ + waited - saved, -kMaxCredit);
  return time;
}

/// Waits for a job after number `seen`. Returns whether a caller had to wake the thread.
bool ThreadPool::Worker::await(uint32_t seen) {
  bool interrupted = false;
  const int64_t limit = cautious_until_ != 0 && now() < cautious_until_ ? kShortSpin : kSpin;
  const auto published = [&] { return pool_.published_.load(std::memory_order_acquire) != seen; };
  pool_.spinning_.fetch_add(1, std::memory_order_relaxed);
  const bool found = spin(limit, interrupted, published);
  pool_.spinning_.fetch_sub(1, std::memory_order_relaxed);
  if (interrupted) cautious_until_ = now() + kCaution;
  if (found) return false;
  // Either publish() sees that the worker is asleep, or the worker sees the new job.
  pool_.asleep_.fetch_add(1, std::memory_order_seq_cst);
  state_.store(kAsleep, std::memory_order_seq_cst);
  if (pool_.published_.load(std::memory_order_seq_cst) != seen) {
    uint32_t expected = kAsleep;
    if (state_.compare_exchange_strong(expected, kAwake)) {
      pool_.asleep_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    return true;
  }
  while (state_.load(std::memory_order_acquire) == kAsleep) futex_wait(state_, kAsleep);
  return true;
}

bool ThreadPool::Worker::wake() noexcept {
  uint32_t expected = kAsleep;
  if (!state_.compare_exchange_strong(expected, kAwake, std::memory_order_seq_cst)) return false;
  pool_.asleep_.fetch_sub(1, std::memory_order_relaxed);
  futex_wake(state_);
  return true;
}

/// Keeps the worker away from jobs for a time proportional to its debt.
void ThreadPool::Worker::pause() {
  const int64_t end = now() + std::min(debt_ * kPauseForDebt, kLongestPause);
  debt_ = 0;
  state_.store(kPaused, std::memory_order_relaxed);
  for (int64_t left = end - now(); left > 0; left = end - now()) futex_wait(state_, kPaused, left);
  state_.store(kAwake, std::memory_order_relaxed);
}

namespace {
std::atomic<ThreadPool*> pool_of_process = nullptr;
std::atomic<ThreadPool*> pool_of_parent = nullptr;
}  // namespace

ThreadPool::ThreadPool() : jobs_(new Job[kJobs]) {}

ThreadPool& ThreadPool::instance() {
  if (ThreadPool* existing = pool_of_process.load(std::memory_order_acquire)) return *existing;
  static const int registered = pthread_atfork(nullptr, nullptr, forget_in_child);
  static_cast<void>(registered);
  auto* created = new ThreadPool;
  created->parent_pool_ = pool_of_parent.load();
  ThreadPool* expected = nullptr;
  if (pool_of_process.compare_exchange_strong(expected, created)) return *created;
  delete[] created->jobs_;
  delete created;
  return *expected;
}

void ThreadPool::forget_in_child() noexcept {
  if (ThreadPool* const parents = pool_of_process.exchange(nullptr)) pool_of_parent.store(parents);
}

bool ThreadPool::is_inside() noexcept { return inside; }

ThreadPool::Job* ThreadPool::claim_job() noexcept {
  for (int i = 0; i < kJobs; ++i) {
    bool expected = false;
    if (jobs_[i].claimed.load(std::memory_order_relaxed) ||
        !jobs_[i].claimed.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      continue;
    }
    int used = jobs_used_.load();
    while (used <= i && !jobs_used_.compare_exchange_weak(used, i + 1)) {
    }
    return &jobs_[i];
  }
  return nullptr;
}

void ThreadPool::run(BlockFunction body, void* context, int64_t blocks, int threads) {
  Blocks all{body, context};
  Job* const job = claim_job();
  inside = true;
  if (!job) {
    for (int64_t b = 0; b < blocks; ++b) Blocks::run(&all, b);
  } else {
    job->open(Blocks::run, &all, blocks);
    const uint32_t shares = job->shares.load(std::memory_order_relaxed);
    publish(shares, threads);
    const int64_t begin = now();
    const int64_t own_count = job->work([] { return true; }, [] {});
    job->wait(shares - static_cast<uint32_t>(own_count), begin, own_count);
    job->claimed.store(false, std::memory_order_release);
  }
  inside = false;
  if (all.error) std::rethrow_exception(all.error);
}

void ThreadPool::publish(uint32_t shares, int threads) noexcept {
  const int wanted = static_cast<int>(std::min<int64_t>(threads - 1, shares - int64_t{1}));
  if (ready_.load(std::memory_order_acquire) < wanted) {
    const int64_t until = refused_until_.load(std::memory_order_relaxed);
    if (until == 0 || now() >= until) start_workers(wanted);
  }
  published_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) == 0) return;
  wake_workers(0, threads - 1, std::min(kWakesOfOne, wanted - spinning_.load(std::memory_order_relaxed)));
}

void ThreadPool::start_workers(int count) noexcept {
  // Another caller may hold the lock and be interrupted: this call then continues without new workers.
  const std::unique_lock<std::mutex> lock(starting_, std::try_to_lock);
  if (!lock) return;
  std::atomic<Worker*>* link = &first_;
  for (int i = 0; i < count; ++i) {
    Worker* worker = link->load();
    if (!worker && (worker = new (std::nothrow) Worker(*this, i))) link->store(worker, std::memory_order_release);
    if (worker && !worker->has_thread) worker->has_thread = worker->start();
    if (!worker || !worker->has_thread) return refused_until_.store(now() + kRefusal);
    if (ready_.load() == i) ready_.store(i + 1, std::memory_order_release);
    link = &worker->next;
  }
}

/// A woken worker helps to wake the others: one thread would take too long to wake many.
void ThreadPool::wake_more() noexcept {
  if (asleep_.load(std::memory_order_relaxed) == 0) return;
  int64_t left = 0;
  for (int i = 0; i < jobs_used_.load(std::memory_order_acquire); ++i) left += jobs_[i].left();
  wake_workers(0, current_threads() - 1, static_cast<int>(std::min<int64_t>(kWakesOfOne, left - 1)));
}

/// Wakes at most `max_wakes` sleeping workers of [begin, end).
void ThreadPool::wake_workers(int begin, int end, int max_wakes) noexcept {
  int index = 0;
  for (Worker* w = first_.load(std::memory_order_acquire); w && index < end && max_wakes > 0;
       w = w->next.load(std::memory_order_acquire), ++index) {
    if (index >= begin && w->wake()) --max_wakes;
  }
}

void ThreadPool::end_surplus_workers() {
  ThreadPool* const pool = pool_of_process.load(std::memory_order_acquire);
  if (!pool) return;
  pool->refused_until_.store(0);
  pool->published_.fetch_add(1, std::memory_order_seq_cst);  // workers about to fall asleep check again
  pool->wake_workers(current_threads() - 1, 1 << 30, 1 << 30);
}

}  // namespace tern::kernels
