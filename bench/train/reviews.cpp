#include "tern/bench/train/reviews.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tern/data/files/files.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReviews = 1000;

fs::path data_folder() {
  const char* set = std::getenv("TERN_DATA");
  const fs::path folder = set ? set : "data";
  TERN_CHECK(fs::is_directory(folder / "aclImdb"), (folder / "aclImdb").string(),
             " not found: set TERN_DATA to the folder that holds it");
  return folder;
}

}  // namespace

Reviews read_reviews() {
  std::vector<fs::path> paths;
  for (const char* kind : {"neg", "pos"}) {
    const fs::path folder = data_folder() / "aclImdb" / "train" / kind;
    TERN_CHECK(fs::is_directory(folder), folder.string(), ": no such folder");
    const size_t before = paths.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".txt") paths.push_back(entry.path());
    std::sort(paths.begin() + static_cast<int64_t>(before), paths.end());
  }
  TERN_CHECK(!paths.empty(), (data_folder() / "aclImdb" / "train").string(), ": there are no reviews");
  Reviews reviews;
  const size_t stride = std::max<size_t>(1, paths.size() / kReviews);
  for (size_t i = 0; i < paths.size() && reviews.texts.size() < kReviews; i += stride) {
    data::read_file(paths[i], reviews.texts.emplace_back());
    reviews.labels.push_back(paths[i].parent_path().filename() == "pos");
  }
  return reviews;
}

data::WordPiece read_tokenizer() {
  return data::WordPiece::from_folder((data_folder() / "bert-base-uncased").string());
}

}  // namespace tern::bench
