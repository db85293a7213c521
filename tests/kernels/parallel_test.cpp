// The threads behind run_blocks(): every block runs once, with many concurrent callers and whatever the threads do.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <csignal>
#include <mutex>

#include "tern/tests/kernels/parallel_blocks.h"
#include "tern/tests/support/seed.h"

// In these tests a child of fork() creates threads; by default ThreadSanitizer ends such a process.
extern "C" const char* __tsan_default_options();
const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace tern::kernels {
namespace {

TEST_F(Parallel, EveryBlockRunsOnce) {
  std::mt19937_64 random = fresh_random();
  for (const int64_t blocks : {0, 1, 2, 3, 4, 5, 1000}) check_blocks(blocks);
  for (int i = 0; i < 2000; ++i) check_blocks(static_cast<int64_t>(random() % 40));
}

TEST_F(Parallel, ManyBlocks) {  // distributed in groups
  std::mt19937_64 random = fresh_random();
  check_blocks((1 << 16) + 1);
  check_blocks((3 << 16) + static_cast<int64_t>(random() % 1000));
}

TEST_F(Parallel, ManyCallersAtOnce) {
  std::vector<std::jthread> callers;
  for (uint64_t t = 0; t < 24; ++t)  // more than the pool serves at a time
    callers.emplace_back([t] {
      std::mt19937_64 random = fresh_random(t);
      for (int i = 0; i < 300; ++i) check_blocks(static_cast<int64_t>(random() % 20));
    });
}

TEST_F(Parallel, NestedCallsRunOnTheirThread) {
  std::atomic<int> strangers = 0, runs = 0;
  parallel_for(50, 1, [&](int64_t, int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    parallel_for(20, 1, [&](int64_t, int64_t) {
      work_for(std::chrono::microseconds(100));  // long enough for other threads to take part
      if (std::this_thread::get_id() != self) ++strangers;
      ++runs;
    });
  });
  EXPECT_EQ(strangers, 0);
  EXPECT_EQ(runs, 1000);
}

TEST_F(Parallel, ACallCompletesOnTheCallersThreadAlone) {
  set_num_threads(2);
  std::atomic<bool> held = false, release = false;
  std::thread other([&] {
    while (!held) {  // until a job occupies the only worker and this thread
      std::atomic<int> begun = 0;
      parallel_for(2, 1, [&](int64_t, int64_t) {
        ++begun;
        for (int i = 0; i < 20 && begun < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (begun < 2) return;
        held = true;
        while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    }
  });
  while (!held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int64_t blocks = 0; blocks < 50; ++blocks) check_blocks(blocks);
  release = true;
  other.join();
}

/// Runs `blocks` blocks of a millisecond each; returns how many other threads than the caller ran.
int64_t blocks_of_workers(int64_t blocks) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> count = 0;
  parallel_for(blocks, 1, [&](int64_t, int64_t) {
    work_for(std::chrono::milliseconds(1));
    if (std::this_thread::get_id() != caller) ++count;
  });
  return count;
}

TEST_F(Parallel, AWorkerThatMakesItsCallerWaitPauses) {
  using Clock = std::chrono::steady_clock;
  set_num_threads(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> slow = false;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
    while (!slow && Clock::now() < end) {
      parallel_for(2, 1, [&](int64_t, int64_t) {
        if (std::this_thread::get_id() == caller) return work_for(std::chrono::microseconds(200));
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // as if another program used its core
        slow = true;
      });
    }
    ASSERT_TRUE(slow) << "no worker took part in a minute";
    const Clock::time_point begin = Clock::now();
    const int64_t helped = blocks_of_workers(20);
    if (Clock::now() - begin > std::chrono::milliseconds(500)) continue;  // the pause may have ended: retry
    EXPECT_EQ(helped, 0);
    while (blocks_of_workers(20) == 0) {  // the worker resumes
    }
    return;
  }
}

TEST_F(Parallel, BlocksOfAllThreadsAreWaitedFor) {
  std::set<std::thread::id> ids;
  std::mutex mutex;
  for (int i = 0; i < 200 && ids.size() < 2; ++i) {
    std::atomic<int> begun = 0, ended = 0;
    parallel_for(8, 1, [&](int64_t, int64_t) {
      ++begun;
      work_for(std::chrono::milliseconds(2));  // longer than a caller spins, so that it sleeps
      std::lock_guard<std::mutex> lock(mutex);
      ids.insert(std::this_thread::get_id());
      ++ended;
    });
    ASSERT_EQ(begun, 8);
    ASSERT_EQ(ended, 8);
  }
  EXPECT_GE(ids.size(), 2u) << "no worker took part in 200 calls";
}

TEST_F(Parallel, NoMoreThreadsThanWanted) {
  for (const int threads : {3, 1, 2}) {
    set_num_threads(threads);
    std::set<std::thread::id> ids;
    std::mutex mutex;
    for (int i = 0; i < 20; ++i) {
      parallel_for(32, 1, [&](int64_t, int64_t) {
        work_for(std::chrono::microseconds(50));
        std::lock_guard<std::mutex> lock(mutex);
        ids.insert(std::this_thread::get_id());
      });
    }
    // A thread that ended in between may have been replaced, but surplus threads may not exist for long.
    EXPECT_LE(ids.size(), static_cast<size_t>(threads)) << threads;
  }
}

TEST_F(Parallel, WorkersHaveNamesAndEndWhenTheyAreTooMany) {
  set_num_threads(6);
  check_blocks(1000);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(wait_for_threads("tern worker " + std::to_string(i), 1)) << i;
  set_num_threads(2);
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(wait_for_threads("tern worker " + std::to_string(i), 0)) << i;
  check_blocks(1000);
  EXPECT_EQ(threads_named("tern worker 0").size(), 1u);
  set_num_threads(4);
  check_blocks(1000);
  EXPECT_TRUE(wait_for_threads("tern worker 2", 1));
}

TEST_F(Parallel, TheNumberOfThreadsChangesWhileCallersRun) {
  const std::jthread changer([](const std::stop_token& stop) {
    std::mt19937_64 random = fresh_random();
    while (!stop.stop_requested()) set_num_threads(1 + static_cast<int>(random() % 6));
  });
  std::vector<std::jthread> callers;  // joined first; then the changer is stopped
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([] {
      for (int i = 0; i < 500; ++i) check_blocks(i % 23);
    });
}

TEST_F(Parallel, ABlockMayChangeTheNumberOfThreads) {
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> runs = 0;
    parallel_for(20, 1, [&](int64_t block, int64_t) {
      set_num_threads(1 + static_cast<int>(block) % 5);
      ++runs;
    });
    ASSERT_EQ(runs, 20);
  }
}

TEST_F(Parallel, WorkersTakeNoSignals) {
  check_blocks(100);
  set_num_threads(3);
  for (int i = 0; i < 20; ++i) {
    parallel_for(30, 1, [&](int64_t, int64_t) {
      work_for(std::chrono::microseconds(50));
      if (getpid() == gettid()) return;
      sigset_t blocked;
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      EXPECT_TRUE(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1));
      EXPECT_FALSE(sigismember(&blocked, SIGSEGV) || sigismember(&blocked, SIGBUS));
    });
  }
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&blocked, SIGINT));  // the caller's mask is unchanged
}

__attribute__((noinline)) int touch_stack(int kibibytes) {
  volatile char memory[1024];
  memory[0] = static_cast<char>(kibibytes);
  return kibibytes == 0 ? memory[0] : touch_stack(kibibytes - 1) + memory[0] * 0;
}

TEST_F(Parallel, StacksAreLargeWhateverTheDefault) {
  expect_in_child([] {  // the shell's limit is the default stack size of threads
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    ASSERT_EQ(pthread_setattr_default_np(&small), 0);
    std::atomic<bool> other = false;
    while (!other) {
      parallel_for(30, 1, [&](int64_t, int64_t) {
        work_for(std::chrono::microseconds(50));
        if (getpid() == gettid()) return;
        touch_stack(2048);
        other = true;
      });
    }
  });
}

TEST(ParallelLibrary, IsNeverUnloaded) {  // its threads would run unloaded code
  void* const library = dlopen("libtern_base.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  link_map* map = nullptr;
  ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
  bool stays = false;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_FLAGS_1) stays = (entry->d_un.d_val & DF_1_NODELETE) != 0;
  EXPECT_TRUE(stays);
  dlclose(library);
}

}  // namespace
}  // namespace tern::kernels
