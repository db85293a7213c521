#include "tern/data/datasets/imdb.h"

#include "tern/data/datasets/fetched_folder.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

bool is_imdb(const fs::path& folder) {
  std::error_code ignored;
  for (const char* part : {"train/neg", "train/pos", "test/neg", "test/pos"}) {
    if (!fs::is_directory(folder / part, ignored)) return false;
  }
  return true;
}

const Download kArchive = {
    .url = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    .bytes = 84125825,
    .sha256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
};
const FetchedFolder kImdb = {
    .name = "imdb",
    .folder = "aclImdb",
    .archive = kArchive,
    .most_unpacked_bytes = int64_t{2} << 30,
    .contents = "aclImdb/{train,test}/{neg,pos}",
    .is_complete = is_imdb,
};

}  // namespace

std::optional<fs::path> find_imdb() { return find_folder(kImdb); }

fs::path fetch_imdb(const std::function<void(const std::string&)>& log) { return fetch_folder(kImdb, log); }

}  // namespace tern::data
