// Forwarding of signals, and cleanup when a process is killed.

#include "tern/tests/models/launcher_test.h"

namespace tern::cli {
namespace {

TEST_F(LauncherTest, SignalsArePassedOn) {
  for (const int number : {SIGTERM, SIGINT}) {
    fs::remove_all(folder_ / "logs");
    const Outcome outcome = run(2, R"(
        trap 'sleep 0.2; echo saved; end 143 0 ""' TERM
        trap 'sleep 0.2; echo saved; end 130 0 ""' INT
        touch $logs/ready-$rank
        while :; do sleep 0.1; done)",
                                [&](pid_t launcher) {
                                  wait_for("ready-0");
                                  wait_for("ready-1");
                                  kill(launcher, number);
                                });
    EXPECT_EQ(outcome.status, 128 + number);
    EXPECT_EQ(outcome.out, "saved\n");
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(LauncherTest, ARepeatedSIGUSR1IsPassedOnOnce) {
  const Outcome outcome = run(2, R"(
      trap 'echo 1 >>$logs/signals-$rank' USR1
      touch $logs/ready-$rank
      while [ ! -e $logs/stop ]; do sleep 0.1; done
      end 75 0 '')",
                              [&](pid_t launcher) {
                                wait_for("ready-0");
                                wait_for("ready-1");
                                kill(launcher, SIGUSR1);
                                wait_for("signals-0");
                                wait_for("signals-1");
                                for (int i = 0; i < 4; ++i) {
                                  kill(launcher, SIGUSR1);
                                  std::this_thread::sleep_for(std::chrono::milliseconds(150));
                                }
                                std::ofstream(folder_ / "logs" / "stop");
                              });
  EXPECT_EQ(outcome.status, 75);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(read("logs/signals-0") + read("logs/signals-1"), "1\n1\n");
}

/// A signal before the ranks exist, or before they have installed handlers.
TEST_F(LauncherTest, AnEarlySignalWaitsForTheRanks) {
  setenv("TERN_TEST_SLOW_START", "1", 1);
  const Outcome outcome = run(2, R"(
      for i in $(seq 300); do
        if [ -n "$usr1" ]; then end 75 0 ''; fi
        sleep 0.1
      done
      end 9 0 'no signal')",
                              [&](pid_t launcher) {
                                wait_for("mpirun.log");
                                kill(launcher, SIGUSR1);
                              });
  unsetenv("TERN_TEST_SLOW_START");
  EXPECT_EQ(outcome.status, 75) << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(LauncherTest, ASecondSignalEndsAtOnce) {
  const Outcome outcome =
      run(2, R"(
      trap 'touch $logs/seen' TERM
      touch $logs/ready-$rank
      while :; do sleep 0.1; done)",
          [&](pid_t launcher) {
            wait_for("ready-0");
            wait_for("ready-1");
            // Keep sending until it has ended: signals within a second of the first belong to it.
            siginfo_t ended{};
            while (waitid(P_PID, launcher, &ended, WEXITED | WNOWAIT | WNOHANG) == 0 && ended.si_pid == 0) {
              kill(launcher, SIGTERM);
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
          });
  EXPECT_EQ(outcome.status, 143);
  EXPECT_TRUE(fs::exists(folder_ / "logs/seen"));
}

/// Batch systems, service managers and container runtimes send it like this: mpirun kills its processes a second later.
TEST_F(LauncherTest, SignalsToMpirunAreLeftToTheLauncher) {
  const Outcome outcome = run(2, R"(
      trap 'sleep 2; echo saved; end 143 0 ""' TERM
      touch $logs/ready-$rank
      while :; do sleep 0.1; done)",
                              [&](pid_t launcher) {
                                wait_for("ready-0");
                                wait_for("ready-1");
                                const std::vector<pid_t> mpirun = children_of(launcher);
                                ASSERT_EQ(mpirun.size(), 1u);
                                for (const int number : {SIGINT, SIGTERM, SIGUSR1}) kill(mpirun[0], number);
                                kill(launcher, SIGTERM);
                              });
  EXPECT_EQ(outcome.status, 143);
  EXPECT_EQ(outcome.out, "saved\n");
  EXPECT_EQ(outcome.err, "");
}

/// Neither a killed launcher nor a killed mpirun leaves processes behind.
TEST_F(LauncherTest, NoProcessRemains) {
  for (const bool kill_launcher : {true, false}) {
    fs::remove_all(folder_ / "logs");
    const Outcome outcome = run(2, R"(
        trap '' TERM INT
        touch $logs/ready-$rank
        while :; do sleep 0.1; done)",
                                [&](pid_t launcher) {
                                  wait_for("ready-0");
                                  wait_for("ready-1");
                                  const std::vector<pid_t> mpirun = children_of(launcher);
                                  ASSERT_EQ(mpirun.size(), 1u);
                                  EXPECT_GE(ranks().size(), 2u);  // includes shells that have not yet become `sleep`
                                  kill(kill_launcher ? launcher : mpirun[0], SIGKILL);
                                });
    EXPECT_EQ(outcome.status, kill_launcher ? 1000 + SIGKILL : 1) << outcome.err;
    for (int i = 0; i < 3000 && !ranks().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(ranks().empty());
  }
}

}  // namespace
}  // namespace tern::cli
