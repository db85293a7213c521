// Threads and products in special processes: after fork(), at exit, together with OpenMP, and with system limits.

#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>

#include "tern/kernels/base/cores.h"
#include "tern/kernels/fixed_threads.h"
#include "tern/tests/errors.h"
#include "tern/tests/kernels/contracts/gemm.h"
#include "tern/tests/kernels/parallel_blocks.h"
#include "tern/tests/support/temporary_folder.h"

// In these tests a child of fork() creates threads; by default ThreadSanitizer ends such a process.
extern "C" const char* __tsan_default_options();
const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace tern::kernels {
namespace {

/// A product of ones, packed where packed products exist; every element of the result is k.
void check_product(int64_t m, int64_t n, int64_t k) {
  std::vector<float> a(static_cast<size_t>(m * k), 1.0f), b(static_cast<size_t>(k * n), 1.0f),
      c(static_cast<size_t>(m * n), -1.0f);
  const View left = make_view(a.data(), m, k), right = make_view(b.data(), k, n), result = make_view(c.data(), m, n);
  const FixedThreads fixed;
  std::vector<char> workspace(static_cast<size_t>(gemm_workspace(Stream{}, false, false, left, right, result)));
  gemm(Stream{}, false, false, 1, left, right, 0, result, workspace.data());
  for (const float value : c) ASSERT_EQ(value, static_cast<float>(k)) << m << " " << n << " " << k;
}

/// Products of many shapes, most of which are new.
void check_products(std::mt19937_64& random, int count) {
  for (int i = 0; i < count; ++i)
    check_product(1 + static_cast<int64_t>(random() % 300), 1 + static_cast<int64_t>(random() % 80),
                  1 + static_cast<int64_t>(random() % 80));
}

/// A child created while another thread starts or allocates may inherit locks that are never released.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kForkIsSafe = false;
#else
constexpr bool kForkIsSafe = true;
#endif
constexpr const char* kWhyNoFork = "sanitizer: AddressSanitizer's allocator does not hold its locks at a fork()";

TEST_F(Parallel, AChildOfForkHasThreadsToo) {
  if (!kForkIsSafe) GTEST_SKIP() << kWhyNoFork;
  std::mt19937_64 random = fresh_random();
  check_blocks(100);
  for (int i = 0; i < 5; ++i) {
    expect_in_child([&] {
      for (int64_t blocks = 0; blocks < 50; ++blocks) check_blocks(blocks);
      check_products(random, 5);
      EXPECT_TRUE(wait_for_threads("tern worker 0", 1));
      expect_in_child([] { check_blocks(50); });
    });
    check_blocks(100);
    if (HasFailure()) return;
  }
}

/// Other threads may be anywhere at the fork: in a block, creating a thread, creating a oneDNN product.
TEST_F(Parallel, AChildOfForkWhileOthersCall) {
  if (!kForkIsSafe) GTEST_SKIP() << kWhyNoFork;
  check_product(200, 64, 64);
  check_product(20, 64, 64);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> callers;
  for (uint64_t t = 0; t < 3; ++t)
    callers.emplace_back([&stop, t] {
      std::mt19937_64 random = fresh_random(t);
      while (!stop) {
        check_blocks(16);
        check_products(random, 1);
      }
    });
  std::mt19937_64 random = fresh_random(9);
  for (int i = 0; i < 20; ++i) {
    expect_in_child([&] {
      check_blocks(100);
      check_products(random, 10);
    });
    random.discard(100);
    if (HasFailure()) break;
  }
  stop = true;
}

TEST(ParallelExit, WhileTheProcessEnds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a new process in which nothing has been used yet
  EXPECT_EXIT(
      {
        set_num_threads(3);
        std::atexit([] {  // runs after the destructors of all objects created later, including oneDNN's
          check_blocks(200);
          check_product(8, 8, 8);
          for (const int64_t m : {20, 150, 3000})
            test::expect_error([&] { check_product(m, 40, 40); }, {"the process ends"});
          if (testing::Test::HasFailure()) _exit(1);
        });
        std::mt19937_64 random = fresh_random(1);
        check_blocks(200);
        check_products(random, 5);
        check_product(150, 40, 40);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

/// num_threads() in a new process that first runs prepare().
template <class Prepare>
void expect_threads_at_start(int wanted, const Prepare& prepare) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        unsetenv("OMP_NUM_THREADS");
        prepare();
        const int threads = num_threads();
        check_blocks(100);
        std::exit(threads == wanted ? 0 : 1 + threads % 100);
      },
      testing::ExitedWithCode(0), "");
}

/// Restricts the calling thread to one core from now on.
void run_on_one_core() {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  for (size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

TEST(ParallelStart, OneCoreByAffinityIsOneThread) { expect_threads_at_start(1, run_on_one_core); }

TEST(ParallelStart, TheVariableOfOpenMP) {
  const auto set = [](const char* text) { return [text] { setenv("OMP_NUM_THREADS", text, 1); }; };
  expect_threads_at_start(3, set("3"));
  expect_threads_at_start(5, set("5,2"));
  expect_threads_at_start(1024, set("99999999999999999999"));
  for (const char* none : {"0", "-3", "many", ""}) expect_threads_at_start(available_cores(), set(none));
}

TEST_F(Parallel, ThreadsOfTheLowestPriority) {
  std::vector<std::jthread> callers;
  for (uint64_t t = 0; t < 3; ++t)
    callers.emplace_back([t] {
      const sched_param none{};
      EXPECT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
      std::mt19937_64 random = fresh_random(t);
      for (int i = 0; i < 50; ++i) {
        check_blocks(static_cast<int64_t>(random() % 30));
        check_products(random, 1);
      }
    });
  std::mt19937_64 random = fresh_random(9);
  for (int i = 0; i < 200; ++i) check_blocks(static_cast<int64_t>(random() % 30));
  check_products(random, 20);
}

TEST_F(Parallel, ManyThreadsOnOneCore) {
  expect_in_child([] {
    run_on_one_core();
    set_num_threads(40);
    for (int64_t blocks = 0; blocks < 300; ++blocks) check_blocks(blocks);
    std::mt19937_64 random = fresh_random();
    check_products(random, 10);
  });
}

TEST_F(Parallel, WithoutThreadsTheCallerWorksAlone) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it needs address space without limit";
  expect_in_child([] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (100 << 20);
    const rlimit limit{bytes, bytes};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    set_num_threads(64);  // 63 stacks of 8 MiB do not fit
    for (int64_t blocks = 0; blocks < 200; ++blocks) check_blocks(blocks);
    EXPECT_EQ(threads_named("tern worker 60").size(), 0u);
  });
}

/// oneDNN writes the code of its products where they are used first, and does not look whether it got memory for it.
/// Each limit is set in a new process, which has no code of earlier tests.
TEST(ParallelStart, WithoutRoomForCodeProductsThrow) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizer: it needs address space without limit";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto throws_with = [](uint64_t mebibytes) {
    set_num_threads(1);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (mebibytes << 20);
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    try {
      check_product(200, 64, 64);
      check_product(20, 64, 64);
    } catch (const OutOfMemoryError& error) {
      return std::string(error.what()).find("ulimit -v") != std::string::npos;
    } catch (const std::bad_alloc&) {
      return true;
    }
    return false;
  };
  for (uint64_t mebibytes = 0; mebibytes <= 40; mebibytes += 2) {
    SCOPED_TRACE(std::to_string(mebibytes) + " MiB are left");
    EXPECT_EXIT(
        {
          const bool threw = throws_with(mebibytes);
          const bool expected = (threw || mebibytes > 20) && !(threw && mebibytes == 40);
          _exit(expected && !testing::Test::HasFailure() ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
  }
}

/// A limit on a user's processes and threads (ulimit -u), which does not apply to root.
TEST_F(Parallel, WhereNoThreadCanBeMade) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(setresuid(kNobody, kNobody, kNobody) == 0 ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) GTEST_SKIP() << "user: root may not become another user here";
  }
  expect_in_child([] {
    if (geteuid() == 0) {
      ASSERT_EQ(setresuid(kNobody, kNobody, kNobody), 0);
    }
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NPROC, &limit), 0);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NPROC, &none), 0);
    set_num_threads(5);
    std::mt19937_64 random = fresh_random();
    for (int64_t blocks = 0; blocks < 200; ++blocks) check_blocks(blocks);
    check_products(random, 10);
    EXPECT_EQ(threads_named("tern worker 0").size(), 0u);
    ASSERT_EQ(setrlimit(RLIMIT_NPROC, &limit), 0);
    EXPECT_TRUE(wait_for_threads("tern worker 3", 1)) << "threads are made when the limit is gone";
  });
}

