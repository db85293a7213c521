#include "tern/data/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tern/core/io/folders.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

bool is_named_by(int descriptor, const std::filesystem::path& path) {
  struct stat opened = {}, named = {};
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait) {
  if (path.has_parent_path()) create_folders(path.parent_path().string());
  bool reported = false;
  for (;;) {
    // Everyone who shares the folder may have to wait for the lock.
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
    TERN_CHECK(descriptor_ >= 0, path.string(), ": cannot be written: ", std::strerror(errno));
    int result = 0;
    while ((result = flock(descriptor_, reported ? LOCK_EX : LOCK_EX | LOCK_NB)) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) break;
      if (on_wait) on_wait();
      reported = true;
    }
    if (result != 0) return;                 // a file system without locks
    held_ = is_named_by(descriptor_, path);  // some programs remove a lock's file when they release it
    if (held_) return;
    close(descriptor_);
  }
}

FileLock::~FileLock() { close(descriptor_); }

}  // namespace tern::data
