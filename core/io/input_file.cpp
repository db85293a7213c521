#include "tern/core/io/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tern/core/io/file_kind.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 28;
constexpr int kFirstFree = 3;  // a file must not get the descriptor of a closed standard stream

int open_again_on_signal(const char* path, int flags) {
  int descriptor = -1;
  do descriptor = ::open(path, flags);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

/// A regular file's descriptor, or -1 with errno.
int open_regular(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY;
  // O_NONBLOCK: if the path has become a pipe, opening it must not wait for a writer.
  const int descriptor = open_again_on_signal(path.c_str(), kFlags | O_NONBLOCK);
  // On a regular file it means a file server's lease, which must be waited for.
  return descriptor < 0 && errno == EWOULDBLOCK ? open_again_on_signal(path.c_str(), kFlags) : descriptor;
}

class InputBuffer final : public std::streambuf {
 public:
  InputBuffer(const std::string& path, InputKind kind, const std::string& name) : file_(path, kind, name) {}

 private:
  int_type underflow() override {
    const size_t got = file_.read(bytes_.data(), bytes_.size());
    setg(bytes_.data(), bytes_.data(), bytes_.data() + got);
    return got == 0 ? traits_type::eof() : traits_type::to_int_type(bytes_[0]);
  }
  /// A positive number: reading does not wait.
  std::streamsize showmanyc() override { return file_.is_ready() ? 1 : 0; }

  InputFile file_;
  std::array<char, 1 << 16> bytes_;
};

}  // namespace

InputFile::InputFile(const std::string& path, InputKind kind, const std::string& name)
    : name_(name.empty() ? path : name) {
  const int given = kind == InputKind::kStream ? detail::descriptor_named(path) : -1;
  struct stat status {};
  // Checked before opening too, because opening a device can have side effects.
  TERN_CHECK(given >= 0 || ::stat(path.c_str(), &status) == 0, "cannot open ", name_, ": ", std::strerror(errno));
  const auto refuse_other_kinds = [&] {
    const char* other = detail::other_file_kind(status.st_mode);
    TERN_CHECK(!other || (given >= 0 && !S_ISDIR(status.st_mode)), "cannot read ", name_, ": not a regular file but ",
               other);
  };
  if (given < 0) refuse_other_kinds();
  descriptor_ = given >= 0 ? ::fcntl(given, F_DUPFD_CLOEXEC, kFirstFree) : open_regular(path);
  TERN_CHECK(descriptor_ >= 0, "cannot open ", name_, ": ", std::strerror(errno));
  if (descriptor_ < kFirstFree) {
    const int moved = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, kFirstFree);
    ::close(descriptor_);
    descriptor_ = moved;
  }
  try {
    TERN_CHECK(descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0, "cannot read ", name_, ": ",
               std::strerror(errno));
    refuse_other_kinds();
  } catch (const Error&) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
  if (S_ISREG(status.st_mode)) bytes_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

size_t InputFile::read(void* out, size_t bytes) {
  for (;;) {
    // One read takes at most 2 GiB on Linux.
    const ssize_t got = ::read(descriptor_, out, std::min<size_t>(bytes, size_t{1} << 30));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {  // another user of the stream made it non-blocking
      pollfd wait{descriptor_, POLLIN, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      fail("cannot read ", name_, ": ", std::strerror(errno));
    }
  }
}

bool InputFile::is_ready() const {
  pollfd look{descriptor_, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

InputStream::InputStream(const std::string& path, InputKind kind, const std::string& name)
    : std::istream(nullptr), buffer_(std::make_unique<InputBuffer>(path, kind, name)) {
  rdbuf(buffer_.get());
}

InputStream::InputStream(InputStream&& other) noexcept : std::istream(nullptr), buffer_(std::move(other.buffer_)) {
  rdbuf(buffer_.get());
}

InputStream::~InputStream() = default;

bool next_line(std::istream& in, std::string& line, const std::string& name, int64_t number) {
  constexpr int kEnd = std::char_traits<char>::eof();
  std::streambuf& buffer = *in.rdbuf();
  line.clear();
  int byte = buffer.sbumpc();
  if (byte == kEnd) return false;
  for (; byte != kEnd && byte != '\n'; byte = buffer.sbumpc()) {
    TERN_CHECK(line.size() < kMaxLineBytes, name, ":", number, ": the line is longer than 256 MiB");
    line.push_back(static_cast<char>(byte));
  }
  return true;
}

void append_file(const std::string& path, std::string& out, InputKind kind) {
  InputFile file(path, kind);
  size_t end = out.size();
  for (;;) {
    // One byte more than the file's size, so that one read usually reaches its end too.
    out.resize(end + std::max<size_t>(file.bytes() + 1, 4096));
    const size_t got = file.read(out.data() + end, out.size() - end);
    end += got;
    if (got == 0) break;
  }
  out.resize(end);
}

std::string read_whole_file(const std::string& path, InputKind kind) {
  std::string bytes;
  append_file(path, bytes, kind);
  return bytes;
}

}  // namespace tern
