#include "tern/kernels/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tern/core/check.h"
#include "tern/kernels/kernel.h"

#ifdef TERN_THREAD_POOL
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace tern::kernels {
namespace {

/// Cores this process may use: its affinity mask, cut down to the cgroup's CPU quota (containers).
int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(std::strtod(quota.c_str(), nullptr) / period)));
  }
  return std::max(cores, 1);
}

int initial_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int count = std::atoi(text);
    if (count > 0) return count;
  }
  return available_cores();
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count = [] {
    const int n = initial_threads();
#ifndef TERN_THREAD_POOL
    omp_set_num_threads(n);
#endif
    return n;
  }();
  return count;
}

thread_local bool inside_region = false;

void run_serially(void (*body)(void*, int64_t), void* context, int64_t blocks) {
  for (int64_t b = 0; b < blocks; ++b) body(context, b);
}

#ifdef TERN_THREAD_POOL

/// The thread sanitizer does not see libgomp's synchronisation; this pool is what its build uses instead.
class ThreadPool {
 public:
  ~ThreadPool() { stop(); }

  void run(void (*body)(void*, int64_t), void* context, int64_t blocks, int threads) {
    std::lock_guard<std::mutex> one_at_a_time(run_mutex_);
    resize(threads - 1);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      body_ = body;
      context_ = context;
      blocks_ = blocks;
      next_ = 0;
      working_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return working_ == 0; });
  }

 private:
  void work() {
    inside_region = true;
    for (int64_t b = next_++; b < blocks_; b = next_++) body_(context_, b);
    inside_region = false;
  }
  void resize(int count) {
    if (static_cast<int>(workers_.size()) == count) return;
    stop();
    stopping_ = false;
    for (int i = 0; i < count; ++i) workers_.emplace_back([this, seen = generation_] { loop(seen); });
  }
  void loop(int64_t seen) {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
      }
      work();
      std::lock_guard<std::mutex> lock(mutex_);
      if (--working_ == 0) done_.notify_all();
    }
  }
  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::mutex run_mutex_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  void (*body_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  int64_t blocks_ = 0, generation_ = 0;
  std::atomic<int64_t> next_ = 0;
  int working_ = 0;
  bool stopping_ = false;
};

ThreadPool& pool() {
  static ThreadPool instance;
  return instance;
}
#endif

}  // namespace

int num_threads() { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int count) {
  TERN_CHECK(count >= 1, "threads: expected at least 1, got ", count);
  thread_count() = count;
#ifndef TERN_THREAD_POOL
  omp_set_num_threads(count);
#endif
}

void run_blocks(void (*body)(void*, int64_t), void* context, int64_t blocks) {
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), blocks));
  if (threads <= 1 || inside_region) return run_serially(body, context, blocks);
#ifdef TERN_THREAD_POOL
  pool().run(body, context, blocks, threads);
#else
  if (omp_in_parallel()) return run_serially(body, context, blocks);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t b = 0; b < blocks; ++b) body(context, b);
#endif
}

}  // namespace tern::kernels
