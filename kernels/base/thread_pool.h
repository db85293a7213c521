#pragma once
// The worker threads behind run_blocks().

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tern::kernels {

/// The number of threads that was set last, ignoring FixedThreads.
int current_threads();

using BlockFunction = void (*)(void* context, int64_t block);

/// Worker threads and the jobs that callers share with them. A job is a number of blocks. Its caller and the workers
/// take blocks; when none is left the caller waits only for blocks that workers have begun. So a worker that does not
/// run because another program uses its core delays no caller, unless it stopped within a block: a worker whose blocks
/// cost callers more time than they save pauses (Worker::settle). Waiting threads spin for some microseconds and then
/// sleep. Several callers may run jobs at once; each completes its job even without workers. Workers inherit priority
/// and affinity from the thread whose call created them.
class ThreadPool {
 public:
  /// The process's pool; the child of a fork() gets a new one, since the parent's threads do not exist there. Never
  /// destroyed: workers sleep until the process ends.
  static ThreadPool& instance();

  static constexpr int kMaxThreads = 1024;

  /// Runs body(context, b) for every b in [0, blocks) on this thread and on at most `threads` - 1 workers. If body
  /// throws on any thread, no further blocks begin and the first exception is rethrown here once the running ones are
  /// done. If the system refuses a thread, the existing ones do the work.
  void run(BlockFunction body, void* context, int64_t blocks, int threads);

  /// Ends the workers beyond current_threads(), after that number has changed.
  static void end_surplus_workers();

  /// Returns whether the calling thread is running blocks.
  static bool is_inside() noexcept;

 private:
  struct Job;
  class Worker;

  static constexpr int kJobs = 16;  // concurrent jobs; further callers run their jobs alone

  ThreadPool();
  static void forget_in_child() noexcept;

  Job* claim_job() noexcept;
  void publish(uint32_t shares, int threads) noexcept;
  void start_workers(int count) noexcept;
  void wake_workers(int begin, int end, int max_wakes) noexcept;
  void wake_more() noexcept;

  Job* const jobs_;
  std::atomic<int> jobs_used_ = 0;                   // jobs_[0 .. jobs_used_) have been used
  alignas(64) std::atomic<uint32_t> published_ = 0;  // counts jobs; idle workers poll it
  alignas(64) std::atomic<int> asleep_ = 0;          // number of workers that sleep until wake_workers()
  std::atomic<int> spinning_ = 0;                    // number of workers that poll published_
  std::atomic<int> ready_ = 0;                       // workers [0 .. ready_) have threads
  std::atomic<int64_t> refused_until_ = 0;  // no thread is started before this time, since the system refused one
  std::atomic<Worker*> first_ = nullptr;    // linked list in order of index; only grows
  std::mutex starting_;
  ThreadPool* parent_pool_ = nullptr;  // the parent's pool, kept reachable in the child: no leak
};

}  // namespace tern::kernels
