#pragma once
// A whole file in memory, mapped and not read: what the readers of weights hand out views of.

#include <cstdint>
#include <string>

namespace tern {

/// A private mapping: in-place changes of what was loaded stay in this process. Errors: cannot be opened or mapped, not
/// a regular file; they name the file. An empty file has no data.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  uint64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tern
