#pragma once
// Small helpers around files that the data floor shares.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tern::data {

/// $XDG_CACHE_HOME/tern, or ~/.cache/tern. Empty when neither variable holds an absolute path.
std::filesystem::path cache_directory();

/// Appends a regular file's bytes to `out`. Error: the path and the system's reason.
void read_file(const std::filesystem::path& path, std::string& out);

/// The entries of a folder in byte order, without those whose name begins with a dot. Error: the path and the system's
/// reason.
std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder);

/// Writes the pieces one after another by core's write_atomically; creates the folder.
void write_file_atomically(const std::filesystem::path& path, const std::vector<std::string_view>& pieces);

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

/// A new file to write; an existing one (or a link) is an error. Error: the path and the system's reason.
File create_file(const std::filesystem::path& path);

/// A new folder under `parent`; the destructor removes it with its contents.
class TemporaryDirectory {
 public:
  /// Creates `parent` as needed. Error: the path and the system's reason.
  TemporaryDirectory(const std::filesystem::path& parent, const std::string& prefix);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// True for the name of such a folder: "PREFIX.XXXXXX", six letters and digits.
  static bool is_name(const std::string& name, const std::string& prefix);

 private:
  std::filesystem::path path_;
};

}  // namespace tern::data
