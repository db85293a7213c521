// Exceptions from blocks, and changes of the number of threads while blocks run.

#include <functional>
#include <memory>
#include <stdexcept>

#include "tern/tests/errors.h"
#include "tern/tests/kernels/parallel_blocks.h"

namespace tern::kernels {
namespace {

struct Thrown : std::runtime_error {
  explicit Thrown(int64_t block) : std::runtime_error("block " + std::to_string(block)), block_(block) {}
  int64_t block_;
};

/// Counts running blocks, however they end.
class Running {
 public:
  explicit Running(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Running() { --count_; }
  Running(const Running&) = delete;

 private:
  std::atomic<int>& count_;
};

/// Runs blocks whose body(block) may throw until one throws, for at most a minute. Expects that the call throws once,
/// when no block is running and none begins afterwards, and that the threads still work.
template <class Body>
void expect_thrown(int64_t blocks, const Body& body) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  bool throws = false;
  while (!throws && std::chrono::steady_clock::now() < end) {
    // On the heap: a block that runs too late would access freed memory.
    const auto running = std::make_unique<std::atomic<int>>(0), begun = std::make_unique<std::atomic<int>>(0),
               thrown = std::make_unique<std::atomic<int>>(0);
    int caught = 0;
    try {
      parallel_for(blocks, 1, [&](int64_t block, int64_t) {
        const Running counted(*running);
        ++*begun;
        try {
          body(block);
        } catch (const Thrown&) {
          ++*thrown;
          throw;
        }
      });
    } catch (const Thrown& error) {
      ++caught;
      EXPECT_EQ(error.what(), "block " + std::to_string(error.block_));
    }
    throws = *thrown > 0;
    ASSERT_EQ(caught, throws ? 1 : 0);
    ASSERT_EQ(*running, 0);
    const int before = *begun;
    check_blocks(50);
    ASSERT_EQ(*begun, before) << "a block began when the call was over";
  }
  ASSERT_TRUE(throws) << "no block threw in a minute";
}

/// The block that a call's error names, which must throw one.
int64_t thrown_by(int64_t blocks, const std::function<void(int64_t)>& body) {
  try {
    parallel_for(blocks, 1, [&](int64_t block, int64_t) { body(block); });
  } catch (const Thrown& error) {
    return error.block_;
  }
  ADD_FAILURE() << "nothing came out";
  return -1;
}

TEST_F(Parallel, AnExceptionOfTheCallersOrAWorkersBlockIsThrown) {
  const std::thread::id caller = std::this_thread::get_id();
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i % 2 == 0 ? "the caller throws" : "a worker throws");
    expect_thrown(40, [&](int64_t block) {
      if ((std::this_thread::get_id() == caller) == (i % 2 == 0)) throw Thrown(block);
      work_for(std::chrono::microseconds(100));
    });
  }
}

TEST_F(Parallel, ACallThrowsOnceWhenAllBlocksThrow) {
  for (int i = 0; i < 200; ++i) expect_thrown(20, [](int64_t block) { throw Thrown(block); });
}

TEST_F(Parallel, OnOneThreadBlocksThrowToo) {
  set_num_threads(1);
  expect_thrown(20, [](int64_t block) {
    if (block == 3) throw Thrown(block);
    EXPECT_LT(block, 3);
  });
}

TEST_F(Parallel, BlocksAfterOneThatThrewAreLeftOut) {
  for (int i = 0; i < 10; ++i) {  // the thread that throws may be interrupted before it throws
    std::atomic<bool> throws = false;
    std::atomic<int64_t> begun = 0;
    thrown_by(5000, [&](int64_t block) {
      ++begun;
      if (block == 0) {
        throws = true;
        throw Thrown(block);
      }
      while (!throws) std::this_thread::yield();
      work_for(std::chrono::microseconds(20));
    });
    if (begun < 5000) return;
  }
  ADD_FAILURE() << "all blocks ran, 10 times";
}

TEST_F(Parallel, AnExceptionOfANestedBlockIsThrown) {
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> caught = 0;
    const int64_t thrown = thrown_by(16, [&](int64_t outer) {
      try {
        parallel_for(8, 1, [&](int64_t inner, int64_t) {
          if (inner == 5) throw Thrown(outer);
        });
      } catch (const Thrown& error) {
        EXPECT_EQ(error.block_, outer);
        ++caught;
        if (outer % 4 == 3) throw;
      }
    });
    EXPECT_EQ(thrown % 4, 3);
    EXPECT_GE(caught, 1);
    check_blocks(20);
  }
}

TEST_F(Parallel, EachCallerGetsItsError) {
  std::vector<std::jthread> callers;
  for (int64_t t = 0; t < 24; ++t)  // more than the pool serves at a time
    callers.emplace_back([t] {
      for (int i = 0; i < 100; ++i) {
        const int64_t thrown = thrown_by(10, [&](int64_t block) {
          if (block % 3 == t % 3) throw Thrown(100 * t + i);
        });
        EXPECT_EQ(thrown, 100 * t + i);
        check_blocks(5);
      }
    });
}

TEST_F(Parallel, NumbersOfThreadsThatAreNoneAreErrors) {
  for (const int count : {0, -1, INT32_MIN, 1025, 100'000, INT32_MAX}) {
    test::expect_error([&] { set_num_threads(count); }, {"expected 1 to 1024, got " + std::to_string(count)});
    EXPECT_EQ(num_threads(), 4);
  }
  check_blocks(100);
}

TEST_F(Parallel, FewerThreadsWhileBlocksRun) {
  const std::thread::id caller = std::this_thread::get_id();
  for (int i = 0; i < 5; ++i) {
    set_num_threads(4);
    std::atomic<bool> changed = false;
    std::atomic<int64_t> helped = 0, after = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!changed && std::chrono::steady_clock::now() < end) {
      parallel_for(2000, 1, [&](int64_t, int64_t) {
        if (std::this_thread::get_id() != caller) {
          ++helped;
          if (changed) ++after;
        } else if (helped > 3 && !changed) {
          set_num_threads(1);
          changed = true;
        }
        work_for(std::chrono::microseconds(20));
      });
    }
    ASSERT_TRUE(changed) << "no worker took part in a minute";
    EXPECT_LE(after, 3) << "a worker takes no block but the one that it was about to begin";
    const int64_t before = helped;
    parallel_for(50, 1, [&](int64_t, int64_t) { helped += std::this_thread::get_id() != caller; });
    EXPECT_EQ(helped, before);
  }
}

TEST_F(Parallel, MoreThreadsWhileBlocksRun) {
  set_num_threads(2);
  parallel_for(50, 1, [&](int64_t block, int64_t) {
    if (block == 10) set_num_threads(5);
  });
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(wait_for_threads("tern worker " + std::to_string(i), 1)) << i;
}

}  // namespace
}  // namespace tern::kernels
