#pragma once
// A lock that processes share by a file.

#include <filesystem>
#include <functional>
#include <string>

namespace tern::data {

/// Holds the lock until its end, or the process's: flock(2) on the whole file, as Python's package filelock takes it.
/// The file stays. Waits as long as another process holds the lock, after one call of `on_wait`. Creates missing
/// folders. Error: the path and the system's reason.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait = {});
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// False on a file system without locks, where processes do not wait for one another.
  bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

/// True when the path still names the file of the descriptor, which another process may have removed or replaced.
bool is_named_by(int descriptor, const std::filesystem::path& path);

}  // namespace tern::data
