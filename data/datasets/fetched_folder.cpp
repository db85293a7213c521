#include "tern/data/datasets/fetched_folder.h"

#include <cstdlib>

#include "tern/core/check.h"
#include "tern/core/io/folders.h"
#include "tern/data/datasets/files.h"

namespace tern::data {
namespace fs = std::filesystem;

std::optional<fs::path> find_folder(const FetchedFolder& set) {
  const char* root = std::getenv("TERN_DATA");
  if (root != nullptr && root[0] != 0 && set.is_complete(fs::path(root) / set.folder))
    return fs::path(root) / set.folder;
  const fs::path cache = cache_directory();
  if (!cache.empty() && set.is_complete(cache / set.folder)) return cache / set.folder;
  return std::nullopt;
}

fs::path fetch_folder(const FetchedFolder& set, const std::function<void(const std::string&)>& log) {
  if (const auto found = find_folder(set)) return *found;
  const std::string advice = "; to use a copy, set TERN_DATA to the folder that holds " + set.folder;
  const fs::path cache = cache_directory();
  TERN_CHECK(!cache.empty(), set.name,
             ": not found, and no folder to fetch it to (neither XDG_CACHE_HOME nor HOME is set)", advice);
  try {
    const TemporaryDirectory work(cache, set.folder);
    const fs::path archive = work.path() / fs::path(set.archive.url).filename();
    const std::string megabytes = std::to_string(set.archive.bytes / 1000000) + " MB";
    if (log) log("fetching " + set.archive.url + " (" + megabytes + ") to " + cache.string());
    download(set.archive, archive, log);
    extract_archive(archive, work.path(), set.most_unpacked_bytes);
    TERN_CHECK(set.is_complete(work.path() / set.folder), "the archive holds no ", set.contents);
    // Before the name, which says that the folder is complete: at once, for there may be many thousand files.
    sync_file_system(work.path());
    std::error_code error;
    fs::rename(work.path() / set.folder, cache / set.folder, error);
    // Another process may have put it there meanwhile.
    TERN_CHECK(!error || set.is_complete(cache / set.folder), "cannot rename to ", (cache / set.folder).string(), ": ",
               error.message());
    sync_folder(cache);
  } catch (const Error& error) {
    fail(set.name, ": ", error.what(), advice);
  }
  return cache / set.folder;
}

}  // namespace tern::data
