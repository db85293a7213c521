// A program whose cases end in all possible ways; test_counts.sh selects some of them. Not a test itself.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tern/tests/support/results.h"
#include "tern/tests/support/seed.h"

namespace tern {
namespace {

TEST(Good, One) {}
TEST(Good, Two) { left_out("cpu: this processor has no CPU level v9"); }
TEST(Bad, Fails) { FAIL() << "wrong\nin two lines"; }
TEST(Missing, Data) { GTEST_SKIP() << "data: there is none"; }
TEST(Missing, Mpi) { GTEST_SKIP() << "mpi: there is none"; }
TEST(Missing, Unnamed) { GTEST_SKIP() << "no name before a colon"; }
TEST(Missing, Gpu) { GTEST_SKIP() << "gpu: there is none"; }
TEST(End, Crashes) { std::abort(); }
TEST(End, Exits) { std::_Exit(0); }
TEST(End, Hangs) { std::this_thread::sleep_for(std::chrono::hours(1)); }
TEST(Last, One) {}
TEST(Last, Two) {}
TEST(Seed, Print) {
  std::mt19937_64 random = fresh_random(), salted = fresh_random(1);
  const uint64_t first = random();
  EXPECT_NE(first, salted());
  std::printf("drawn %llu\n", static_cast<unsigned long long>(first));
}

class Teardown : public testing::Test {
 protected:
  static void TearDownTestSuite() { FAIL() << "after the last case"; }
};
TEST_F(Teardown, Passes) {}

}  // namespace
}  // namespace tern
