#include "tern/core/io/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tern/core/check.h"
#include "tern/core/io/input_file.h"

namespace tern {

MappedFile::MappedFile(const std::string& path) {
  const InputFile file(path);
  bytes_ = file.bytes();
  if (bytes_ == 0) return;
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  TERN_CHECK(data_ != MAP_FAILED, path, ": cannot be mapped: ", std::strerror(errno));
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace tern