TEST_F(Parallel, TogetherWithOpenMP) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "sanitizer: libgomp's threads wait by means that ThreadSanitizer does not know";
#endif
  using Region = void (*)(void*);
  using Run = void (*)(Region, void*, unsigned threads, unsigned flags);
  const auto run = reinterpret_cast<Run>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  ASSERT_NE(run, nullptr) << "libgomp, which oneDNN is linked with, has no GOMP_parallel";
  std::atomic<uint64_t> threads = 0;
  const Region region = [](void* raw) {
    std::mt19937_64 random = fresh_random(static_cast<std::atomic<uint64_t>*>(raw)->fetch_add(1));
    for (int i = 0; i < 20; ++i) check_blocks(static_cast<int64_t>(random() % 30));
    check_products(random, 5);
  };
  for (int i = 0; i < 5; ++i) {
    run(region, &threads, 4, 0);
    std::mt19937_64 random = fresh_random(100 + static_cast<uint64_t>(i));
    check_blocks(100);
    check_products(random, 5);
  }
  EXPECT_GE(threads, 5u);
  // OpenMP's threads do not exist in a child; products do not need them.
  expect_in_child([&] {
    std::mt19937_64 random = fresh_random(200);
    check_blocks(100);
    check_products(random, 10);
  });
}

