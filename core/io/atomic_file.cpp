#include "tern/core/io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tern/core/check.h"

namespace tern {
namespace {

/// A file descriptor that closes itself, and a temporary file that removes itself unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target), name_(target + ".tmp-XXXXXX") {
    descriptor_ = mkostemp(name_.data(), O_CLOEXEC);
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
    // mkostemp makes files that only their owner can read.
    fchmod(descriptor_, 0644);
    TERN_CHECK(fsync(descriptor_) == 0, target_, ": cannot be written: ", std::strerror(errno));
    const int descriptor = descriptor_;
    descriptor_ = -1;
    TERN_CHECK(close(descriptor) == 0, target_, ": cannot be written: ", std::strerror(errno));
    TERN_CHECK(std::rename(name_.c_str(), target_.c_str()) == 0, target_,
               ": cannot be replaced: ", std::strerror(errno));
    kept_ = true;
    sync_folder();
  }

 private:
  /// The rename itself must reach the disk; a file system that cannot do it keeps its own promise.
  void sync_folder() const {
    const std::string folder = std::filesystem::absolute(target_).parent_path().string();
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
  }

  std::string target_, name_;
  int descriptor_ = -1;
  bool kept_ = false;
};

}  // namespace

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
