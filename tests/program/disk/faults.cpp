// Preloaded into the program under test to make its disk fail at a chosen moment. Calls that change or sync files in or
// below $TERN_FAULT_FOLDER are counted from 1. $TERN_FAULT selects the fault at call number N:
//
//   count:FILE      no fault; at the end FILE has a line per call: its kind, and the path in the folder
//   kill:N          the process dies as by SIGKILL, in a write after half of its bytes
//   crash:N         the machine dies: as kill, and everything not fsynced is lost (journal.h). With fewer calls than N
//                   it dies when the process has ended
//   crash:N:NAME    the same, but of names only those in folders called NAME are lost
//   full:N          from here on the disk is full: ENOSPC for bytes and new names
//   lock:ERROR      flock fails with this errno

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tern/tests/program/disk/journal.h"

namespace {

/// The C library's function of this name.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// True during calls made by this library itself.
thread_local bool own_calls = false;
struct OwnCalls {
  OwnCalls() { own_calls = true; }
  ~OwnCalls() { own_calls = false; }
};

class Disk {
 public:
  /// The outcome of a call.
  enum class Outcome { kPasses, kFull, kLast };

  static Disk& get() {
    static Disk* disk = new Disk;  // never destroyed: used until the process ends
    return *disk;
  }

  /// True for the folder and for paths below it.
  bool holds(const std::string& path) const {
    if (own_calls || folder_.empty()) return false;
    return path == folder_ || path.starts_with(folder_ + "/");
  }
  /// True for the parent of the folder.
  bool is_parent(const std::string& path) const {
    return !own_calls && !folder_.empty() && path == folder_.substr(0, folder_.rfind('/'));
  }

  Outcome next_call(const char* what, const std::string& path, bool needs_space) {
    ++calls_;
    if (mode_ == "count") log_ += what + (" " + path.substr(folder_.size())) + "\n";
    if (mode_ == "full") return needs_space && calls_ >= at_ ? Outcome::kFull : Outcome::kPasses;
    return (mode_ == "kill" || mode_ == "crash") && calls_ == at_ ? Outcome::kLast : Outcome::kPasses;
  }
  /// The errno of flock; 0: no fault.
  int lock_error() const { return mode_ == "lock" ? static_cast<int>(at_) : 0; }

  [[noreturn]] void die() {
    const OwnCalls own;
    if (mode_ == "crash") journal.lose(lost_);
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }

  std::recursive_mutex mutex;
  tern::program::Journal journal;

 private:
  Disk() {
    const char* folder = std::getenv("TERN_FAULT_FOLDER");
    const char* fault = std::getenv("TERN_FAULT");
    if (folder == nullptr || fault == nullptr) return;
    const std::string text = fault;
    mode_ = text.substr(0, text.find(':'));
    value_ = text.substr(text.find(':') + 1);
    at_ = std::atol(value_.c_str());
    if (const size_t colon = value_.find(':'); mode_ == "crash" && colon != std::string::npos)
      lost_ = value_.substr(colon + 1);
    folder_ = folder;
    if (mode_ == "crash") journal.keep_in(folder_ + "~kept");
    std::atexit([] { get().end(); });
  }

  void end() {
    const std::lock_guard lock(mutex);
    const OwnCalls own;
    if (mode_ == "crash") journal.lose(lost_);
    if (mode_ != "count") return;
    if (std::FILE* out = std::fopen(value_.c_str(), "w")) {
      std::fputs(log_.c_str(), out);
      std::fclose(out);
    }
  }

  std::string folder_, mode_, value_, lost_, log_;
  long at_ = 0, calls_ = 0;
};

std::string path_of(int descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored).string();
}

std::string absolute(const char* path) {
  std::error_code ignored;
  return std::filesystem::absolute(path, ignored).string();
}

