#pragma once
// Processes started by mpirun: shell scripts that imitate correct and faulty ranks.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tern/kernels/base/check.h"
#include "tern/models/cli/launch/launcher.h"
#include "tern/tests/support/sanitizer.h"
#include "tern/tests/support/temporary_folder.h"
#include "tern/tests/support/text.h"

namespace tern::cli {

namespace fs = std::filesystem;
using test::has;

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

  void wait_for(const std::string& name) const {
    for (int i = 0; i < 2000 * test::kPatience && !fs::exists(folder_ / "logs" / name); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  /// The processes for which a file of /proc, up to a character, is as wanted. It is empty for one that has just ended.
  static std::vector<pid_t> processes(const std::string& file, char end,
                                      const std::function<bool(const std::string&)>& wanted) {
    std::vector<pid_t> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
      const std::string name = entry.path().filename().string();
      std::ifstream in(entry.path() / file, std::ios::binary);
      std::string text;
      std::getline(in, text, end);
      if (name.find_first_not_of("0123456789") == std::string::npos && wanted(text)) found.push_back(std::stoi(name));
    }
    return found;
  }
  static std::vector<pid_t> children_of(pid_t parent) {
    return processes("stat", '\n', [parent](const std::string& text) {
      std::istringstream fields(text.substr(text.rfind(')') + 1));
      char state = 0;
      pid_t its_parent = 0;
      return fields >> state >> its_parent && its_parent == parent;
    });
  }
  /// The processes that run this test's script.
  std::vector<pid_t> ranks() const {
    const std::string words = std::string("/bin/sh", 8) + (folder_ / "script").string() + '\0';
    return processes("cmdline", '\1', [&](const std::string& text) { return text == words; });
  }

  /// Runs two ranks with a script that sets traps; calls `when_ready` when both have. They end with status 75 when the
  /// file "stop" appears among the logs.
  Outcome run_until(const std::string& script, const std::function<void(pid_t)>& when_ready) {
    fs::remove_all(folder_ / "logs");
    return run(2, script + "\ntouch $logs/ready-$rank\nwhile [ ! -e $logs/stop ]; do sleep 0.1; done\nend 75 0 ''\n",
               [&](pid_t launcher) {
                 wait_for("ready-0");
                 wait_for("ready-1");
                 when_ready(launcher);
               });
  }

  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

}  // namespace tern::cli
