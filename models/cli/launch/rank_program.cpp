#include "tern/models/cli/launch/rank_program.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "tern/core/io/pickle.h"
#include "tern/dist/store/rendezvous.h"
#include "tern/kernels/base/check.h"
#include "tern/models/cli/launch/rank_process.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;

/// The last words of a program that failed.
struct LastWords {
  std::string line = {};
  bool of_peer = false;  // another rank's failure ended it
};
LastWords last_words(const std::string& log) {
  constexpr std::string_view kWhat = "what():  ", kPeerError = "'tern::dist::PeerError'";
  constexpr std::streamoff kTail = 1 << 16;
  LastWords words;
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(size - kTail, 0));
  bool is_what = false;  // what std::terminate writes about an exception, which other lines may follow
  for (std::string line; std::getline(file, line);) {
    words.of_peer = words.of_peer || line.find(kPeerError) != std::string::npos;
    if (const size_t what = line.find(kWhat); what != std::string::npos) {
      words.line = line.substr(what + kWhat.size());
      is_what = true;
    } else if (!is_what && line.find_first_not_of(" \t\r") != std::string::npos) {
      words.line = line;
    }
  }
  words.line = detail::printable(words.line, 1000);
  return words;
}

[[noreturn]] void become(const std::vector<std::string>& command, pid_t parent, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  dprintf(STDERR_FILENO, "%s: cannot be started: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

struct End {
  int status = 0;     // of waitpid()
  int forwarded = 0;  // the last signal that was
};
End wait_and_forward(pid_t child, const sigset_t& signals) {
  for (End end;;) {
    const int number = sigwaitinfo(&signals, nullptr);
    if (number == SIGCHLD) {
      if (waitpid(child, &end.status, WNOHANG) == child) return end;
    } else if (number > 0) {
      kill(child, number);
      end.forwarded = number;
    }
  }
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    std::error_code error;
    TERN_CHECK(!fs::is_directory(name, error), name, " is a folder, not a program");
    TERN_CHECK(access(name.c_str(), X_OK) == 0, name, ": cannot be executed: ", std::strerror(errno));
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

int run_rank_program(const std::vector<std::string>& command) {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, &before);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigdelset(&before, number);  // mpirun may have blocked them
  begin_rank();
  const pid_t parent = getpid(), child = fork();
  TERN_CHECK(child >= 0, "launch: no process: ", std::strerror(errno));
  if (child == 0) become(command, parent, before);
  const auto [status, forwarded] = wait_and_forward(child, signals);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    end_rank(0, "", false);
    return 0;
  }
  const char* const folder = std::getenv(kRankLogs);
  const LastWords words = last_words(rank_file(folder ? folder : "", dist::detect_launch().rank, ".log"));
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const std::string how = number ? detail::concatenate("ended by signal ", number, " (", strsignal(number), ")")
                                 : detail::concatenate("ended with status ", WEXITSTATUS(status));
  const int result = number ? 128 + number : WEXITSTATUS(status);
  const bool asked = number != 0 && number == forwarded;  // then it is no error
  end_rank(result, asked ? "" : how + (words.line.empty() ? "" : ": " + words.line), words.of_peer);
  return result;
}

}  // namespace tern::cli
