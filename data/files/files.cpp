#include "tern/data/files/files.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/input_file.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;

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

void read_file(const fs::path& path, std::string& out) { append_file(path.string(), out); }

void write_file_atomically(const fs::path& path, const std::vector<std::string_view>& pieces) {
  create_folders(path.has_parent_path() ? path.parent_path() : ".");
  write_atomically(path.string(), [&](const auto& append) {
    for (const std::string_view piece : pieces) append(piece.data(), piece.size());
  });
}

File create_file(const fs::path& path) {
  File file(std::fopen(path.c_str(), "wbxe"));
  TERN_CHECK(file, "cannot create ", path.string(), ": ", std::strerror(errno));
  return file;
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

bool TemporaryDirectory::is_name(const std::string& name, const std::string& prefix) {
  const std::string start = prefix + ".";
  return name.starts_with(start) && name.size() == start.size() + 6 &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(start.size()), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

}  // namespace tern::data
