#include "tern/models/cli/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/json.h"
#include "tern/core/memory/allocator.h"
#include "tern/kernels/base/check.h"

namespace fs = std::filesystem;

namespace tern::cli {

std::string default_run_folder(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char date[32];
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", &local);
  const std::string base = "runs/" + name + "-" + date;
  std::string path = base;
  std::error_code error;
  for (int i = 2; fs::exists(path, error); ++i) path = base + "-" + std::to_string(i);
  return path;
}

namespace {

/// True for a folder in which a run ended before it wrote anything.
bool holds_nothing(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    const bool empty_metrics =
        name == "metrics.jsonl" && entry.is_regular_file(ignored) && entry.file_size(ignored) == 0;
    if (!empty_metrics && !is_unfinished_file(name)) return false;
  }
  return !error;
}

/// Throws Error unless a run can take place in this folder.
void check_folder(const std::string& path, RunFolder::Mode mode) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  TERN_CHECK(fs::is_directory(path, error), path, ": exists and is not a folder; choose another --out");
  const bool used = fs::directory_iterator(path, error) != fs::directory_iterator();
  TERN_CHECK(!error, path, ": cannot be read: ", error.message());
  if (!used) return;
  TERN_CHECK(
      mode == RunFolder::Mode::kResume, path,
      ": already holds files; choose another --out, nothing is overwritten (--resume auto continues the run that is "
      "in it)");
  if (!holds_nothing(path)) RunFolder::read_record(path);
}

std::string random_id() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

/// The integer of that name in a line of metrics.jsonl.
std::optional<int64_t> number_in(const Json& line, const char* name) {
  return line.is_object() && line.contains(name) ? integer_in(line[name]) : std::nullopt;
}

/// True for a line that a run has written when it gets to the position.
bool lies_before(const Json& line, const models::TrainPosition& position) {
  const auto at_most = [&](const char* name, int64_t limit) {
    const std::optional<int64_t> number = number_in(line, name);
    return number && *number <= limit;
  };
  return at_most("step", position.step) || at_most("epoch", position.epoch + (position.validated ? 1 : 0));
}

}  // namespace

RunFolder::RunFolder(const std::string& path, Mode mode, const std::function<void(const std::string&)>& log)
    : path_(path), kept_(mode == Mode::kResume) {
  check_folder(path, mode);
  created_ = create_folders(path);
  try {
    directory_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    open_metrics(mode);
    lock(log);
    // Another process may have removed or replaced the folder before the lock was taken.
    struct stat status {};
    stable_ = true;
    const bool own = is_own();
    TERN_CHECK(own || (fstat(metrics_, &status) == 0 && status.st_nlink > 0), path,
               ": was removed while the run opened it; start it again");
    stable_ = own;
    const bool recorded = mode == Mode::kResume && fs::exists(file("run.json"));
    const Json record = recorded ? read_record(path) : Json::object();
    id_ = record.contains("id") && record["id"].is_string() ? record["id"].get<std::string>() : random_id();
  } catch (const Error&) {
    if (directory_ >= 0) close(directory_);
    if (metrics_ >= 0) close(metrics_);
    if (metrics_ >= 0 && mode == Mode::kNew) unlink(file("metrics.jsonl").c_str());
    remove_created();
    throw;
  }
  // Again, now that no other process can write here.
  blank_ = holds_nothing(path);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (is_unfinished_file(entry.path().filename().string()) && entry.is_regular_file(ignored))
      fs::remove(entry.path(), ignored);
}

