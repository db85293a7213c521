// Processes started by mpirun: shell scripts that do what ranks of Tern do, and what they should not.

#include "tern/models/cli/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tern/core/check.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string out, err;
  double seconds = 0;
};

/// Before each script: its rank, and what a rank of Tern writes at its end.
constexpr const char* kPreamble = R"(
[ -z "$TERN_TEST_SLOW_START" ] || sleep 0.7
trap 'usr1=1' USR1
rank=$OMPI_COMM_WORLD_RANK
logs=$TERN_RANK_LOGS
if [ $rank = 0 ]; then exec >$logs/rank-0.out; else exec >$logs/rank-$rank.log; fi
exec 2>>$logs/rank-$rank.log
end() { printf '%s %s %s\n%s\n' $1 $2 $(date +%s%N) "$3" >$logs/rank-$rank.end; exit $1; }
)";

class LauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    if (system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpi: there is no mpirun";
    std::string name = (fs::temp_directory_path() / "tern-launch-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  /// `meanwhile` is called with the launcher's process number.
  Outcome run(int processes, const std::string& script, const std::function<void(pid_t)>& meanwhile = {}) {
    std::ofstream(folder_ / "script") << kPreamble << script;
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a launcher that hangs
      if (!freopen((folder_ / "out").c_str(), "w", stdout) || !freopen((folder_ / "err").c_str(), "w", stderr))
        _exit(126);
      int status = 1;
      try {
        status = launch_processes({.program = "/bin/sh",
                                   .arguments = {(folder_ / "script").string()},
                                   .processes = processes,
                                   .logs = (folder_ / "logs").string()});
      } catch (const Error& error) {
        fprintf(stderr, "error: %s\n", error.what());
      }
      fflush(nullptr);
      _exit(status);
    }
    if (meanwhile) meanwhile(child);
    int status = 0;
    waitpid(child, &status, 0);
    Outcome outcome;
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    outcome.out = read("out");
    outcome.err = read("err");
    return outcome;
  }

  /// Until the file of the logs exists.
  void wait_for(const std::string& name) const {
    for (int i = 0; i < 2000 * test::kPatience && !fs::exists(folder_ / "logs" / name); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
      std::ifstream file(entry.path() / "stat");
      std::string text;
      std::getline(file, text);
      std::istringstream fields(text.substr(text.rfind(')') + 1));
      char state = 0;
      pid_t its_parent = 0;
      if (fields >> state >> its_parent && its_parent == parent)
        found.push_back(std::stoi(entry.path().filename().string()));
    }
    return found;
  }
  /// The processes that run this test's script.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      const std::string words(std::istreambuf_iterator<char>(file), {});
      if (words == std::string("/bin/sh", 8) + (folder_ / "script").string() + '\0') found.push_back(std::stoi(name));
    }
    return found;
  }

  fs::path folder_;
};

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
  EXPECT_NE(outcome.err.find("no such flag"), std::string::npos);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST_F(LauncherTest, ARankThatHangsIsEnded) {
  const Outcome outcome = run(3, R"(
    if [ $rank = 2 ]; then end 1 0 'out of memory'; fi
    trap '' TERM INT HUP
    while :; do sleep 0.1; done)");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("tern: error: rank 2: out of memory"), std::string::npos) << outcome.err;
  EXPECT_LT(outcome.seconds, 12 * test::kPatience);
}

TEST_F(LauncherTest, ARankThatIsKilledIsNamed) {
  const Outcome outcome = run(3, "if [ $rank = 1 ]; then sleep 0.4; kill -9 $$; fi; sleep 60; end 0 0 ''");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("tern: error: rank 1 was ended by signal 9 (Killed)"), std::string::npos) << outcome.err;
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
  EXPECT_NE(outcome.err.find("tern: error: mpirun ended with status 9"), std::string::npos) << outcome.err;
}

TEST_F(LauncherTest, SignalsArePassedOn) {
  for (const int number : {SIGTERM, SIGINT}) {
    fs::remove_all(folder_ / "logs");
    const Outcome outcome = run(2, R"(
        trap 'sleep 0.2; echo saved; end 143 0 ""' TERM
        trap 'sleep 0.2; echo saved; end 130 0 ""' INT
        touch $logs/ready-$rank
        while :; do sleep 0.1; done)",
                                [&](pid_t launcher) {
                                  wait_for("ready-0"), wait_for("ready-1");
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
                                wait_for("ready-0"), wait_for("ready-1");
                                kill(launcher, SIGUSR1);
                                wait_for("signals-0"), wait_for("signals-1");
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

/// A signal that comes before the ranks are there, or before they could do anything but die of it.
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
            wait_for("ready-0"), wait_for("ready-1");
            // Until it has ended: what comes within a second of the first belongs to it.
            siginfo_t ended{};
            while (waitid(P_PID, launcher, &ended, WEXITED | WNOWAIT | WNOHANG) == 0 && ended.si_pid == 0) {
              kill(launcher, SIGTERM);
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
          });
  EXPECT_EQ(outcome.status, 143);
  EXPECT_TRUE(fs::exists(folder_ / "logs/seen"));
}

/// As batch systems, service managers and container runtimes send it: mpirun kills its processes a second after it.
TEST_F(LauncherTest, SignalsToMpirunAreLeftToTheLauncher) {
  const Outcome outcome = run(2, R"(
      trap 'sleep 2; echo saved; end 143 0 ""' TERM
      touch $logs/ready-$rank
      while :; do sleep 0.1; done)",
                              [&](pid_t launcher) {
                                wait_for("ready-0"), wait_for("ready-1");
                                const std::vector<pid_t> mpirun = children_of(launcher);
                                ASSERT_EQ(mpirun.size(), 1u);
                                for (const int number : {SIGINT, SIGTERM, SIGUSR1}) kill(mpirun[0], number);
                                kill(launcher, SIGTERM);
                              });
  EXPECT_EQ(outcome.status, 143);
  EXPECT_EQ(outcome.out, "saved\n");
  EXPECT_EQ(outcome.err, "");
}

/// Nobody who is killed leaves processes behind: not the launcher, not mpirun.
TEST_F(LauncherTest, NoProcessIsLeftBehind) {
  for (const bool kill_launcher : {true, false}) {
    fs::remove_all(folder_ / "logs");
    const Outcome outcome = run(2, R"(
        trap '' TERM INT
        touch $logs/ready-$rank
        while :; do sleep 0.1; done)",
                                [&](pid_t launcher) {
                                  wait_for("ready-0"), wait_for("ready-1");
                                  const std::vector<pid_t> mpirun = children_of(launcher);
                                  ASSERT_EQ(mpirun.size(), 1u);
                                  EXPECT_EQ(ranks().size(), 2u);
                                  kill(kill_launcher ? launcher : mpirun[0], SIGKILL);
                                });
    EXPECT_EQ(outcome.status, kill_launcher ? 1000 + SIGKILL : 1) << outcome.err;
    for (int i = 0; i < 3000 && !ranks().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(ranks().empty());
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

TEST_F(LauncherTest, WithoutMpirun) {
  const std::string path = getenv("PATH");
  setenv("PATH", "", 1);
  const Outcome outcome = run(2, "end 0 0 ''");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("apt-get install openmpi-bin"), std::string::npos) << outcome.err;
}

TEST_F(LauncherTest, LogsOfAnotherJobAreKept) {
  EXPECT_EQ(run(1, "end 0 0 ''").status, 0);
  const Outcome outcome = run(1, "end 0 0 ''");
  EXPECT_NE(outcome.err.find("holds the logs of another job"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tern::cli
