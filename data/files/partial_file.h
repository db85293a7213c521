#pragma once
// A file that arrives in pieces, is continued after a cut, and gets its name when it is whole.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tern::data {

class PartialFile {
 public:
  /// Opens what an earlier process left at the path, or a new file. Error: the path and the system's reason; a link and
  /// what is no regular file are refused.
  explicit PartialFile(const std::filesystem::path& path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// How many bytes are there; append() continues behind them.
  int64_t bytes() const { return bytes_; }
  /// Throws Error with the path, the system's reason (a full disk) and how many bytes were kept.
  void append(std::string_view piece);
  /// Starts over in a new file, so that another process that writes without a lock keeps its file.
  void restart();
  /// The digests of the file as it can be read now: SHA-256; SHA-1; and SHA-1 as git names a blob.
  std::string sha256() const;
  std::string sha1() const;
  std::string git_sha1() const;
  /// Syncs the file, gives it the name, and syncs the folder. Both paths are in one file system.
  void finish(const std::filesystem::path& name);
  /// Removes the file.
  void remove();

 private:
  void open_file();
  template <class Digest>
  void read_into(Digest& digest) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

/// Throws Error unless the file system of the folder has so many bytes free for this user.
void require_free_space(const std::filesystem::path& folder, int64_t bytes);

}  // namespace tern::data
