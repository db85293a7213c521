#include "tern/models/cli/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tern/core/allocator.h"
#include "tern/core/check.h"
#include "tern/core/io/atomic_file.h"

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
  for (int i = 2; fs::exists(path); ++i) path = base + "-" + std::to_string(i);
  return path;
}

namespace {

/// Of write_atomically: NAME.tmp-XXXXXX.
bool is_temporary(const std::string& name) {
  constexpr size_t kRandom = 6;
  const std::string end = ".tmp-";
  return name.size() > end.size() + kRandom && name.compare(name.size() - kRandom - end.size(), end.size(), end) == 0;
}

}  // namespace

RunFolder::RunFolder(const std::string& path, Mode mode) : path_(path), kept_(mode == Mode::kResume) {
  std::error_code error;
  if (fs::exists(path, error)) {
    TERN_CHECK(fs::is_directory(path, error), path, ": exists and is not a folder; choose another --out");
    const bool used = fs::directory_iterator(path, error) != fs::directory_iterator();
    TERN_CHECK(!error, path, ": cannot be read: ", error.message());
    TERN_CHECK(
        !used || mode == Mode::kResume, path,
        ": already holds files; choose another --out, nothing is overwritten (--resume auto goes on with the run "
        "that is in it)");
  }
  created_ = fs::create_directories(path, error);
  TERN_CHECK(!error, path, ": cannot be created: ", error.message());
  const int flags = mode == Mode::kNew ? O_CREAT | O_EXCL : O_CREAT;
  metrics_ = open(file("metrics.jsonl").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
  if (metrics_ < 0) {
    const int reason = errno;
    if (created_) fs::remove(path, error);
    fail(file("metrics.jsonl"), ": cannot be written: ", std::strerror(reason));
  }
  // Held until the process ends, however it ends.
  if (flock(metrics_, LOCK_EX | LOCK_NB) != 0) {
    close(metrics_);
    fail(path, ": another process is training in this folder; wait for it, or choose another --out");
  }
  metrics_bytes_ = static_cast<int64_t>(lseek(metrics_, 0, SEEK_END));
  for (const auto& entry : fs::directory_iterator(path, error))
    if (is_temporary(entry.path().filename().string())) fs::remove(entry.path(), error);
}

bool RunFolder::is_blank() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (entry.path().filename() != "metrics.jsonl") return false;
  return !error && metrics_bytes_ == 0;
}

void RunFolder::sync_metrics() const {
  TERN_CHECK(fsync(metrics_) == 0, file("metrics.jsonl"), ": cannot be written: ", std::strerror(errno));
}

void RunFolder::cut_metrics(int64_t bytes) {
  TERN_CHECK(bytes >= 0 && bytes <= metrics_bytes_, file("metrics.jsonl"), ": has ", metrics_bytes_,
             " bytes, fewer than the ", bytes, " it had at the checkpoint; it was changed since");
  TERN_CHECK(ftruncate(metrics_, bytes) == 0, file("metrics.jsonl"), ": cannot be written: ", std::strerror(errno));
  metrics_bytes_ = bytes;
}

Json RunFolder::read_record(const std::string& path) {
  const std::string name = (fs::path(path) / "run.json").string();
  std::ifstream file(name);
  TERN_CHECK(file, name, ": cannot be opened: ", std::strerror(errno), "; is ", path, " the folder of a run?");
  const Json record = Json::parse(file, nullptr, false);
  TERN_CHECK(record.is_object() && record.contains("options") && record["options"].is_object(), name,
             ": is not the record of a run");
  return record;
}

RunFolder::~RunFolder() {
  close(metrics_);
  if (kept_) return;
  std::error_code ignored;
  for (const char* name : {"metrics.jsonl", "run.json"}) fs::remove(file(name), ignored);
  if (created_) fs::remove(path_, ignored);
}

std::string RunFolder::file(const std::string& name) const { return (fs::path(path_) / name).string(); }

void RunFolder::write_record(const Json& record) const {
  write_atomically(file("run.json"), record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunFolder::append_metrics(const Json& line) {
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
