#pragma once
// A whole file in memory, mapped and not read: what the readers of weights hand out views of, so that a file of any
// size costs memory only for what is looked at.
//
// A file that is cut shorter while it is mapped (written again in place, say) does not end the process. What can no
// longer be read reads as zeros, and is an Error that names the file:
//   * of the readers themselves (load_safetensors, load_torch, load_pickle), which check the file when they are done;
//   * of what copies weights out of files: load_state() and save_safetensors();
//   * of every operation on tensors that begins after the loss, and of item() and to_vector(), for as long as the file
//     is mapped, that is while a tensor of it lives. In any thread: which one reads the file is not known.
// Code that reads a tensor through its pointer has to call check_lost_files() (core/file_fault.h) afterwards. The
// handler of SIGBUS behind this, and how it combines with one that the program installs, is described there.

#include <cstdint>
#include <memory>
#include <string>

#include "tern/core/file_fault.h"
#include "tern/core/io/input_file.h"

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
  /// Throws Error unless all that was read so far was the file's.
  void check() const {
    if (watch_) watch_->check();
  }

 private:
  InputFile file_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::unique_ptr<WatchedMapping> watch_;
};

}  // namespace tern
