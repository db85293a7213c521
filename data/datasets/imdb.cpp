#include "tern/data/datasets/imdb.h"

#include "tern/data/files/fetched_folder.h"
#include "tern/data/files/text.h"

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

const Download kImdbArchive = {
    .url = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    .bytes = 84125825,
    .sha256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
};
const FetchedFolder kImdb = {
    .name = "imdb",
    .folder = "aclImdb",
    .archive = kImdbArchive,
    .max_unpacked_bytes = int64_t{2} << 30,
    .contents = "aclImdb/{train,test}/{neg,pos}",
    .is_complete = is_imdb,
};

}  // namespace

std::optional<std::string> find_imdb() { return find_folder(kImdb); }

std::string imdb_difference(const TextSet& set) {
  constexpr int64_t kTexts = 12'500;  // of each part and label
  std::string difference;
  const auto add = [&](const std::string& part) { difference += (difference.empty() ? "" : ", ") + part; };
  if (set.label_names != std::vector<std::string>{"neg", "pos"})
    add("its labels are " + join(set.label_names, ", ") + " instead of neg, pos");
  for (const auto& [name, part] : {std::pair("train", Part::kTrain), std::pair("test", Part::kTest)}) {
    for (size_t label = 0; label < set.label_names.size(); ++label) {
      const int64_t texts = set.count(part, label);
      if (texts != kTexts)
        add(std::string(name) + "/" + set.label_names[label] + " has " + std::to_string(texts) +
            (texts == 1 ? " text" : " texts") + " instead of " + std::to_string(kTexts));
    }
  }
  if (const int64_t empty = set.empty_texts(); empty > 0)
    add(std::to_string(empty) + (empty == 1 ? " text is empty" : " texts are empty"));
  return difference;
}

std::string fetch_imdb(const std::function<void(const std::string&)>& log) { return fetch_folder(kImdb, log); }

}  // namespace tern::data
