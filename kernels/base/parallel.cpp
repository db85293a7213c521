#include "tern/kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tern/kernels/base/check.h"
#include "tern/kernels/base/cores.h"
#include "tern/kernels/base/thread_pool.h"
#include "tern/kernels/fixed_threads.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {
namespace {

int initial_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const long count = std::strtol(text, nullptr, 10);
    if (count > 0) return static_cast<int>(std::min<long>(count, ThreadPool::kMaxThreads));
  }
  return std::min(available_cores(), ThreadPool::kMaxThreads);
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count = initial_threads();
  return count;
}

thread_local int fixed = 0;  // 0: no FixedThreads object exists on this thread

}  // namespace

int num_threads() { return fixed != 0 ? fixed : current_threads(); }

int current_threads() { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int count) {
  TERN_CHECK(count >= 1 && count <= ThreadPool::kMaxThreads, "threads: expected 1 to ", ThreadPool::kMaxThreads,
             ", got ", count);
  const int before = thread_count().exchange(count);
  if (before != count) ThreadPool::end_surplus_workers();
}

FixedThreads::FixedThreads() : outermost_(fixed == 0) {
  if (outermost_) fixed = current_threads();
}

FixedThreads::~FixedThreads() {
  if (outermost_) fixed = 0;
}

void run_blocks(void (*body)(void*, int64_t), void* context, int64_t blocks) {
  const int threads = current_threads();
  if (threads > 1 && blocks > 1 && !ThreadPool::is_inside())
    return ThreadPool::instance().run(body, context, blocks, threads);
  for (int64_t b = 0; b < blocks; ++b) body(context, b);
}

}  // namespace tern::kernels