void RunFolder::open_metrics(Mode mode) {
  // O_NONBLOCK: opening a named pipe must not wait for a reader.
  const int flags = mode == Mode::kNew ? O_CREAT | O_EXCL : O_CREAT;
  metrics_ = open(file("metrics.jsonl").c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  TERN_CHECK(metrics_ >= 0, file("metrics.jsonl"), ": cannot be written: ", std::strerror(errno));
  struct stat status {};
  TERN_CHECK(fstat(metrics_, &status) == 0 && S_ISREG(status.st_mode), file("metrics.jsonl"),
             ": is not a regular file");
  metrics_bytes_ = static_cast<int64_t>(status.st_size);
}

/// Held until the process ends, however it ends.
void RunFolder::lock(const std::function<void(const std::string&)>& log) const {
  while (flock(metrics_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    TERN_CHECK(errno != EWOULDBLOCK, path_,
               ": another process is training in this folder; wait for it, or choose another --out");
    // NFS without its lock service, some FUSE file systems. A lock is only a guard against a mistake: training
    // continues.
    const bool unsupported = errno == ENOLCK || errno == ENOSYS || errno == ENOTSUP || errno == EINVAL;
    TERN_CHECK(unsupported, file("metrics.jsonl"), ": cannot be locked: ", std::strerror(errno));
    log(path_ + ": its file system has no locks (" + std::strerror(errno) +
        "); make sure that no other process trains in this folder");
    return;
  }
}

void RunFolder::sync_metrics() const {
  TERN_CHECK(fsync(metrics_) == 0, file("metrics.jsonl"), ": cannot be written: ", std::strerror(errno));
}

std::string RunFolder::problem(bool with_id) const {
  const auto same = [&](const std::string& path, int descriptor) {
    struct stat now {
    }, mine{};
    if (stat(path.c_str(), &now) != 0 || fstat(descriptor, &mine) != 0) return false;
    return !stable_ || (now.st_dev == mine.st_dev && now.st_ino == mine.st_ino);
  };
  struct stat ignored {};
  if (stat(path_.c_str(), &ignored) != 0) return "it is gone";
  if (directory_ >= 0 && !same(path_, directory_)) return "another folder is there";
  if (!same(file("metrics.jsonl"), metrics_)) return "its metrics.jsonl is gone or was replaced";
  if (!with_id || !recorded_) return "";
  try {
    const Json record(read_json_object(file("run.json")));
    return record.contains("id") && record["id"] == id_ ? "" : "its run.json is that of another run";
  } catch (const Error& error) {
    return error.what();
  }
}

void RunFolder::fail_lost(const std::string& why) const {
  fail(path_, ": is not the folder of this run any more: ", why,
       "; it was removed, moved or replaced during the run, which ends without writing there");
}

void RunFolder::check_own() const {
  if (const std::string why = problem(true); !why.empty()) fail_lost(why);
}

void RunFolder::write_model(const std::function<void(const std::string& dir)>& save) const {
  check_own();
  const auto began = fs::file_time_type::clock::now() - std::chrono::seconds(1);  // file systems round times
  try {
    save(path_);
    if (is_own()) return;
  } catch (const Error&) {
    if (is_own()) throw;
  }
  const std::string why = problem(true);
  // The folder, whole a moment ago, was removed meanwhile, and the files written since may have made it again.
  std::error_code error;
  if (!fs::exists(file("run.json"), error) && !fs::exists(file("metrics.jsonl"), error)) {
    std::vector<fs::path> written;
    for (const auto& entry : fs::directory_iterator(path_, error))
      if (entry.is_regular_file(error) && entry.last_write_time(error) >= began) written.push_back(entry.path());
    for (const fs::path& path : written) fs::remove(path, error);
    fs::remove(path_, error);  // if it is empty
  }
  fail_lost(why);
}

std::string RunFolder::read_metrics() const {
  std::string text(static_cast<size_t>(metrics_bytes_), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = pread(metrics_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    TERN_CHECK(got > 0, file("metrics.jsonl"), ": cannot be read: ", got < 0 ? std::strerror(errno) : "it was cut");
    done += static_cast<size_t>(got);
  }
  return text;
}

std::optional<Json> RunFolder::results() const {
  const std::string text = read_metrics();
  if (!text.ends_with('\n')) return std::nullopt;
  const size_t before = text.rfind('\n', text.size() - 2),
               begin = text.size() < 2 || before == text.npos ? 0 : before + 1;
  try {
    Json line(parse_json(std::string_view(text).substr(begin), file("metrics.jsonl")));
    if (line.is_object() && line.contains("train_seconds")) return line;
  } catch (const Error&) {
  }
  return std::nullopt;
}

RunFolder::Cut RunFolder::cut_metrics(const models::TrainPosition& position) {
  const std::string text = read_metrics();
  const auto begin_of_line = [&](size_t end) { return end < 2 ? 0 : text.rfind('\n', end - 2) + 1; };
  const auto line_before = [&](size_t end) {
    const size_t begin = begin_of_line(end);
    try {
      return Json(parse_json(std::string_view(text).substr(begin, end - begin), file("metrics.jsonl")));
    } catch (const Error&) {
      return Json(Json::value_t::discarded);
    }
  };
  size_t end = text.rfind('\n') + 1;  // 0 when there is none
  Cut cut;
  cut.removed_lines = end < text.size() ? 1 : 0;
  for (; end > 0 && !lies_before(line_before(end), position); end = begin_of_line(end)) ++cut.removed_lines;
  for (size_t at = end; at > 0 && cut.last_step == 0; at = begin_of_line(at)) {
    cut.last_step = number_in(line_before(at), "step").value_or(0);
  }
  TERN_CHECK(ftruncate(metrics_, static_cast<off_t>(end)) == 0, file("metrics.jsonl"),
             ": cannot be written: ", std::strerror(errno));
  metrics_bytes_ = static_cast<int64_t>(end);
  return cut;
}

Json RunFolder::read_record(const std::string& path) {
  const std::string name = (fs::path(path) / "run.json").string();
  std::error_code error;
  TERN_CHECK(fs::exists(name, error), "cannot open ", name, ": ", error ? error.message() : "No such file or directory",
             "; is ", path, " the folder of a run?");
  const Json record(read_json_object(name));
  TERN_CHECK(record.contains("options") && record["options"].is_object(), name, ": is not the record of a run");
  const auto check = [&](const Json& object, const char* field, bool good) {
    TERN_CHECK(!object.contains(field) || good, name, ": \"", field, "\" is ", shortened(object[field]));
  };
  const Json& options = record["options"];
  for (const char* field : {"accumulate", "processes"}) {
    const int64_t count = options.contains(field) ? integer_in(options[field]).value_or(0) : 1;
    check(options, field, count >= 1 && count <= 1'000'000);
  }
  check(record, "folder", record.contains("folder") && record["folder"].is_string());
  return record;
}

RunFolder::~RunFolder() {
  const bool own = is_own();
  if (directory_ >= 0) close(directory_);
  close(metrics_);
  if (kept_ || !own) return;
  std::error_code ignored;
  for (const char* name : {"metrics.jsonl", "run.json"}) fs::remove(file(name), ignored);
  remove_created();
}

void RunFolder::remove_created() const {
  std::error_code ignored;  // of folders into which something else was put meanwhile
  for (auto folder = created_.rbegin(); folder != created_.rend(); ++folder) fs::remove(*folder, ignored);
}

std::string RunFolder::file(const std::string& name) const { return (fs::path(path_) / name).string(); }

void RunFolder::write_record(Json record) {
  check_own();
  record["id"] = id_;
  write_atomically(file("run.json"), record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  recorded_ = true;
}

void RunFolder::append_metrics(const Json& line) {
  if (const std::string why = problem(false); !why.empty()) fail_lost(why);
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(metrics_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  if (done < text.size()) {
    const int reason = errno;
    const bool whole = ftruncate(metrics_, metrics_bytes_) == 0;
    fail(file("metrics.jsonl"), ": cannot be written: ", std::strerror(reason),
         whole ? "" : "; its last line is damaged");
  }
  metrics_bytes_ += static_cast<int64_t>(text.size());
  kept_ = true;
}

Json machine_record() {
  Json machine;
  utsname names{};
  if (uname(&names) == 0) machine["system"] = std::string(names.sysname) + " " + names.release + " " + names.machine;
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    if (!line.starts_with("model name")) continue;
    machine["cpu"] = line.substr(line.find(':') + 2);
    break;
  }
  machine["cpu_level"] = kernels::name_of(kernels::cpu_level());
  machine["threads"] = kernels::num_threads();
  machine["memory_bytes"] = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return machine;
}

}  // namespace tern::cli
