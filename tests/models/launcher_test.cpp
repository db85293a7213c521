// Output and exit status of the launcher.

#include "tern/tests/models/launcher_test.h"

namespace tern::cli {
namespace {

TEST_F(LauncherTest, Rank0AloneIsShown) {
  const Outcome outcome = run(3, R"(
    echo "result of $rank"; echo "log of $rank" >&2; echo "threads $OMP_NUM_THREADS" >&2; printf 'no end' >&2
    end 0 0 '')");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "result of 0\n");
  EXPECT_EQ(outcome.err, "log of 0\nthreads 1\nno end");
  EXPECT_EQ(read("logs/rank-2.log"), "result of 2\nlog of 2\nthreads 1\nno end");
}

TEST_F(LauncherTest, TheFirstErrorIsShownOnce) {
  const Outcome outcome = run(3, R"(
    if [ $rank = 1 ]; then sleep 0.3; echo 'tern: error: the disk is full' >&2; end 1 0 'the disk is full'; fi
    trap '' TERM
    sleep 0.6; echo 'tern: error: rank 1 has ended' >&2; end 1 1 'rank 1 has ended')");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err,
            "tern: error: rank 1: the disk is full (its log is " + folder_.string() + "/logs/rank-1.log)\n");
}

TEST_F(LauncherTest, AnErrorOfAllIsShownOnce) {
  const Outcome outcome = run(2, "echo 'tern: error: no such flag' >&2; end 2 0 'no such flag'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(has(outcome.err, "no such flag"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST_F(LauncherTest, ARankThatHangsIsEnded) {
  const Outcome outcome = run(3, R"(
    if [ $rank = 2 ]; then end 1 0 'out of memory'; fi
    trap '' TERM INT HUP
    while :; do sleep 0.1; done)");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.err, "tern: error: rank 2: out of memory"));
  EXPECT_LT(outcome.seconds, 12 * test::kPatience);
}

TEST_F(LauncherTest, ARankThatIsKilledIsNamed) {
  const Outcome outcome = run(3, "if [ $rank = 1 ]; then sleep 0.4; kill -9 $$; fi; sleep 60; end 0 0 ''");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.err, "tern: error: rank 1 was ended by signal 9 (Killed)"));
  EXPECT_LT(outcome.seconds, 12 * test::kPatience);
}

TEST_F(LauncherTest, AStatusWithoutWords) {
  const Outcome outcome = run(2, "end 75 0 ''");
  EXPECT_EQ(outcome.status, 75);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(LauncherTest, AProgramThatDoesNotStart) {
  const Outcome outcome = run(2, "exit 9");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.err, "tern: error: mpirun ended with status 9"));
}

TEST_F(LauncherTest, WhatIsNoFileIsNoLog) {
  for (const char* name : {"mpirun.log", "rank-0.log", "rank-0.out", "rank-1.end"}) {
    fs::remove_all(folder_ / "logs");
    fs::create_directories(folder_ / "logs");
    ASSERT_EQ(mkfifo((folder_ / "logs" / name).c_str(), 0600), 0);
    const Outcome outcome = run(2, "end 0 0 ''");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err, "error: " + (folder_ / "logs" / name).string() +
                               ": cannot be written: not a regular file but a named pipe\n");
  }
}

TEST_F(LauncherTest, WithoutMpirun) {
  const std::string path = getenv("PATH");
  setenv("PATH", "", 1);
  const Outcome outcome = run(2, "end 0 0 ''");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.err, "apt-get install openmpi-bin"));
}

TEST_F(LauncherTest, LogsOfAnotherJobAreKept) {
  EXPECT_EQ(run(1, "end 0 0 ''").status, 0);
  const Outcome outcome = run(1, "end 0 0 ''");
  EXPECT_TRUE(has(outcome.err, "holds the logs of another job"));
}

}  // namespace
}  // namespace tern::cli
