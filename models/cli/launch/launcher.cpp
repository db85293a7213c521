#include "tern/models/cli/launch/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "tern/core/io/file_kind.h"
#include "tern/kernels/base/check.h"
#include "tern/models/cli/launch/end_requests.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/launch/rank_process.h"
#include "tern/models/cli/launch/rank_program.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(30), kWatchPause = std::chrono::milliseconds(60);
/// After a rank fails, mpirun ends the others. Ranks still alive after kEndingTime are killed, mpirun kGraceTime later.
constexpr auto kEndingTime = std::chrono::seconds(6), kGraceTime = std::chrono::seconds(1);
/// mpirun reaps ended children at once unless it hangs, as it may if a rank dies while starting.
constexpr auto kZombieTime = std::chrono::seconds(2);

/// Only the launcher receives these and forwards them: mpirun would kill the ranks before they have saved.
constexpr int kRequests[] = {SIGINT, SIGTERM, SIGUSR1};
/// The signal on which mpirun ends its processes and then itself.
constexpr int kEndsMpirun = SIGHUP;

EndRequests to_end;
void note_signal(int number) { to_end.note(number); }

std::string mpirun_log(const std::string& logs) { return logs + "/mpirun.log"; }

struct Children {
  std::vector<pid_t> alive;
  bool zombies = false;  // some have ended and are not reaped
};
/// The child processes of `parent`.
Children children_of(pid_t parent) {
  Children found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const size_t name_end = text.rfind(')');  // the program's name may contain anything
    if (name_end == std::string::npos) continue;
    std::istringstream fields(text.substr(name_end + 1));
    char state = 0;
    pid_t its_parent = 0;
    if (!(fields >> state >> its_parent) || its_parent != parent) continue;
    if (state == 'Z')
      found.zombies = true;
    else
      found.alive.push_back(std::stoi(name));
  }
  return found;
}

/// The rank that mpirun assigned to a process of the job with these logs, or -1.
int rank_of(pid_t process, const std::string& logs) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  constexpr std::string_view kName = "OMPI_COMM_WORLD_RANK=";
  int rank = -1;
  bool of_job = false;
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(kName)) rank = std::atoi(entry.c_str() + kName.size());
    of_job = of_job || entry == kRankLogs + ("=" + logs);
  }
  return of_job ? rank : -1;
}

/// Kills the ranks of the job with these logs, even if reparented, and their descendants.
void kill_processes_of(const std::string& logs) {
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos && rank_of(std::stoi(name), logs) >= 0)
      kill(std::stoi(name), SIGKILL);
  }
}

/// Copies text appended to a file to a stream, in whole lines until the end.
class Follower {
 public:
  Follower(std::string path, std::ostream& to, bool hides_errors)
      : path_(std::move(path)), to_(to), hides_errors_(hides_errors) {}

  void pump(bool at_end = false) {
    std::ifstream file(path_, std::ios::binary);
    if (!file.seekg(static_cast<std::streamoff>(read_))) return;
    std::string fresh(std::istreambuf_iterator<char>(file), {});
    read_ += fresh.size();
    rest_ += fresh;
    for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
      write(rest_.substr(0, end + 1));
    if (at_end) write(std::exchange(rest_, ""));
    to_.flush();
  }

 private:
  void write(const std::string& line) {
    if (!hides_errors_ || !line.starts_with("tern: error: ")) to_ << line;
  }
  std::string path_;
  std::ostream& to_;
  bool hides_errors_;  // the launcher chooses which rank's error it shows
  size_t read_ = 0;
  std::string rest_;
};

class Job {
 public:
  explicit Job(const LaunchPlan& plan)
      : plan_(plan),
        out_(rank_file(plan.logs, 0, ".out"), std::cout, false),
        log_(rank_file(plan.logs, 0, ".log"), std::cerr, true) {}

