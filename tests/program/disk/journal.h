#pragma once
// Records what a power cut would undo: bytes of files that were not fsynced, and names that were created, renamed or
// removed in a folder that was not fsynced afterwards.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tern::program {

class Journal {
 public:
  /// Keeps removed and replaced files in this folder, which must be on the same file system.
  void keep_in(const std::string& folder) { kept_folder_ = folder; }

  // Called before the operation.
  void writes(const std::string& path) { unsynced_.try_emplace(path, size_of(path)); }
  void creates_file(const std::string& path) {
    unsynced_[path] = 0;
    changes_.push_back({Kind::kCreate, path, "", "", false});
  }
  void creates_link(const std::string& path) { changes_.push_back({Kind::kCreate, path, "", "", false}); }
  void creates_folder(const std::string& path) { changes_.push_back({Kind::kCreate, path, "", "", true}); }
  void removes_file(const std::string& path) { changes_.push_back({Kind::kRemove, path, "", keep(path), false}); }
  void removes_folder(const std::string& path) { changes_.push_back({Kind::kRemove, path, "", "", true}); }
  /// A file or a folder.
  void renames(const std::string& from, const std::string& to) {
    const std::string replaced = keep(to);
    unsynced_.erase(to);
    move_names(from, to);
    changes_.push_back({Kind::kRename, to, from, replaced, false});
  }

  /// Number of name changes that are not yet on disk.
  size_t count() const { return changes_.size(); }
  /// Forgets the changes after the first `count`: the call has failed.
  void drop(size_t count) {
    if (changes_.size() > count) changes_.resize(count);
  }

  /// A file or a folder.
  void synced(const std::string& path) {
    unsynced_.erase(path);
    std::erase_if(changes_, [&](const Change& change) { return parent(change.path) == path; });
  }
  void synced_all() {
    unsynced_.clear();
    changes_.clear();
  }

  /// Undoes everything not synced; if `folder` is not empty, of names only those in folders of that name.
  void lose(const std::string& folder) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    while (!changes_.empty()) {
      const Change change = changes_.back();
      changes_.pop_back();
      if (!folder.empty() && fs::path(parent(change.path)).filename() != folder) continue;
      if (change.kind == Kind::kCreate) {
        fs::remove_all(change.path, ignored);
      } else if (change.kind == Kind::kRename) {
        fs::rename(change.path, change.from, ignored);
        if (!change.kept.empty()) fs::rename(change.kept, change.path, ignored);
        move_names(change.path, change.from);
      } else if (change.is_folder) {
        fs::create_directory(change.path, ignored);
      } else {
        fs::rename(change.kept, change.path, ignored);
      }
    }
    for (const auto& [path, bytes] : unsynced_)
      if (const off_t size = size_of(path); size > bytes) fs::resize_file(path, bytes + (size - bytes) / 2, ignored);
    unsynced_.clear();
    if (!kept_folder_.empty()) fs::remove_all(kept_folder_, ignored);
  }

 private:
  enum class Kind { kCreate, kRename, kRemove };
  struct Change {
    Kind kind;
    std::string path;  // current name
    std::string from;  // name before a rename
    std::string kept;  // copy of the removed or replaced file; empty: none
    bool is_folder;
  };

  static std::string parent(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }
  static off_t size_of(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? status.st_size : 0;
  }

  /// A second name for a file, or "" if it does not exist or is a folder.
  std::string keep(const std::string& path) {
    if (kept_folder_.empty() || !std::filesystem::is_regular_file(path)) return "";
    std::filesystem::create_directories(kept_folder_);
    const std::string kept = kept_folder_ + "/" + std::to_string(kept_count_++);
    return link(path.c_str(), kept.c_str()) == 0 ? kept : "";
  }

  /// Replaces `from` by `to` in all recorded paths.
  void move_names(const std::string& from, const std::string& to) {
    const auto moved = [&](const std::string& path) {
      return path == from || path.starts_with(from + "/") ? to + path.substr(from.size()) : path;
    };
    for (Change& change : changes_) {
      change.path = moved(change.path);
      if (change.kind == Kind::kRename) change.from = moved(change.from);
    }
    std::map<std::string, off_t> after;
    for (const auto& [path, bytes] : unsynced_) after[moved(path)] = bytes;
    unsynced_ = after;
  }

  std::string kept_folder_;
  int kept_count_ = 0;
  std::vector<Change> changes_;            // of names, in order
  std::map<std::string, off_t> unsynced_;  // files, and the number of their bytes known to be on disk
};

}  // namespace tern::program
