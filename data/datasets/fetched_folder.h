#pragma once
// Public data sets that are an archive of one folder: found on this machine, or fetched.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tern/data/datasets/download.h"

namespace tern::data {

struct FetchedFolder {
  std::string name = {};    // of the data set, for messages
  std::string folder = {};  // the archive's one folder
  Download archive = {};    // where it comes from
  int64_t most_unpacked_bytes = 0;
  std::string contents = {};  // what the folder must hold, for messages
  bool (*is_complete)(const std::filesystem::path& folder) = nullptr;
};

/// $TERN_DATA/FOLDER, otherwise the cache's; it counts when is_complete() says so. Nothing is fetched.
std::optional<std::string> find_folder(const FetchedFolder& set);

/// find_folder(), or the archive fetched to the cache, checked by its SHA-256 and unpacked; the folder gets its name
/// when all its files are on the disk. One process at a time fetches a set to a cache, the others wait for it; what a
/// process left that was killed meanwhile ("FOLDER.tern-fetch.XXXXXX") the next one removes. Throws Error in one line
/// when it cannot be had.
std::string fetch_folder(const FetchedFolder& set, const std::function<void(const std::string&)>& log);

}  // namespace tern::data
