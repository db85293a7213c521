#pragma once
// Runs the built program like a user: as a process, with its streams and exit status.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tern/tests/places.h"
#include "tern/tests/support/sanitizer.h"
#include "tern/tests/support/temporary_folder.h"
#include "tern/tests/support/text.h"

namespace tern::program {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::has;

inline const std::string kGolden = test::source_dir() + "/tests/golden/";
inline const std::string kCurve = kGolden + "train_curve";  // a small model, and the texts it was trained on
inline const std::string kProgram = test::program_path(TERN_PROGRAM);

/// Whether the program can be started as several processes.
inline bool has_mpi() {
  return system("command -v mpirun >/dev/null") == 0 &&
         fs::exists(fs::path(kProgram).parent_path() / "../lib/libtern_mpi.so");
}

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  ASSERT_TRUE(file.flush()) << path;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> values;
  for (const std::string& line : lines_of(text)) values.push_back(Json::parse(line));
  return values;
}

/// The words of a command line: a list, or a text that is cut at its spaces.
struct Words : std::vector<std::string> {
  using std::vector<std::string>::vector;
  Words(std::vector<std::string> list) : vector(std::move(list)) {}
  Words(const char* text) : Words(std::string(text)) {}
  Words(const std::string& text) {
    std::istringstream in(text);
    for (std::string word; in >> word;) push_back(word);
  }
};

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// `more` after those of `defaults`, flags with one value each, that it does not replace.
inline Words with_defaults(const Words& defaults, const Words& more) {
  Words all;
  for (size_t i = 0; i < defaults.size(); i += 2)
    if (std::find(more.begin(), more.end(), defaults[i]) == more.end()) all = all + Words{defaults[i], defaults[i + 1]};
  return all + more;
}

struct Result {
  int status = -1;  // exit status; 1000 + n if killed by signal n, 2000 on timeout
  std::string out, err;
  long peak_kib = 0;
};

struct Setting {
  std::string input = {};
  std::function<void()> in_child = {};  // sets limits or another user
  int seconds = 60;                     // multiplied by test::kPatience
};

/// Runs the program, which is started by root, as a user without rights.
inline Setting as_another_user() {
  return {.in_child = [] {
    constexpr uid_t kNobody = 65534;
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(125);
  }};
}

