#pragma once
// The cache of huggingface_hub on the disk: CACHE/models--ORG--NAME with the folders blobs (files by their ETag),
// snapshots/COMMIT (links to the blobs by the files' names), refs/REVISION (the commit of a branch or tag), .no_exist,
// and CACHE/.locks.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/hub/names.h"
#include "tern/data/hub/settings.h"

namespace tern::data {

class HubCache {
 public:
  /// Throws Error when the settings have no cache folder.
  HubCache(const HubSettings& settings, const std::string& model);

  /// The commit that the revision is or was when it was last fetched.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  /// The file in the snapshot; a link to a blob that is gone is none.
  bool has(const std::string& commit, const std::string& file) const;
  /// The files of a snapshot, sorted.
  std::vector<std::string> files(const std::string& commit) const;
  /// All files of the commit, where huggingface_hub has left a list of them (trees/COMMIT.json).
  std::optional<std::vector<std::string>> tree(const std::string& commit) const;

  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path lock(const std::string& etag) const {
    return cache_ / ".locks" / folder_.filename() / (etag + ".lock");
  }

  /// Creates the folders of a snapshot, and the mark by which backups leave a cache out (CACHEDIR.TAG).
  void create(const std::string& commit) const;
  /// Makes the file of the snapshot a relative link to the blob, which exists. Where links cannot be made, it becomes a
  /// copy, or the blob itself if that is `fresh`: no other snapshot has it.
  void link(const std::string& etag, const std::string& commit, const std::string& file, bool fresh) const;
  /// Records the commit of a branch or tag; a cache that cannot be written to is no error.
  void record(const std::string& revision, const std::string& commit) const;
  /// Records that the commit has no such file; a cache that cannot be written to is no error.
  void record_absent(const std::string& commit, const std::string& file) const;

 private:
  const HubSettings& settings_;
  std::filesystem::path cache_, folder_;
};

}  // namespace tern::data
