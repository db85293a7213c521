#pragma once
// The threads that run_blocks() shares work with.

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tern::kernels {

/// The number of threads that was set last, whatever FixedThreads there are.
int current_threads();

using BlockFunction = void (*)(void* context, int64_t block);

/// Worker threads, and the jobs that callers offer them. A job is a number of blocks. Its caller takes blocks as every
/// worker does; when none is left it waits only for blocks that workers have begun. So a worker that does not run,
/// because another program uses its core, delays nobody, unless it stopped in the middle of a block: a worker whose
/// blocks cost callers more time than they save pauses (Worker::settle). Whoever waits spins for some microseconds and
/// then sleeps. Several callers may run jobs at once; each completes its job whether workers come or not. Workers
/// inherit the priority and the affinity of the thread whose call made them.
class ThreadPool {
 public:
  /// The process's pool, and another one in the child of a fork(), where the threads of the first do not exist. Never
  /// destroyed: workers sleep until the process ends.
  static ThreadPool& instance();

  static constexpr int kMostThreads = 1024;

  /// body(context, b) for every b in [0, blocks) on this thread and on at most `threads` - 1 workers. What body throws
  /// first, on whichever thread, comes out here when all blocks that had begun are done; the others do not begin. Where
  /// a thread cannot be made (limits of the system), those that exist do the work.
  void run(BlockFunction body, void* context, int64_t blocks, int threads);

  /// After a change of current_threads(): workers beyond it end.
  static void end_surplus_workers();

  /// Whether the calling thread is running blocks.
  static bool is_inside() noexcept;

 private:
  struct Job;
  class Worker;

  static constexpr int kJobs = 16;  // of callers at a time; the jobs of further callers are run by them alone

  ThreadPool();
  static void forget_in_child() noexcept;

  Job* claim_job() noexcept;
  void publish(uint32_t shares, int threads) noexcept;
  void start_workers(int count) noexcept;
  void wake_workers(int begin, int end, int most) noexcept;
  void wake_more() noexcept;

  Job* const jobs_;
  std::atomic<int> jobs_used_ = 0;                   // jobs_[0 .. jobs_used_) have had a caller
  alignas(64) std::atomic<uint32_t> published_ = 0;  // counts jobs; idle workers watch it
  alignas(64) std::atomic<int> asleep_ = 0;          // workers that sleep until wake_workers()
  std::atomic<int> spinning_ = 0;                    // workers that watch published_
  std::atomic<int> ready_ = 0;                       // workers [0 .. ready_) have threads
  std::atomic<int64_t> refused_until_ = 0;           // the system refused a thread: none is asked for until then
  std::atomic<Worker*> first_ = nullptr;             // a list in the order of their indices; only grows
  std::mutex starting_;
  ThreadPool* forgotten_ = nullptr;  // the parent's, which the child keeps so that it is no leak
};

}  // namespace tern::kernels
