#include "tern/data/files/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tern/core/io/folders.h"
#include "tern/data/files/file_lock.h"
#include "tern/data/files/sha256.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

PartialFile::PartialFile(const std::filesystem::path& path) : path_(path) { open_file(); }

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void PartialFile::open_file() {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  TERN_CHECK(descriptor_ >= 0, path_.string(), ": cannot be written: ", std::strerror(errno));
  struct stat status = {};
  TERN_CHECK(fstat(descriptor_, &status) == 0, path_.string(), ": cannot be read: ", std::strerror(errno));
  TERN_CHECK(S_ISREG(status.st_mode), path_.string(), " is no regular file; remove it");
  bytes_ = status.st_size;
}

void PartialFile::append(std::string_view piece) {
  while (!piece.empty()) {
    // By offset: another process that writes without a lock then writes the same bytes to the same offsets.
    const ssize_t written = pwrite(descriptor_, piece.data(), piece.size(), bytes_);
    if (written < 0 && errno == EINTR) continue;
    TERN_CHECK(written > 0, path_.string(), ": cannot be written: ", written < 0 ? std::strerror(errno) : "no progress",
               "; ", bytes_, " bytes are kept, and the next fetch continues behind them");
    piece.remove_prefix(static_cast<size_t>(written));
    bytes_ += written;
  }
}

void PartialFile::restart() {
  close(descriptor_);
  descriptor_ = -1;
  remove();
  open_file();
}

template <class Digest>
void PartialFile::read_into(Digest& digest) const {
  std::vector<char> buffer(size_t{1} << 20);
  for (int64_t at = 0; at < bytes_;) {
    const ssize_t count = pread(descriptor_, buffer.data(), buffer.size(), at);
    if (count < 0 && errno == EINTR) continue;
    TERN_CHECK(count >= 0, path_.string(), ": cannot be read: ", std::strerror(errno));
    if (count == 0) return;  // another process shortened it: the digest will differ
    digest.update(std::string_view(buffer.data(), static_cast<size_t>(count)));
    at += count;
  }
}

std::string PartialFile::sha256() const {
  Sha256 digest;
  read_into(digest);
  return digest.hex();
}

std::string PartialFile::sha1() const {
  Sha1 digest;
  read_into(digest);
  return digest.hex();
}

std::string PartialFile::git_sha1() const {
  Sha1 digest;
  const std::string head = "blob " + std::to_string(bytes_);
  digest.update(std::string_view(head.c_str(), head.size() + 1));  // with its zero byte
  read_into(digest);
  return digest.hex();
}

void PartialFile::finish(const std::filesystem::path& name) {
  TERN_CHECK(fsync(descriptor_) == 0, path_.string(), ": cannot be written: ", std::strerror(errno));
  std::error_code ignored;
  if (!is_named_by(descriptor_, path_)) {  // another process, without locks, fetched it too
    TERN_CHECK(std::filesystem::exists(name, ignored), path_.string(), ": another process replaced it; fetch again");
    return;
  }
  TERN_CHECK(std::rename(path_.c_str(), name.c_str()) == 0, name.string(),
             ": cannot be created: ", std::strerror(errno));
  sync_folder(name.parent_path().string());
}

void PartialFile::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void require_free_space(const std::filesystem::path& folder, int64_t bytes) {
  struct statvfs space = {};
  if (statvfs(folder.c_str(), &space) != 0) return;
  const double free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  TERN_CHECK(static_cast<double>(bytes) <= free, folder.string(), ": ", bytes, " bytes are needed and ",
             static_cast<int64_t>(free), " are free");
}

}  // namespace tern::data