// ---- control groups ------------------------------------------------------------------------------------------------

/// Files below a folder of this test.
class Groups : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  int cores(const std::string& membership) const {
    write("membership", membership);
    return quota_cores(folder_ / "membership", folder_ / "root");
  }

  const test::TemporaryFolder folder_;
};

TEST_F(Groups, TheLeastQuotaOfAGroupAndThoseAboveIt) {
  EXPECT_EQ(cores("0::/a/b\n"), 0);  // no such folders
  write("root/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 0);
  write("root/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 4);
  write("root/a/b/cpu.max", "50000 25000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 2);
  EXPECT_EQ(cores("0::/a/c/d\n"), 4);
  EXPECT_EQ(cores("0::/ab\n"), 0);
  EXPECT_EQ(cores("0::/\n"), 0);
  write("root/cpu.max", "1000 100000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 1);
  EXPECT_EQ(cores("0::/\n"), 1);
}

TEST_F(Groups, InsideAContainerThePathIsTheHosts) {
  write("root/cpu.max", "250000 100000\n");
  EXPECT_EQ(cores("0::/docker/0123\n"), 3);
  EXPECT_EQ(cores("0::/../../other\n"), 3);
}

TEST_F(Groups, VersionOne) {
  write("root/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("root/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  const std::string membership = "12:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n";
  EXPECT_EQ(cores(membership), 0);
  write("root/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(cores(membership), 2);
  EXPECT_EQ(cores("3:cpuset:/job\n"), 0);
}

TEST_F(Groups, WhatIsNoQuotaIsNoLimit) {
  for (const char* text : {"", "max", "abc 100000", "-5 100000", "100000 0", "100000"}) {
    write("root/cpu.max", text);
    EXPECT_EQ(cores("0::/\n"), 0) << text;
  }
  write("root/cpu.max", "100000 100000\n");
  for (const char* text : {"", "0", "0:", "::", "no colon\n\n"}) EXPECT_GE(cores(text), 0) << text;
  EXPECT_EQ(quota_cores(folder_ / "none", folder_ / "root"), 0);
}

}  // namespace
}  // namespace tern::kernels
