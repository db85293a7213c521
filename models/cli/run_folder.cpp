#include "tern/models/cli/run_folder.h"

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
  fs::create_directories(path, error);
  TERN_CHECK(!error, path, ": cannot be created: ", error.message());
  metrics_ = std::fopen(file("metrics.jsonl").c_str(), "wxe");
  TERN_CHECK(metrics_, file("metrics.jsonl"), ": cannot be written: ", std::strerror(errno));
}

RunFolder::~RunFolder() {
  if (metrics_) std::fclose(metrics_);
}

std::string RunFolder::file(const std::string& name) const { return (fs::path(path_) / name).string(); }

void RunFolder::write_record(const Json& record) const {
  write_atomically(file("run.json"), record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunFolder::append_metrics(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), metrics_) == text.size() && std::fflush(metrics_) == 0;
  TERN_CHECK(written, file("metrics.jsonl"), ": cannot be written: ", std::strerror(errno));
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
