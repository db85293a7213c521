#include "tern/core/io/file_kind.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "tern/kernels/base/check.h"

namespace tern::detail {

const char* other_file_kind(mode_t mode) {
  return S_ISREG(mode)    ? nullptr
         : S_ISDIR(mode)  ? "a folder"
         : S_ISFIFO(mode) ? "a named pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

int descriptor_named(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int number = -1;
    const char* const end = path.data() + path.size();
    const auto [stop, error] = std::from_chars(path.data() + folder.size(), end, number);
    if (error == std::errc() && stop == end && number >= 0) return number;
  }
  return -1;
}

bool name_exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

void require_folder(const std::string& path, const std::string& advice) {
  struct stat status {};
  const int reason = ::stat(path.c_str(), &status) == 0 ? 0 : errno;
  TERN_CHECK(reason != ENOENT, path, ": no such folder; ", advice);
  TERN_CHECK(reason == 0, path, ": ", std::strerror(reason), "; ", advice);
  TERN_CHECK(S_ISDIR(status.st_mode), path, ": not a folder; ", advice);
}

void refuse_to_write_other_kinds(const std::string& path) {
  struct stat status {};
  const char* const other = ::stat(path.c_str(), &status) == 0 ? other_file_kind(status.st_mode) : nullptr;
  TERN_CHECK(!other, path, ": cannot be written: not a regular file but ", other);
}

}  // namespace tern::detail
