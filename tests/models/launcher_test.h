#pragma once
// Processes started by mpirun: shell scripts that imitate correct and faulty ranks.

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

#include "tern/kernels/base/check.h"
#include "tern/models/cli/launcher.h"
#include "tern/tests/support/sanitizer.h"

namespace tern::cli {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string out, err;
  double seconds = 0;
};

/// Precedes each script: the rank number, and functions that write a rank's end file.
inline constexpr const char* kPreamble = R"(
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

  /// Calls `meanwhile` with the launcher's process id.
  Outcome run(int processes, const std::string& script, const std::function<void(pid_t)>& meanwhile = {}) {
    std::ofstream(folder_ / "script") << kPreamble << script;
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);  // in case the launcher hangs
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

  /// Waits until the log file exists.
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
      std::string words;
      std::getline(file, words, '\1');  // of a process that ends meanwhile nothing, where an iterator would throw
      if (words == std::string("/bin/sh", 8) + (folder_ / "script").string() + '\0') found.push_back(std::stoi(name));
    }
    return found;
  }

  fs::path folder_;
};

}  // namespace tern::cli
