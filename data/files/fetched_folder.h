#pragma once
// Public data sets that are published as an archive of one folder.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tern/data/files/download.h"

namespace tern::data {

struct FetchedFolder {
  std::string name = {};    // of the data set, for messages
  std::string folder = {};  // the archive's one folder
  Download archive = {};    // where it comes from
  int64_t max_unpacked_bytes = 0;
  std::string contents = {};  // what the folder must hold, for messages
  bool (*is_complete)(const std::filesystem::path& folder) = nullptr;
};

/// The folder in $TERN_DATA, otherwise in the cache, when is_complete() accepts it. Fetches nothing.
std::optional<std::string> find_folder(const FetchedFolder& set);

/// find_folder(); otherwise fetches the archive to the cache, checks its SHA-256 and unpacks it. The folder gets its
/// name when all its files are on the disk. One process at a time fetches a set to a cache, the others wait for it. The
/// next fetch removes the temporary folders ("FOLDER.tern-fetch.XXXXXX") of processes that were killed. Throws Error in
/// one line when that fails.
std::string fetch_folder(const FetchedFolder& set, const std::function<void(const std::string&)>& log);

}  // namespace tern::data
