#include "tern/kernels/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tern/core/check.h"
#include "tern/kernels/base/thread_pool.h"
#include "tern/kernels/kernel.h"

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
  static std::atomic<int> count = initial_threads();
  return count;
}

}  // namespace

int num_threads() { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int count) {
  TERN_CHECK(count >= 1, "threads: expected at least 1, got ", count);
  const int before = thread_count().exchange(count);
  if (before != count) ThreadPool::end_surplus_workers();
}

void run_blocks(void (*body)(void*, int64_t), void* context, int64_t blocks) {
  const int threads = num_threads();
  if (threads > 1 && blocks > 1 && !ThreadPool::is_inside())
    return ThreadPool::instance().run(body, context, blocks, threads);
  for (int64_t b = 0; b < blocks; ++b) body(context, b);
}

}  // namespace tern::kernels
