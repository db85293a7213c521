#include "tern/data/datasets/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tern/core/check.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

}  // namespace

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (!it->path().filename().string().starts_with('.')) entries.push_back(it->path());
  }
  TERN_CHECK(!error, "cannot read the folder ", folder.string(), ": ", error.message());
  std::sort(entries.begin(), entries.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return entries;
}

fs::path cache_directory() {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? fs::path(value) : fs::path();
  };
  if (const fs::path cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache / "tern";
  const fs::path home = absolute("HOME");
  return home.empty() ? home : home / ".cache" / "tern";
}

void read_file(const fs::path& path, std::string& out) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  TERN_CHECK(file.get() >= 0, "cannot open ", path.string(), ": ", std::strerror(errno));
  struct stat status {};
  TERN_CHECK(::fstat(file.get(), &status) == 0, "cannot read ", path.string(), ": ", std::strerror(errno));
  TERN_CHECK(S_ISREG(status.st_mode), "cannot read ", path.string(), ": not a regular file");
  size_t end = out.size();
  for (;;) {
    // One byte more than the file holds, so that one read usually finds its end too.
    const size_t expected = static_cast<size_t>(status.st_size) + 1;
    out.resize(end + std::max<size_t>(expected, 4096));
    const ssize_t got = ::read(file.get(), out.data() + end, out.size() - end);
    if (got < 0 && errno == EINTR) continue;
    TERN_CHECK(got >= 0, "cannot read ", path.string(), ": ", std::strerror(errno));
    if (got == 0) break;
    end += static_cast<size_t>(got);
  }
  out.resize(end);
}

void write_file_atomically(const fs::path& path, const std::vector<std::string_view>& pieces) {
  create_folders(path.has_parent_path() ? path.parent_path() : ".");
  write_atomically(path.string(), [&](const auto& append) {
    for (const std::string_view piece : pieces) append(piece.data(), piece.size());
  });
}

TemporaryDirectory::TemporaryDirectory(const fs::path& parent, const std::string& prefix) {
  create_folders(parent);
  std::string name = (parent / (prefix + ".XXXXXX")).string();
  TERN_CHECK(::mkdtemp(name.data()) != nullptr, "cannot create a folder in ", parent.string(), ": ",
             std::strerror(errno));
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tern::data
