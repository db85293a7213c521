#include "tern/core/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tern/kernels/base/check.h"

namespace tern {
namespace {

/// Size and time of the last change, in nanoseconds; -1 where the file system does not say.
std::pair<int64_t, int64_t> stamp_of(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) return {-1, -1};
  return {status.st_size, int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

MappedFile::MappedFile(const std::string& path)
    : file_(path), bytes_(file_.bytes()), changed_at_(stamp_of(file_.descriptor()).second) {
  if (bytes_ == 0) return;
  void* const data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_.descriptor(), 0);
  TERN_CHECK(data != MAP_FAILED, path, ": cannot be mapped: ", std::strerror(errno));
  try {
    watch_ = std::make_unique<WatchedMapping>(path, file_.descriptor(), data, bytes_);
  } catch (...) {
    munmap(data, bytes_);
    throw;
  }
  data_ = data;
}

bool MappedFile::has_changed() const {
  return stamp_of(file_.descriptor()) != std::pair(static_cast<int64_t>(bytes_), changed_at_);
}

MappedFile::~MappedFile() {
  watch_.reset();
  if (data_) munmap(data_, bytes_);
}

}  // namespace tern
