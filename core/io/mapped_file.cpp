#include "tern/core/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tern/core/check.h"

namespace tern {

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  TERN_CHECK(descriptor >= 0, path, ": cannot be opened: ", std::strerror(errno));
  struct stat info {};
  const bool regular = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  bytes_ = regular ? static_cast<uint64_t>(info.st_size) : 0;
  if (bytes_ > 0) data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  close(descriptor);
  TERN_CHECK(regular, path, ": not a regular file");
  TERN_CHECK(data_ != MAP_FAILED, path, ": cannot be mapped: ", std::strerror(error));
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace tern
