// Which signals count as one request to save and end, their forwarding, and cleanup when a process is killed.

#include "tern/models/cli/launch/end_requests.h"
#include "tern/tests/models/launcher_test.h"

namespace tern::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(EndRequests, OneRequestMayBeManySignals) {
  EndRequests requests;
  EXPECT_EQ(requests.first(), 0);
  const int64_t start = EndRequests::now();
  requests.note(SIGTERM, start);
  for (const int64_t later : {int64_t{0}, int64_t{1}, kSecond / 2, kSecond}) {
    requests.note(SIGTERM, start + later);
    requests.note(SIGINT, start + later);
    EXPECT_EQ(requests.first(), SIGTERM);
    EXPECT_EQ(requests.again(), 0) << later;
  }
  requests.note(SIGINT, start + kSecond + 1);
  EXPECT_EQ(requests.again(), SIGINT);
  requests.note(SIGTERM, start + 5 * kSecond);
  EXPECT_EQ(requests.again(), SIGINT);
  EXPECT_EQ(requests.first(), SIGTERM);
}

TEST(EndRequests, SIGUSR1NeverEndsAtOnce) {
  EndRequests requests;
  for (int i = 0; i < 10; ++i) requests.note(SIGUSR1, i * 3 * kSecond);
  requests.note(SIGTERM, 40 * kSecond);  // the first request to end
  for (int i = 0; i < 10; ++i) requests.note(SIGUSR1, (50 + i) * kSecond);
  EXPECT_EQ(requests.first(), SIGUSR1);
  EXPECT_EQ(requests.again(), 0);
  requests.note(SIGTERM, 42 * kSecond);
  EXPECT_EQ(requests.again(), SIGTERM);
}

TEST_F(LauncherTest, SignalsArePassedOn) {
  for (const int number : {SIGTERM, SIGINT}) {
    const Outcome outcome = run_until(R"(
        trap 'sleep 0.2; echo saved; end 143 0 ""' TERM
        trap 'sleep 0.2; echo saved; end 130 0 ""' INT)",
                                      [&](pid_t launcher) { kill(launcher, number); });
    EXPECT_EQ(outcome.status, 128 + number);
    EXPECT_EQ(outcome.out, "saved\n");
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(LauncherTest, ARepeatedSIGUSR1IsPassedOnOnce) {
  const Outcome outcome = run_until("trap 'echo 1 >>$logs/signals-$rank' USR1", [&](pid_t launcher) {
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
  const Outcome outcome = run_until("trap 'touch $logs/seen' TERM", [&](pid_t launcher) {
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
  const Outcome outcome = run_until("trap 'sleep 2; echo saved; end 143 0 \"\"' TERM", [&](pid_t launcher) {
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
    const Outcome outcome = run_until("trap '' TERM INT", [&](pid_t launcher) {
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
