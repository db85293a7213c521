#pragma once
// A whole file mapped to memory. The readers of weights return views of it, so that a file of any size takes memory
// only for the parts that are read.
//
// A file that is cut shorter while it is mapped (overwritten in place, for example) does not end the process. Lost data
// reads as zeros, and an Error that names the file is thrown:
//   * by the readers (load_safetensors, load_torch, load_pickle), which check the file when they are done;
//   * by functions that copy weights out of files: load_state() and save_safetensors();
//   * by every operation on tensors that begins after the loss, and by item() and to_vector(), as long as the file is
//     mapped, that is while a tensor of it exists. In any thread, because it is not known which one reads the file.
// Code that reads a tensor through its pointer must call check_lost_files() (core/memory/file_fault.h) afterwards. That
// header also describes the handler of SIGBUS and how it combines with one that the program installs.

#include <cstdint>
#include <memory>
#include <string>

#include "tern/core/io/input_file.h"
#include "tern/core/memory/file_fault.h"

namespace tern {

/// A private mapping: in-place changes of loaded data stay in this process. Errors, which name the file: cannot be
/// opened or mapped, not a regular file. An empty file has no data.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  uint64_t bytes() const { return bytes_; }
  /// Whether the file was written to since it was opened. One that took its place under its name is another file.
  bool has_changed() const;
  /// Throws Error unless all data read so far was the file's.
  void check() const {
    if (watch_) watch_->check();
  }

 private:
  InputFile file_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  int64_t changed_at_ = 0;  // nanoseconds
  std::unique_ptr<WatchedMapping> watch_;
};

}  // namespace tern
