#pragma once
// How files are opened for reading. Every reader of Tern opens its files here, so that a path that is a named pipe, a
// socket, a device or a folder is refused by name instead of being waited for.

#include <cstdint>
#include <istream>
#include <memory>
#include <string>

namespace tern {

enum class InputKind {
  kRegular,  // a regular file, or a link to one
  /// Also what the process was given open: /dev/stdin, /dev/fd/N and /proc/self/fd/N (a shell's `<(command)`) are read
  /// from the descriptor itself, be it a pipe, a terminal or a socket. A named pipe's own path stays refused: opening
  /// it would wait for a writer that may never come.
  kStream
};

/// A file that is open for reading. Errors name the path and the reason: it does not exist, is not readable, or is not
/// of the kind.
class InputFile {
 public:
  /// `name`: what messages call it; empty: the path.
  explicit InputFile(const std::string& path, InputKind kind = InputKind::kRegular, const std::string& name = {});
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  /// Its length when it was opened; 0 for a stream.
  uint64_t bytes() const { return bytes_; }
  /// Reads up to `bytes`; waits until there are some. 0 at the end. Throws Error when the system cannot read.
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
  /// Standard input, called "stdin" in messages.
  static InputStream standard_input() { return InputStream("/dev/stdin", InputKind::kStream, "stdin"); }
  InputStream(InputStream&& other) noexcept;
  ~InputStream() override;

 private:
  std::unique_ptr<std::streambuf> buffer_;
};

/// Reads the next line without its '\n'; false at the end. `name` and `number` (from 1) are for messages. Errors: a
/// line of more than 256 MiB, which must not fill the memory; a read that fails.
bool next_line(std::istream& in, std::string& line, const std::string& name, int64_t number);

/// Appends a file's bytes to `out`. Errors: those of InputFile.
void append_file(const std::string& path, std::string& out, InputKind kind = InputKind::kRegular);
/// A whole file.
std::string read_whole_file(const std::string& path, InputKind kind = InputKind::kRegular);

}  // namespace tern
