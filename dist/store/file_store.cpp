#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tern/dist/store/store.h"

namespace tern::dist {
namespace {

namespace fs = std::filesystem;

/// Keeps letters, digits and a few others, escapes everything else as %41; long names are truncated and get a hash.
std::string file_name(const std::string& key) {
  constexpr size_t kLongest = 200;
  std::string name = "=";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::strchr("-_ ,()[]", c)) {
      name += c;
    } else {
      char text[8];
      std::snprintf(text, sizeof text, "%%%02x", byte);
      name += text;
    }
  }
  if (name.size() > kLongest) {
    char text[24];
    std::snprintf(text, sizeof text, "%%%016zx", std::hash<std::string>()(key));
    name = name.substr(0, kLongest) + text;
  }
  return name;
}

class FileStore final : public Store {
 public:
  explicit FileStore(fs::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    check_entry(key, value);
    write(path(key), value);
  }

  std::vector<std::optional<std::string>> wait(const std::vector<std::string>& keys, double seconds) override {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::vector<std::optional<std::string>> values(keys.size());
    auto pause = std::chrono::microseconds(500);
    for (;;) {
      bool all = true;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (!values[i]) values[i] = read(path(keys[i]));
        all = all && values[i];
      }
      if (all || Clock::now() >= end) return values;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(50'000));
    }
  }

  int64_t add(const std::string& key, int64_t amount) override {
    check_entry(key, "");
    const std::string lock_path = (folder_ / "%lock").string();
    const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    TERN_CHECK(lock >= 0, "store: ", lock_path, ": ", std::strerror(errno));
    struct Closer {
      int fd;
      ~Closer() { close(fd); }
    } closer{lock};
    TERN_CHECK(flock(lock, LOCK_EX) == 0, "store: ", lock_path, " cannot be locked: ", std::strerror(errno));
    int64_t sum = 0;
    if (const auto text = read(path(key))) std::from_chars(text->data(), text->data() + text->size(), sum);
    sum += amount;
    write(path(key), std::to_string(sum));
    return sum;
  }

  void erase(const std::string& key) override {
    std::error_code ignored;
    fs::remove(path(key), ignored);
  }
  std::unique_ptr<Store> another(double) override { return std::make_unique<FileStore>(folder_); }

 private:
  fs::path path(const std::string& key) const { return folder_ / file_name(key); }

  /// Atomic: readers see the whole value or none.
  static void write(const fs::path& path, const std::string& value) {
    std::string temporary = path.string() + "%XXXXXX";
    const int file = mkostemp(temporary.data(), O_CLOEXEC);
    TERN_CHECK(file >= 0, "store: ", temporary, " cannot be made: ", std::strerror(errno));
    const bool written = ::write(file, value.data(), value.size()) == static_cast<ssize_t>(value.size());
    const int error = errno;
    close(file);
    if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) {
      const int reason = written ? errno : error;
      unlink(temporary.c_str());
      fail("store: ", path.string(), " cannot be written: ", std::strerror(reason));
    }
  }

  static std::optional<std::string> read(const fs::path& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    std::string value;
    char buffer[4096];
    ssize_t n;
    while ((n = ::read(file, buffer, sizeof buffer)) > 0 && value.size() <= kMaxBytes)
      value.append(buffer, static_cast<size_t>(n));
    close(file);
    if (n < 0) return std::nullopt;
    return value;
  }

  fs::path folder_;
};

}  // namespace

std::unique_ptr<Store> open_file_store(const std::string& folder, const Member& member) {
  const fs::path path = fs::path(folder) / ("tern-job-" + file_name(member.job));
  std::error_code error;
  fs::create_directories(path, error);
  TERN_CHECK(!error, "store: the folder ", path.string(), " cannot be made: ", error.message());
  const fs::path mark = path / ("%rank-" + std::to_string(member.rank));
  const int file = open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  TERN_CHECK(file >= 0 || errno != EEXIST, "store: ", path.string(), " has rank ", member.rank,
             " already: either two processes have this rank, or the folder is left from an earlier job; give every job "
             "a separate folder");
  TERN_CHECK(file >= 0, "store: ", mark.string(), " cannot be made: ", std::strerror(errno));
  close(file);
  return std::make_unique<FileStore>(path);
}

}  // namespace tern::dist
