#include "tern/models/cli/run_folder.h"

#include <fcntl.h>
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

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  if (fs::exists(path, error)) {
    TERN_CHECK(fs::is_directory(path, error), path, ": exists and is not a folder; choose another --out");
    const bool used = fs::directory_iterator(path, error) != fs::directory_iterator();
    TERN_CHECK(!error, path, ": cannot be read: ", error.message());
    TERN_CHECK(!used, path, ": already holds files; choose another --out, nothing is overwritten");
  }
  created_ = fs::create_directories(path, error);
  TERN_CHECK(!error, path, ": cannot be created: ", error.message());
  metrics_ = open(file("metrics.jsonl").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (metrics_ >= 0) return;
  const int reason = errno;
  if (created_) fs::remove(path, error);
  fail(file("metrics.jsonl"), ": cannot be written: ", std::strerror(reason));
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