/// A started program; the destructor kills it.
class Process {
 public:
  Process(const Words& arguments, const fs::path& folder, const Setting& setting = {})
      : input_(setting.input), end_(Clock::now() + std::chrono::seconds(test::kPatience * setting.seconds)) {
    int in[2], out[2], err[2];
    EXPECT_TRUE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    signal(SIGPIPE, SIG_IGN);
    std::vector<char*> argv = {const_cast<char*>("tern")};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    const std::string where = folder.string(), cache = (folder / "cache").string();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      signal(SIGPIPE, SIG_DFL);
      unsetenv("TERN_DATA");
      setenv("HF_HUB_OFFLINE", "1", 1);  // a name that is no path is looked for in the cache alone
      setenv("XDG_CACHE_HOME", cache.c_str(), 1);
      for (const char* name : {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) unsetenv(name);
      if (chdir(where.c_str()) != 0) _exit(126);
      if (setting.in_child) setting.in_child();
      execv(kProgram.c_str(), argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
    for (int fd : {in_, out_, err_}) fcntl(fd, F_SETFL, O_NONBLOCK);
    if (input_.empty()) close_input();
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (int fd : {in_, out_, err_})
      if (fd >= 0) close(fd);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int number) { kill(pid_, number); }
  pid_t id() const { return pid_; }
  /// Waits until the program has a handler for the signal, without which the signal would end it; false on timeout.
  bool wait_until_it_handles(int number) const {
    for (; Clock::now() < end_ && !has_ended(); usleep(5000)) {
      std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
      for (std::string line; std::getline(file, line);)
        if (line.starts_with("SigCgt:") && (std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0)
          return true;
    }
    return false;
  }
  bool has_ended() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT | WNOHANG) != 0 || ended.si_pid != 0;
  }
  void close_input() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  void close_output() {
    close(out_);
    out_ = -1;
  }
  /// Waits until stderr contains `text`; false if the program ends before, or on timeout.
  bool wait_for(const std::string& text) {
    while (result_.err.find(text) == std::string::npos)
      if (!exchange()) return false;
    return true;
  }
  Result finish() {
    while (exchange()) continue;
    const bool late = Clock::now() >= end_;
    if (late) kill(pid_, SIGKILL);
    int status = 0;
    rusage usage{};
    wait4(pid_, &status, 0, &usage);
    pid_ = -1;
    result_.peak_kib = usage.ru_maxrss;
    result_.status = late ? 2000 : WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Transfers available pipe data; false if both outputs are closed or on timeout.
  bool exchange() {
    if ((out_ < 0 && err_ < 0) || Clock::now() >= end_) return false;
    pollfd fds[3] = {{in_, POLLOUT, 0}, {out_, POLLIN, 0}, {err_, POLLIN, 0}};
    poll(fds, 3, 100);
    if (in_ >= 0 && fds[0].revents != 0) {
      const ssize_t n = write(in_, input_.data() + sent_, std::min<size_t>(input_.size() - sent_, 1 << 16));
      if (n > 0) sent_ += static_cast<size_t>(n);
      if ((n < 0 && errno != EAGAIN) || sent_ == input_.size()) close_input();
    }
    if (out_ >= 0 && fds[1].revents != 0) receive(out_, result_.out);
    if (err_ >= 0 && fds[2].revents != 0) receive(err_, result_.err);
    return true;
  }
  static void receive(int& fd, std::string& text) {
    char buffer[1 << 16];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n > 0)
      text.append(buffer, static_cast<size_t>(n));
    else if (n == 0 || errno != EAGAIN) {
      close(fd);
      fd = -1;
    }
  }

  std::string input_;
  size_t sent_ = 0;
  Clock::time_point end_;
  Result result_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
};

/// Creates a new folder for each test, in which the programs run; "curve" in it is a link to kCurve.
class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    fs::permissions(folder_, fs::perms(0755));
    fs::create_directory_symlink(kCurve, file("curve"));
  }

  // Files, by their names in the folder.
  fs::path file(const std::string& name) const { return folder_ / name; }
  bool exists(const std::string& name) const { return fs::exists(file(name)); }
  std::string read(const std::string& name) const { return read_text(file(name)); }
  Json json(const std::string& name) const { return Json::parse(read(name)); }
  void write(const std::string& name, const std::string& text) const { write_text(file(name), text); }
  /// Replaces a file or folder by a copy of another.
  void copy(const std::string& from, const std::string& to) const {
    fs::remove_all(file(to));
    fs::copy(file(from), file(to), fs::copy_options::recursive);
  }
  /// Sorted names in a folder.
  std::vector<std::string> names_in(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(file(name))) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  /// The same, joined by spaces.
  std::string listing(const std::string& name) const {
    std::string text;
    for (const std::string& n : names_in(name)) text += (text.empty() ? "" : " ") + n;
    return text;
  }

  // Files of a run.
  std::string weights(const std::string& run) const { return read(run + "/model.safetensors"); }
  Json options_of(const std::string& run) const { return json(run + "/run.json")["options"]; }
  std::vector<Json> metrics(const std::string& run) const { return json_lines(read(run + "/metrics.jsonl")); }
  /// The lines of steps among the metrics.
  std::vector<Json> steps(const std::string& run) const {
    std::vector<Json> lines = metrics(run);
    std::erase_if(lines, [](const Json& line) { return !line.contains("step"); });
    return lines;
  }

  Result tern(const Words& arguments, const Setting& setting = {}) const {
    return Process(arguments, folder_, setting).finish();
  }
  Result tern(const Words& arguments, const std::string& input) const {
    return tern(arguments, Setting{.input = input});
  }
  /// Expects the exit status 0.
  template <class... More>
  Result succeeds(const Words& arguments, const More&... more) const {
    const Result result = tern(arguments, more...);
    EXPECT_EQ(result.status, 0) << testing::PrintToString(arguments) << ": " << result.err;
    return result;
  }
  /// The JSON text that a command writes to stdout.
  template <class... More>
  Json answer(const Words& arguments, const More&... more) const {
    return Json::parse(succeeds(arguments, more...).out);
  }
  /// Sends the signal as soon as stderr contains `text`.
  Result interrupted(const Words& arguments, const std::string& text, int number, const Setting& setting = {}) const {
    Process process(arguments, folder_, setting);
    EXPECT_TRUE(process.wait_for(text)) << text;
    process.send(number);
    return process.finish();
  }

 private:
  const test::TemporaryFolder temporary_;

 protected:
  const fs::path folder_ = temporary_.path();
};

inline constexpr const char* kRunFiles =
    "config.json metrics.jsonl model.safetensors run.json tokenizer_config.json vocab.txt";

/// Expects the exit status, exactly one line "tern: error: ..." (the last) with all of `parts`, and an empty stdout.
inline void expect_error(const Result& result, int status, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_FALSE(lines.empty());
  int errors = 0;
  for (const std::string& line : lines) errors += line.find("tern: error: ") != std::string::npos;
  EXPECT_EQ(errors, 1) << result.err;
  EXPECT_TRUE(lines.back().starts_with("tern: error: ")) << result.err;
  for (const std::string& part : parts) EXPECT_TRUE(has(lines.back(), part));
}

/// `rows` texts with two labels; one word determines the label.
inline std::string easy_csv(int rows) {
  const char* filler[] = {"the movie", "a film with a plot", "acting", "story of the year",
                          "it was",    "scene after scene"};
  std::string text = "label,text\n";
  for (int i = 0; i < rows; ++i) {
    text += i % 2 == 0 ? "neg," : "pos,";
    for (int j = 0; j <= i % 7; ++j) text += std::string(filler[(i * 5 + j * 3) % 6]) + " ";
    text += i % 2 == 0 ? "awful\n" : "great\n";
  }
  return text;
}

}  // namespace tern::program
