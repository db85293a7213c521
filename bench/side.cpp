#include "tern/bench/side.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "tern/core/io/json.h"

namespace tern::bench {
namespace {

using Json = nlohmann::json;

constexpr int kStartSeconds = 60, kAnswerSeconds = 1200;
constexpr size_t kMaxLine = 1 << 22;

/// Tern's libraries in this process, as the files that are mapped.
Json mapped_libraries() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> paths;
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash != std::string::npos && line.find("/libtern", slash) != std::string::npos)
      paths.insert(line.substr(slash));
  }
  return paths;
}

/// Must be equal on both sides of a comparison. A step's operations may differ: they depend on how the side computes
/// it.
Json work_of(const Row& row, const Timer& timer) {
  if (row.make_steps) return {{"unit", row.unit}};
  return {{"bytes", timer.work().bytes}, {"flops", timer.work().flops}, {"dtype", name_of(timer.work().dtype)}};
}

}  // namespace

Json describe_setting() {
#ifdef __OPTIMIZE__
  constexpr bool kOptimized = true;
#else
  constexpr bool kOptimized = false;
#endif
  return {{"device", device().str()},
          {"cpu_level", name_of(kernels::cpu_level())},
          {"threads", kernels::num_threads()},
          {"tiny", is_tiny()},
          {"optimized", kOptimized}};
}

void serve(const std::vector<Row>& rows) {
  Json names = Json::array();
  for (const Row& row : rows) names.push_back(row.name);
  const auto say = [](const Json& line) { std::cout << line.dump() << std::endl; };
  say({{"setting", describe_setting()},
       {"program", std::filesystem::read_symlink("/proc/self/exe").string()},
       {"libraries", mapped_libraries()},
       {"rows", names}});
  std::unique_ptr<Timer> timer;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      if (line == "sample") {
        TERN_CHECK(timer, "sample: no row is prepared");
        const Sample sample = timer->sample();
        say({{"items", sample.items}, {"seconds", sample.seconds}, {"cpu_seconds", sample.cpu_seconds}});
        continue;
      }
      TERN_CHECK(line.starts_with("prepare "), "expected prepare NAME or sample, got '", line, "'");
      timer.reset();  // frees the buffers of the row before
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == line.substr(8); });
      TERN_CHECK(row != rows.end(), "there is no row ", line.substr(8));
      timer = std::make_unique<Timer>(*row);
      say({{"work", work_of(*row, *timer)}});
    } catch (const std::exception& error) {
      say({{"error", error.what()}});
    }
  }
}

Side::Side(std::string program, const std::vector<std::string>& arguments, Clock clock)
    : program_(std::move(program)), clock_(clock) {
  std::vector<std::string> words = {program_, "--serve"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int to[2], from[2];
  TERN_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0, program_, ": no pipe: ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a group, to stop it with what it starts
  const int problem = posix_spawn(&pid_, program_.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  in_ = to[1];
  out_ = from[0];
  if (problem != 0) pid_ = -1;
  try {
    TERN_CHECK(problem == 0, program_, ": cannot be started: ", std::strerror(problem));
    hello_ = std::make_unique<Json>(answer(kStartSeconds));
    TERN_CHECK(hello_->contains("setting") && hello_->contains("rows") && hello_->contains("libraries"), program_,
               ": is no benchmark program of this version of Tern: it does not answer to --serve");
  } catch (...) {
    end();
    throw;
  }
}

Side::~Side() { end(); }

void Side::end() {
  close(in_);
  close(out_);
  if (pid_ <= 0) return;
  kill(-pid_, SIGCONT);
  wait_for_end();  // the end of its input ends it
}

int Side::wait_for_end() {
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0) usleep(10000);
  }
  kill(-pid_, SIGKILL);  // what is left of the group
  if (ended == 0) waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

std::string Side::end_text() {
  const int status = wait_for_end();
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "status " + std::to_string(WEXITSTATUS(status));
}

/// The next line without its end; what the program said on standard error is already there.
std::string Side::read_line(int seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  for (;;) {
    if (const size_t size = unread_.find('\n'); size != std::string::npos) {
      const std::string line = unread_.substr(0, size);
      unread_.erase(0, size + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    TERN_CHECK(left > 0 && unread_.size() < kMaxLine, program_, ": gave no answer in ", seconds,
               " s: is it a benchmark program of this version of Tern?");
    pollfd ready{out_, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    char text[65536];
    const ssize_t size = read(out_, text, sizeof(text));
    if (size < 0 && errno == EINTR) continue;
    TERN_CHECK(size > 0, program_, ": ended with ", end_text(),
               hello_ ? "" : " at its start: is it a benchmark program?");
    unread_.append(text, static_cast<size_t>(size));
  }
}

/// The next line of JSON; other lines are output of libraries.
Json Side::answer(int seconds) {
  constexpr int kMaxOtherLines = 1000;
  for (int i = 0; i < kMaxOtherLines; ++i)
    if (const std::string line = read_line(seconds); line.starts_with('{')) {
      const Json found = parse_json_object(line, program_);
      if (found.contains("error"))
        throw RowError(program_ + ": " + (found["error"].is_string() ? found["error"].get<std::string>() : line));
      return found;
    }
  throw Error(program_ + ": is no benchmark program of this version of Tern: it prints other lines");
}

Json Side::ask(const std::string& line) {
  TERN_CHECK(pid_ > 0, program_, ": has ended");
  const std::string text = line + "\n";
  kill(-pid_, SIGCONT);
  TERN_CHECK(write(in_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), program_, ": ended with ",
             end_text());
  Json found = answer(kAnswerSeconds);
  kill(-pid_, SIGSTOP);
  return found;
}

Json Side::prepare(const std::string& row) {
  const Json found = ask("prepare " + row);
  TERN_CHECK(found.contains("work"), program_, ": expected the work of ", row, ", got ", shortened(found));
  return found["work"];
}

Sample Side::sample() {
  const Json found = ask("sample");
  const auto field = [&](const char* name) {
    return found.contains(name) && found[name].is_number() ? found[name].get<double>() : 0;
  };
  const Sample sample{field("items"), field(clock_ == Clock::kCpu ? "cpu_seconds" : "seconds"), field("cpu_seconds")};
  TERN_CHECK(sample.items > 0 && sample.seconds > 0 && std::isfinite(sample.per_item()), program_,
             ": expected a sample, got ", shortened(found));
  return sample;
}

}  // namespace tern::bench
