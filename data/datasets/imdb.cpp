#include "tern/data/datasets/imdb.h"

#include <cstdlib>

#include "tern/core/check.h"
#include "tern/data/datasets/archive.h"
#include "tern/data/datasets/files.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

const Download kArchive = {
    .url = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    .bytes = 84125825,
    .sha256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
};
constexpr int64_t kMostUnpackedBytes = int64_t{2} << 30;

bool is_imdb(const fs::path& folder) {
  std::error_code ignored;
  for (const char* part : {"train/neg", "train/pos", "test/neg", "test/pos"}) {
    if (!fs::is_directory(folder / part, ignored)) return false;
  }
  return true;
}

}  // namespace

std::optional<fs::path> find_imdb() {
  const char* root = std::getenv("TERN_DATA");
  if (root != nullptr && root[0] != 0 && is_imdb(fs::path(root) / "aclImdb")) return fs::path(root) / "aclImdb";
  const fs::path cache = cache_directory();
  if (!cache.empty() && is_imdb(cache / "aclImdb")) return cache / "aclImdb";
  return std::nullopt;
}

fs::path fetch_imdb(const std::function<void(const std::string&)>& log) {
  if (const auto found = find_imdb()) return *found;
  const std::string advice = "; to use a copy, set TERN_DATA to the folder that holds aclImdb";
  const fs::path cache = cache_directory();
  TERN_CHECK(!cache.empty(), "imdb: not found, and no folder to fetch it to (neither XDG_CACHE_HOME nor HOME is set)",
             advice);
  try {
    const TemporaryDirectory work(cache, "aclImdb");
    const fs::path archive = work.path() / "aclImdb_v1.tar.gz";
    if (log) log("fetching " + kArchive.url + " (84 MB) to " + cache.string());
    download(kArchive, archive, log);
    extract_archive(archive, work.path(), kMostUnpackedBytes);
    TERN_CHECK(is_imdb(work.path() / "aclImdb"), "the archive holds no aclImdb/{train,test}/{neg,pos}");
    std::error_code error;
    fs::rename(work.path() / "aclImdb", cache / "aclImdb", error);
    // Another process may have put it there meanwhile.
    TERN_CHECK(!error || is_imdb(cache / "aclImdb"), "cannot rename to ", (cache / "aclImdb").string(), ": ",
               error.message());
  } catch (const Error& error) {
    fail("imdb: ", error.what(), advice);
  }
  return cache / "aclImdb";
}

}  // namespace tern::data
