// Preloaded into the program under test: its disk fails at a chosen moment. Calls that change files below
// $TERN_FAULT_FOLDER are counted from 1; at call number N $TERN_FAULT says
//
//   count:FILE   nothing fails; at the end FILE holds the number of calls
//   kill:N       the process dies as by SIGKILL, in a write after half of its bytes
//   crash:N      the machine dies: as kill, and files whose bytes were not yet fsynced lose half of them
//   full:N       from here on the disk is full: ENOSPC for bytes and new names

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

/// The C library's function of that name.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

class Disk {
 public:
  /// What becomes of a call.
  enum class Fate { kPasses, kFull, kLast };

  static Disk& get() {
    static Disk* disk = new Disk;  // used until the very end
    return *disk;
  }

  bool holds(const std::string& path) const { return !folder_.empty() && path.starts_with(folder_); }

  Fate next_call(bool needs_space) {
    ++calls_;
    if (mode_ == "full") return needs_space && calls_ >= at_ ? Fate::kFull : Fate::kPasses;
    return mode_ != "count" && calls_ == at_ ? Fate::kLast : Fate::kPasses;
  }

  [[noreturn]] void die() {
    if (mode_ == "crash")
      for (const auto& [path, synced] : unsynced_)
        if (truncate(path.c_str(), synced + (size_of(path) - synced) / 2) != 0) continue;  // it is gone
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }

  /// Before the bytes are written.
  void writes(const std::string& path) { unsynced_.try_emplace(path, size_of(path)); }
  void synced(const std::string& path) { unsynced_.erase(path); }
  /// A file or a folder.
  void renamed(const std::string& from, const std::string& to) {
    std::map<std::string, off_t> after;
    for (const auto& [path, synced] : unsynced_) {
      const bool moved = path == from || path.starts_with(from + "/");
      after[moved ? to + path.substr(from.size()) : path] = synced;
    }
    unsynced_ = after;
  }

  std::recursive_mutex mutex;

 private:
  Disk() {
    const char* folder = std::getenv("TERN_FAULT_FOLDER");
    const char* fault = std::getenv("TERN_FAULT");
    if (folder == nullptr || fault == nullptr) return;
    const std::string text = fault;
    mode_ = text.substr(0, text.find(':'));
    const std::string value = text.substr(text.find(':') + 1);
    if (mode_ == "count") {
      static std::string file;
      file = value;
      std::atexit([] { get().write_count(file); });
    } else {
      at_ = std::atol(value.c_str());
    }
    folder_ = folder;
  }

  static off_t size_of(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? status.st_size : 0;
  }

  void write_count(const std::string& file) const {
    if (std::FILE* out = std::fopen(file.c_str(), "w")) {
      std::fprintf(out, "%ld\n", calls_);
      std::fclose(out);
    }
  }

  std::string folder_, mode_;
  long at_ = 0, calls_ = 0;
  std::map<std::string, off_t> unsynced_;  // files, and how many of their bytes are on the disk for certain
};

std::string path_of(int descriptor) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char here[PATH_MAX];
  return getcwd(here, sizeof here) != nullptr ? std::string(here) + "/" + path : path;
}

/// A call that changes names: passes, fails or is the last.
template <class Call>
int change(const std::string& path, bool needs_space, const Call& call) {
  Disk& disk = Disk::get();
  if (!disk.holds(path)) return call();
  const std::lock_guard lock(disk.mutex);
  switch (disk.next_call(needs_space)) {
    case Disk::Fate::kLast:
      disk.die();
    case Disk::Fate::kFull:
      errno = ENOSPC;
      return -1;
    default:
      return call();
  }
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  Disk& disk = Disk::get();
  const std::string path = path_of(descriptor);
  if (!disk.holds(path)) return real(descriptor, data, bytes);
  const std::lock_guard lock(disk.mutex);
  disk.writes(path);
  switch (disk.next_call(true)) {
    case Disk::Fate::kLast:
      if (real(descriptor, data, bytes / 2) >= 0) disk.die();
      disk.die();
    case Disk::Fate::kFull:
      errno = ENOSPC;
      return -1;
    default:
      return real(descriptor, data, bytes);
  }
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  ssize_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t written = write(descriptor, parts[i].iov_base, parts[i].iov_len);
    if (written < 0) return sum > 0 ? sum : written;
    sum += written;
    if (static_cast<size_t>(written) < parts[i].iov_len) break;
  }
  return sum;
}

int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  const std::string path = path_of(descriptor);
  return change(path, false, [&] {
    Disk::get().synced(path);
    return real(descriptor);
  });
}

int rename(const char* from, const char* to) {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return change(absolute(to), true, [&] {
    const int result = real(from, to);
    if (result == 0) Disk::get().renamed(absolute(from), absolute(to));
    return result;
  });
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return change(absolute(path), true, [&] { return real(path, mode); });
}

int ftruncate(int descriptor, off_t length) {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return change(path_of(descriptor), false, [&] { return real(descriptor, length); });
}

int unlink(const char* path) {
  static auto* const real = next<int(const char*)>("unlink");
  return change(absolute(path), false, [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  const std::string whole = folder == AT_FDCWD || path[0] == '/' ? absolute(path) : path_of(folder) + "/" + path;
  return change(whole, false, [&] { return real(folder, path, flags); });
}

}  // extern "C"
