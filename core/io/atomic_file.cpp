#include "tern/core/io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "tern/core/check.h"
#include "tern/core/io/folders.h"

namespace tern {
namespace {

constexpr const char* kMark = ".tern-tmp-";
constexpr size_t kDigits = 16;

std::string random_digits() {
  std::random_device random;
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

/// A file descriptor that closes itself, and a temporary file that removes itself unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target) {
    do {
      name_ = target + kMark + random_digits();
      // Not mkostemp, whose files only their owner can read: the mode is what the umask and the folder make of 0666.
      descriptor_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    TERN_CHECK(descriptor_ >= 0, target_, ": cannot be written: ", std::strerror(errno));
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!kept_) unlink(name_.c_str());
  }

  void append(const void* data, size_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      // One write takes at most 2 GiB on Linux.
      const ssize_t written = ::write(descriptor_, next, std::min<size_t>(bytes, size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      TERN_CHECK(written > 0, target_, ": cannot be written: ", written < 0 ? std::strerror(errno) : "no progress");
      next += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void keep() {
    TERN_CHECK(fsync(descriptor_) == 0, target_, ": cannot be written: ", std::strerror(errno));
    const int descriptor = descriptor_;
    descriptor_ = -1;
    TERN_CHECK(close(descriptor) == 0, target_, ": cannot be written: ", std::strerror(errno));
    TERN_CHECK(std::rename(name_.c_str(), target_.c_str()) == 0, target_,
               ": cannot be replaced: ", std::strerror(errno));
    kept_ = true;
    sync_folder(std::filesystem::absolute(target_).parent_path().string());  // the new name
  }

 private:
  std::string target_, name_;
  int descriptor_ = -1;
  bool kept_ = false;
};

}  // namespace

bool is_unfinished_file(const std::string& name) {
  const size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark == 0) return false;
  const std::string digits = name.substr(mark + std::strlen(kMark));
  return digits.size() == kDigits && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void write_atomically(const std::string& path,
                      const std::function<void(const std::function<void(const void*, size_t)>& append)>& write) {
  TemporaryFile file(path);
  write([&](const void* data, size_t bytes) { file.append(data, bytes); });
  file.keep();
}

void write_atomically(const std::string& path, const std::string& text) {
  write_atomically(path, [&](const auto& append) { append(text.data(), text.size()); });
}

}  // namespace tern
