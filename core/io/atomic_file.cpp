#include "tern/core/io/atomic_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/folders.h"
#include "tern/kernels/base/check.h"

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

/// Appends to an open file. Error: the name and the system's reason.
void write_all(int descriptor, const void* data, size_t bytes, const std::string& name) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    // One write takes at most 2 GiB on Linux.
    const ssize_t written = ::write(descriptor, next, std::min<size_t>(bytes, size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {  // another user of the stream made it non-blocking
      pollfd wait{descriptor, POLLOUT, 0};
      ::poll(&wait, 1, -1);
      continue;
    }
    TERN_CHECK(written > 0, name, ": cannot be written: ", written < 0 ? std::strerror(errno) : "no progress");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

/// Closes its file descriptor and removes its temporary file unless that was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target) {
    do {
      name_ = target + kMark + random_digits();
      // Not mkostemp, whose files only their owner can read: the mode follows from 0666, the umask and the folder.
      descriptor_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    TERN_CHECK(descriptor_ >= 0, target_, ": cannot be written: ", std::strerror(errno));
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!kept_) unlink(name_.c_str());
  }

  void append(const void* data, size_t bytes) { write_all(descriptor_, data, bytes, target_); }

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

/// A descriptor for a path that is written to in place: an open descriptor of the process, or /dev/null. -1 for a path
/// that is replaced by a regular file. Error: the path is of another kind and would be lost.
int open_stream(const std::string& path) {
  const int given = detail::descriptor_named(path);
  if (given < 0 && path != "/dev/null") {
    detail::refuse_to_write_other_kinds(path);
    return -1;
  }
  const int stream = given >= 0 ? fcntl(given, F_DUPFD_CLOEXEC, 3) : open("/dev/null", O_WRONLY | O_CLOEXEC);
  TERN_CHECK(stream >= 0, path, ": cannot be written: ", std::strerror(errno));
  return stream;
}

}  // namespace

bool is_unfinished_file(const std::string& name) {
  const size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark == 0) return false;
  const std::string digits = name.substr(mark + std::strlen(kMark));
  return digits.size() == kDigits && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void write_atomically(const std::string& path,
                      const std::function<void(const std::function<void(const void*, size_t)>& append)>& write) {
  if (const int stream = open_stream(path); stream >= 0) {
    const auto close_it = [](const int* descriptor) { close(*descriptor); };
    const std::unique_ptr<const int, decltype(close_it)> closer(&stream, close_it);
    write([&](const void* data, size_t bytes) { write_all(stream, data, bytes, path); });
    return;
  }
  TemporaryFile file(path);
  write([&](const void* data, size_t bytes) { file.append(data, bytes); });
  file.keep();
}

void write_atomically(const std::string& path, const std::string& text) {
  write_atomically(path, [&](const auto& append) { append(text.data(), text.size()); });
}

}  // namespace tern
