#pragma once
// Opening files for reading. Every reader of Tern opens its files here, so that a named pipe, a socket, a device or a
// folder is an Error that names the path instead of an endless wait.

#include <cstdint>
#include <istream>
#include <memory>
#include <string>

namespace tern {

enum class InputKind {
  kRegular,  // a regular file, or a link to one
  /// Also open descriptors of the process: /dev/stdin, /dev/fd/N and /proc/self/fd/N (a shell's `<(command)`) are read
  /// from the descriptor, which may be a pipe, a terminal or a socket. The path of a named pipe is still an Error:
  /// opening it would wait for a writer that may never come.
  kStream
};

/// A file open for reading. Errors name the path and the reason: missing, unreadable, or of another kind.
class InputFile {
 public:
  /// `name` is used in messages; empty: the path.
  explicit InputFile(const std::string& path, InputKind kind = InputKind::kRegular, const std::string& name = {});
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  /// The size when it was opened; 0 for a stream.
  uint64_t bytes() const { return bytes_; }
  /// Reads up to `bytes`; waits for at least one. Returns 0 at the end. Throws Error when the read fails.
  size_t read(void* out, size_t bytes);
  /// False when read() would wait.
  bool is_ready() const;

 private:
  std::string name_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
};

/// An InputFile as a stream. A read that fails sets badbit; next_line() throws the reason.
class InputStream : public std::istream {
 public:
  explicit InputStream(const std::string& path, InputKind kind = InputKind::kRegular, const std::string& name = {});
  /// Standard input, named "stdin" in messages.
  static InputStream standard_input() { return InputStream("/dev/stdin", InputKind::kStream, "stdin"); }
  InputStream(InputStream&& other) noexcept;
  ~InputStream() override;

 private:
  std::unique_ptr<std::streambuf> buffer_;
};

/// Reads the next line without its '\n'; false at the end. `name` and `number` (from 1) are for messages. Errors: a
/// line of more than 256 MiB, which limits the memory; a failed read.
bool next_line(std::istream& in, std::string& line, const std::string& name, int64_t number);

/// Appends a file's bytes to `out`. Errors: those of InputFile.
void append_file(const std::string& path, std::string& out, InputKind kind = InputKind::kRegular);
/// The contents of a file.
std::string read_whole_file(const std::string& path, InputKind kind = InputKind::kRegular);

}  // namespace tern