  int run(const std::string& mpirun) {
    start(mpirun);
    int status = 0;
    while (waitpid(mpirun_, &status, WNOHANG) == 0) {
      out_.pump();
      log_.pump();
      pass_signals();
      watch_ranks();
      end_after_failure();
      std::this_thread::sleep_for(kPause);
    }
    end_children(SIGKILL);  // there are none unless mpirun failed to end them
    if (WIFSIGNALED(status)) kill_processes_of(plan_.logs);
    out_.pump(true);
    log_.pump(true);
    return conclude(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }

 private:
  std::vector<std::string> command(const std::string& mpirun) const {
    std::vector<std::string> words = {
        mpirun, "-n", std::to_string(plan_.processes), "--oversubscribe", "--bind-to", "none", "-x", kRankLogs};
    if (geteuid() == 0) words.push_back("--allow-run-as-root");
    words.push_back(plan_.program);
    words.insert(words.end(), plan_.arguments.begin(), plan_.arguments.end());
    return words;
  }

  void start(const std::string& mpirun) {
    const std::vector<std::string> words = command(mpirun);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const std::string threads = std::to_string(plan_.threads);
    const int output = open_log(mpirun_log(plan_.logs)), input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const pid_t parent = getpid();
    mpirun_ = fork();
    TERN_CHECK(mpirun_ >= 0, "launch: no process: ", std::strerror(errno));
    if (mpirun_ == 0) {
      setpgid(0, 0);  // so that Ctrl-C reaches only the launcher, which forwards it to the ranks
      prctl(PR_SET_PDEATHSIG, kEndsMpirun);
      if (getppid() != parent) _exit(1);
      for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
      sigset_t blocked;  // mpirun unblocks them in the processes that it starts
      sigemptyset(&blocked);
      for (const int number : kRequests) sigaddset(&blocked, number);
      sigprocmask(SIG_BLOCK, &blocked, nullptr);
      dup2(input, 0);
      dup2(output, 1);
      dup2(output, 2);
      setenv(kRankLogs, plan_.logs.c_str(), 1);
      setenv("OMP_NUM_THREADS", threads.c_str(), 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(output);
    close(input);
  }

  void end_children(int number) const {
    for (const pid_t child : children_of(mpirun_).alive) kill(child, number);
  }

  /// Sends the first signal to every rank, once. A rank without installed handlers would end without saving. It creates
  /// its log after installing them, so the signal is sent when the log exists.
  void pass_signals() {
    passed_ = to_end.first();
    if (to_end.again() != 0) return kill_ranks();
    if (passed_ == 0) return;
    for (const pid_t process : children_of(mpirun_).alive) {
      const int rank = signalled_.contains(process) ? -1 : rank_of(process, plan_.logs);
      if (rank < 0 || !fs::exists(rank_file(plan_.logs, rank, ".log"))) continue;
      kill(process, passed_);
      signalled_.insert(process);
    }
  }

  /// Kills the ranks at once, and mpirun after kGraceTime if it has not ended by then.
  void kill_ranks() {
    if (!killed_at_) {
      killed_at_ = Clock::now();
      end_children(SIGKILL);
      kill(mpirun_, kEndsMpirun);
    } else if (Clock::now() > *killed_at_ + kGraceTime) {
      end_children(SIGKILL);
      kill(mpirun_, SIGKILL);
    }
  }

  /// Records which rank disappeared first: mpirun reports signals, but not always which rank received them.
  void watch_ranks() {
    const auto now = Clock::now();
    if (now < watched_at_ + kWatchPause) return;
    watched_at_ = now;
    const auto& [alive, zombies] = children_of(mpirun_);
    if (!zombies) zombies_at_.reset();
    if (zombies && !zombies_at_) zombies_at_ = now;
    for (const auto& [process, rank] : ranks_)
      if (std::find(alive.begin(), alive.end(), process) == alive.end() && first_ended_ < 0 &&
          !read_rank_end(plan_.logs, rank).known)
        first_ended_ = rank;
    for (const pid_t process : alive)
      if (const int rank = ranks_.contains(process) ? -1 : rank_of(process, plan_.logs); rank >= 0)
        ranks_[process] = rank;
  }

  void end_after_failure() {
    if (!failed_at_) {
      for (int r = 0; r < plan_.processes && !failed_at_; ++r) {
        const RankEnd end = read_rank_end(plan_.logs, r);
        if (end.known && end.status != 0 && passed_ == 0) failed_at_ = Clock::now();
      }
      if (first_ended_ >= 0 || (zombies_at_ && Clock::now() > *zombies_at_ + kZombieTime)) failed_at_ = Clock::now();
    } else if (Clock::now() > *failed_at_ + kEndingTime) {
      kill_ranks();
    }
  }

  /// The text of mpirun.log, joined to one line.
  std::string words_of_mpirun() const {
    std::ifstream file(mpirun_log(plan_.logs));
    std::string text, line;
    while (std::getline(file, line) && text.size() < 600) {
      if (line.empty() || line.find_first_not_of('-') == std::string::npos) continue;
      text += (text.empty() ? "" : " ") + line;
    }
    return text;
  }

  int fail_with(const std::string& message, int status) const {
    std::cout.flush();
    std::fprintf(stderr, "tern: error: %s\n", message.c_str());
    return status;
  }

  int conclude(int mpirun_status) const {
    std::vector<RankEnd> ends;
    for (int r = 0; r < plan_.processes; ++r) ends.push_back(read_rank_end(plan_.logs, r));
    const bool all_well =
        std::all_of(ends.begin(), ends.end(), [](const RankEnd& e) { return e.known && e.status == 0; });
    if (all_well && mpirun_status == 0) return 0;

    // Priority: the first error of a rank itself, then a rank killed by a signal, then the first error about another
    // rank.
    std::sort(ends.begin(), ends.end(),
              [](const RankEnd& a, const RankEnd& b) { return a.nanoseconds < b.nanoseconds; });
    const auto first = [&](bool of_peer) {
      return std::find_if(ends.begin(), ends.end(), [=](const RankEnd& e) {
        return e.known && e.status != 0 && !e.error.empty() && e.of_peer == of_peer;
      });
    };
    const auto own = first(false), peer = first(true);
    if (own != ends.end()) {
      const bool same = std::all_of(ends.begin(), ends.end(),
                                    [&](const RankEnd& e) { return e.error.empty() || e.error == own->error; });
      return fail_with(same && count_errors(ends) > 1 ? own->error : named(*own), own->status);
    }
    if (to_end.again() != 0) return signal_status(to_end.again());
    if (passed_ == SIGINT || passed_ == SIGTERM) return signal_status(passed_);
    for (const RankEnd& end : ends)  // ended normally, with a specific status (saved, to be restarted)
      if (end.known && end.status != 0 && !end.of_peer) return end.status;
    // Ranks that had not started any work write no end file.
    if (passed_ == SIGUSR1 && (mpirun_status == signal_status(passed_) || mpirun_status == 128 + SIGUSR1))
      return signal_status(passed_);
    const std::string words = words_of_mpirun();
    if (mpirun_status > 128) {
      const int number = mpirun_status - 128, rank = killed_rank(words);
      const std::string how = detail::concatenate(" was ended by signal ", number, " (", strsignal(number), ")");
      if (rank < 0) return fail_with("a rank" + how + "; the logs are in " + plan_.logs, 1);
      return fail_with(detail::concatenate("rank ", rank, how, "; its log is ", rank_file(plan_.logs, rank, ".log")),
                       1);
    }
    if (peer != ends.end()) return fail_with(named(*peer), peer->status);
    return fail_with("mpirun ended with status " + std::to_string(mpirun_status) + (words.empty() ? "" : ": ") + words,
                     1);
  }

  /// The rank killed by a signal, or -1: from mpirun's message, otherwise the one that disappeared first.
  int killed_rank(const std::string& words) const {
    constexpr std::string_view kBefore = "noticed that process rank ";
    if (const size_t at = words.find(kBefore); at != std::string::npos)
      return std::atoi(words.c_str() + at + kBefore.size());
    return static_cast<int>(ranks_.size()) == plan_.processes ? first_ended_ : -1;
  }

  static int64_t count_errors(const std::vector<RankEnd>& ends) {
    return std::count_if(ends.begin(), ends.end(), [](const RankEnd& e) { return !e.error.empty(); });
  }

  std::string named(const RankEnd& end) const {
    return detail::concatenate("rank ", end.rank, ": ", end.error, " (its log is ",
                               rank_file(plan_.logs, end.rank, ".log"), ")");
  }

  const LaunchPlan& plan_;
  Follower out_, log_;
  pid_t mpirun_ = -1;
  std::map<pid_t, int> ranks_;
  int first_ended_ = -1;
  Clock::time_point watched_at_;
  int passed_ = 0;  // the signal forwarded to the ranks
  std::set<pid_t> signalled_;
  std::optional<Clock::time_point> failed_at_, killed_at_, zombies_at_;
};

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  for (const int number : kRequests) sigaction(number, &action, nullptr);
}

}  // namespace

int launch_processes(const LaunchPlan& plan) {
  const std::string mpirun = find_program("mpirun");
  TERN_CHECK(
      !mpirun.empty(),
      "mpirun is not in PATH: install Open MPI (Debian: apt-get install openmpi-bin libopenmpi-dev) and build Tern "
      "again");
  std::error_code error;
  fs::create_directories(plan.logs, error);
  TERN_CHECK(!error, "--logs: ", plan.logs, " cannot be made: ", error.message());
  detail::refuse_to_write_other_kinds(mpirun_log(plan.logs));
  for (int r = 0; r < plan.processes; ++r)
    for (const std::string extension : {".log", ".out", ".end"}) {
      const std::string file = rank_file(plan.logs, r, extension.c_str());
      detail::refuse_to_write_other_kinds(file);
      TERN_CHECK(extension == ".out" || !fs::exists(file, error), "--logs: ", plan.logs,
                 " holds the logs of another job: give another folder");
    }
  watch_signals();
  return Job(plan).run(mpirun);
}

}  // namespace tern::cli
