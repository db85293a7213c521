#pragma once
// Helpers of the tests of threads.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tern/kernels/kernel.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels {

class Parallel : public testing::Test {
 protected:
  void SetUp() override { set_num_threads(4); }
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

/// Runs `blocks` blocks; expects that each ran once and that its writes are visible on return.
inline void check_blocks(int64_t blocks) {
  std::vector<int> runs(static_cast<size_t>(blocks));  // not atomic: a missing synchronisation is a data race
  struct Context {
    std::vector<int>& runs;
    std::atomic<int64_t> calls;
  } context{runs, 0};
  run_blocks(
      [](void* raw, int64_t block) {
        Context& c = *static_cast<Context*>(raw);
        ++c.runs.at(static_cast<size_t>(block));
        c.calls.fetch_add(1, std::memory_order_relaxed);
      },
      &context, blocks);
  ASSERT_EQ(context.calls.load(), blocks);
  for (const int r : runs) ASSERT_EQ(r, 1);
}

inline void work_for(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// The threads of this process that have this name.
inline std::vector<pid_t> threads_named(const std::string& wanted) {
  std::vector<pid_t> found;
  std::error_code gone;  // a thread may end while its folder is read
  for (std::filesystem::directory_iterator task("/proc/self/task", gone), end; task != end; task.increment(gone)) {
    std::string name;
    std::getline(std::ifstream(task->path() / "comm"), name);
    if (name == wanted) found.push_back(static_cast<pid_t>(std::stol(task->path().filename())));
  }
  return found;
}

/// Runs blocks until `count` threads have this name, for at most a minute: threads start and end some time after the
/// call that causes it. Returns whether that happened.
inline bool wait_for_threads(const std::string& thread, size_t count) {
  for (int i = 0; i < 60'000; ++i) {
    if (threads_named(thread).size() == count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    check_blocks(100);
  }
  return false;
}

/// Runs `body` in a child process and expects that it exits with 0.
template <class Body>
void expect_in_child(const Body& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(200);  // ends a child that waits for a thread that does not exist
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace tern::kernels
