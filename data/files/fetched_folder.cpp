#include "tern/data/files/fetched_folder.h"

#include <cstdlib>

#include "tern/core/io/folders.h"
#include "tern/data/files/archive.h"
#include "tern/data/files/file_lock.h"
#include "tern/data/files/files.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;

std::optional<std::string> find_folder(const FetchedFolder& set) {
  const char* root = std::getenv("TERN_DATA");
  if (root != nullptr && root[0] != 0 && set.is_complete(fs::path(root) / set.folder))
    return (fs::path(root) / set.folder).string();
  const fs::path cache = cache_directory();
  if (!cache.empty() && set.is_complete(cache / set.folder)) return (cache / set.folder).string();
  return std::nullopt;
}

namespace {

/// Removes the temporary folders of fetches that were interrupted. The caller holds the lock.
void remove_leftovers(const fs::path& cache, const std::string& prefix) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (TemporaryDirectory::is_name(name, prefix) && entry.symlink_status(ignored).type() == fs::file_type::directory)
      fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::string fetch_folder(const FetchedFolder& set, const std::function<void(const std::string&)>& log) {
  if (const auto found = find_folder(set)) return *found;
  const std::string advice = "; to use a copy, set TERN_DATA to the folder that holds " + set.folder;
  const fs::path cache = cache_directory();
  TERN_CHECK(!cache.empty(), set.name,
             ": not found, and no folder to fetch it to (neither XDG_CACHE_HOME nor HOME is set)", advice);
  try {
    require_archives(set.archive.url);  // before it is fetched
    const FileLock lock(cache / ("." + set.folder + ".lock"), [&] {
      if (log) log("waiting for another process that fetches to " + cache.string());
    });
    if (const auto found = find_folder(set)) return *found;
    const std::string prefix = set.folder + ".tern-fetch";
    if (lock.held()) remove_leftovers(cache, prefix);
    const TemporaryDirectory work(cache, prefix);
    const fs::path archive = work.path() / fs::path(set.archive.url).filename();
    const std::string megabytes = std::to_string(set.archive.bytes / 1000000) + " MB";
    if (log) log("fetching " + set.archive.url + " (" + megabytes + ") to " + cache.string());
    download(set.archive, archive, log);
    extract_archive(archive, work.path(), set.max_unpacked_bytes);
    TERN_CHECK(set.is_complete(work.path() / set.folder), "the archive holds no ", set.contents);
    // Before the rename, which marks the folder as complete. One call for all files: there may be many thousand.
    sync_file_system(work.path());
    std::error_code error;
    fs::rename(work.path() / set.folder, cache / set.folder, error);
    // Another process may have created it in the meantime.
    TERN_CHECK(!error || set.is_complete(cache / set.folder), "cannot rename to ", (cache / set.folder).string(), ": ",
               error.message());
    sync_folder(cache);
  } catch (const Error& error) {
    fail(set.name, ": ", error.what(), advice);
  }
  return (cache / set.folder).string();
}

}  // namespace tern::data
