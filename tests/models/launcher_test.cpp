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

/// One line, of the error that explains the end; ranks that do not end by themselves are ended.
TEST_F(LauncherTest, StatusAndErrorOfTheJob) {
  const struct {
    int processes, status;
    const char *script, *error;
  } cases[] = {{2, 2, "echo 'tern: error: no such flag' >&2; end 2 0 'no such flag'", "no such flag"},
               {3, 1, "[ $rank = 2 ] && end 1 0 'out of memory'; trap '' TERM INT HUP; while :; do sleep 0.1; done",
                "tern: error: rank 2: out of memory"},
               {3, 1, "if [ $rank = 1 ]; then sleep 0.4; kill -9 $$; fi; sleep 60; end 0 0 ''",
                "tern: error: rank 1 was ended by signal 9 (Killed)"},
               {2, 75, "end 75 0 ''", ""},
               {2, 1, "exit 9", "tern: error: mpirun ended with status 9"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.script);
    fs::remove_all(folder_ / "logs");
    const Outcome outcome = run(c.processes, c.script);
    EXPECT_EQ(outcome.status, c.status);
    EXPECT_TRUE(has(outcome.err, c.error));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), *c.error ? 1 : 0) << outcome.err;
    EXPECT_EQ(outcome.err.empty(), *c.error == '\0') << outcome.err;
    EXPECT_LT(outcome.seconds, 12 * test::kPatience);
  }
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

TEST_F(LauncherTest, LogsOfAnotherJobAreKept) {
  EXPECT_EQ(run(1, "end 0 0 ''").status, 0);
  EXPECT_TRUE(has(run(1, "end 0 0 ''").err, "holds the logs of another job"));
}

}  // namespace
}  // namespace tern::cli
