#include "tern/core/io/folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tern/kernels/base/check.h"

namespace tern {
namespace fs = std::filesystem;
namespace {

/// Opens a folder and calls sync(descriptor), which returns -1 and sets errno when it fails.
template <class Sync>
void sync_opened(const std::string& path, const Sync& sync) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return;
  TERN_CHECK(descriptor >= 0, path, ": cannot be opened: ", std::strerror(errno));
  const bool done = sync(descriptor) == 0;
  const int reason = errno;
  close(descriptor);
  const bool unsupported = reason == EINVAL || reason == ENOSYS || reason == ENOTSUP || reason == EROFS;
  TERN_CHECK(done || unsupported, path, ": cannot be written: ", std::strerror(reason));
}

}  // namespace

void sync_folder(const std::string& path) { sync_opened(path, fsync); }

void sync_file_system(const std::string& path) { sync_opened(path, syncfs); }

std::vector<std::string> create_folders(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> missing;
  fs::path folder = fs::absolute(path, error);
  if (!folder.has_filename()) folder = folder.parent_path();  // "runs/mine/"
  for (; !fs::exists(folder, error) && folder.has_relative_path(); folder = folder.parent_path())
    missing.push_back(folder);
  std::reverse(missing.begin(), missing.end());
  std::vector<std::string> created;
  for (const fs::path& next : missing) {
    const bool made = fs::create_directory(next, error);
    TERN_CHECK(!error, path, ": cannot be created: ", error.message());
    if (!made) continue;  // another process created it first
    created.push_back(next.string());
    sync_folder(next.parent_path().string());
  }
  TERN_CHECK(fs::is_directory(path, error), path, ": cannot be created: ", std::strerror(ENOTDIR));
  return created;
}

}  // namespace tern
