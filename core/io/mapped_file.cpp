#include "tern/core/io/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tern/kernels/base/check.h"

namespace tern {

MappedFile::MappedFile(const std::string& path) : file_(path), bytes_(file_.bytes()) {
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

MappedFile::~MappedFile() {
  watch_.reset();
  if (data_) munmap(data_, bytes_);
}

}  // namespace tern