/// A call that changes or syncs: it passes, fails or is the last one, of which `last` makes a part. Before it passes,
/// `note` is called.
template <class Call, class Note, class Last = decltype([] {})>
auto change(const char* what, const std::string& path, bool needs_space, const Call& call, const Note& note,
            const Last& last = {}) -> decltype(call()) {
  Disk& disk = Disk::get();
  const bool held = disk.holds(path);
  if (!held && !disk.is_parent(path)) return call();
  const std::lock_guard lock(disk.mutex);
  // The folder's parent may have other files: calls on them are not counted.
  switch (held ? disk.next_call(what, path, needs_space) : Disk::Outcome::kPasses) {
    case Disk::Outcome::kLast:
      last();
      disk.die();
    case Disk::Outcome::kFull:
      errno = ENOSPC;
      return -1;
    default: {
      const OwnCalls own;
      const size_t before = disk.journal.count();
      note(disk.journal);
      const auto result = call();
      if (result < 0) disk.journal.drop(before);
      return result;
    }
  }
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

template <class Sync>
int sync(const char* what, int descriptor, const Sync& real) {
  const std::string path = path_of(descriptor);
  const bool all = std::strcmp(what, "syncfs") == 0;
  return change(
      what, path, false, [&] { return real(descriptor); }, [&](auto& j) { all ? j.synced_all() : j.synced(path); });
}

template <class Remove>
int remove_name(const std::string& path, bool folder, const Remove& real) {
  if (!exists(path)) return real();
  return change("remove", path, false, real, [&](auto& j) { folder ? j.removes_folder(path) : j.removes_file(path); });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const std::string whole = absolute(path);
  if ((flags & O_CREAT) == 0 || !Disk::get().holds(whole) || exists(whole)) return real(path, flags, mode);
  return change(
      "create", whole, true, [&] { return real(path, flags, mode); }, [&](auto& j) { j.creates_file(whole); });
}

// The same functions on this platform.
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
std::FILE* fopen64(const char* path, const char* mode) __attribute__((alias("fopen")));

std::FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<std::FILE*(const char*, const char*)>("fopen");
  const std::string whole = absolute(path);
  if (mode[0] == 'r' || !Disk::get().holds(whole) || exists(whole)) return real(path, mode);
  std::FILE* file = nullptr;
  change(
      "create", whole, true,
      [&] {
        file = real(path, mode);
        return file != nullptr ? 0 : -1;
      },
      [&](auto& j) { j.creates_file(whole); });
  return file;
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const std::string path = path_of(descriptor);
  const auto note = [&](auto& j) { j.writes(path); };
  return change(
      "write", path, true, [&] { return real(descriptor, data, bytes); }, note,
      [&] {
        note(Disk::get().journal);
        (void)!real(descriptor, data, bytes / 2);
      });
}

// Behind the end of a file, as far as the journal is concerned.
ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t at) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const std::string path = path_of(descriptor);
  const auto note = [&](auto& j) { j.writes(path); };
  return change(
      "write", path, true, [&] { return real(descriptor, data, bytes, at); }, note,
      [&] {
        note(Disk::get().journal);
        (void)!real(descriptor, data, bytes / 2, at);
      });
}
ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off_t at) __attribute__((alias("pwrite")));

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

int fsync(int descriptor) { return sync("sync", descriptor, next<int(int)>("fsync")); }
int fdatasync(int descriptor) { return sync("sync", descriptor, next<int(int)>("fdatasync")); }
int syncfs(int descriptor) { return sync("syncfs", descriptor, next<int(int)>("syncfs")); }

int flock(int descriptor, int operation) {
  static auto* const real = next<int(int, int)>("flock");
  const int error = Disk::get().holds(path_of(descriptor)) ? Disk::get().lock_error() : 0;
  if (error == 0) return real(descriptor, operation);
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  static auto* const real = next<int(const char*, const char*)>("rename");
  const std::string whole_from = absolute(from), whole_to = absolute(to);
  return change(
      "rename", whole_to, true, [&] { return real(from, to); }, [&](auto& j) { j.renames(whole_from, whole_to); });
}

int symlink(const char* target, const char* path) {
  static auto* const real = next<int(const char*, const char*)>("symlink");
  const std::string whole = absolute(path);
  if (exists(whole)) return real(target, path);
  return change(
      "link", whole, true, [&] { return real(target, path); }, [&](auto& j) { j.creates_link(whole); });
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  const std::string whole = absolute(path);
  if (exists(whole)) return real(path, mode);
  return change(
      "mkdir", whole, true, [&] { return real(path, mode); }, [&](auto& j) { j.creates_folder(whole); });
}

int ftruncate(int descriptor, off_t length) {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return change(
      "cut", path_of(descriptor), false, [&] { return real(descriptor, length); }, [](auto&) {});
}

int unlink(const char* path) {
  static auto* const real = next<int(const char*)>("unlink");
  return remove_name(absolute(path), false, [&] { return real(path); });
}

int rmdir(const char* path) {
  static auto* const real = next<int(const char*)>("rmdir");
  return remove_name(absolute(path), true, [&] { return real(path); });
}

int remove(const char* path) {
  static auto* const real = next<int(const char*)>("remove");
  struct stat status {};
  const bool folder = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return remove_name(absolute(path), folder, [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  const std::string whole = folder == AT_FDCWD || path[0] == '/' ? absolute(path) : path_of(folder) + "/" + path;
  return remove_name(whole, (flags & AT_REMOVEDIR) != 0, [&] { return real(folder, path, flags); });
}

}  // extern "C"
