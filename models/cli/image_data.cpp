#include "tern/models/cli/image_data.h"

#include <filesystem>

#include "tern/data/datasets/cifar10.h"
#include "tern/data/datasets/sha256.h"
#include "tern/models/cli/commands.h"

namespace tern::cli {

data::ImageDataset load_image_set(const std::string& source, const std::vector<std::string>& known_labels,
                                  const Log& log) {
  std::string chosen = source;
  if (chosen.empty()) {
    chosen = data::find_cifar10() ? "cifar10" : "digits";
    log(chosen == "cifar10" ? "data: cifar10 (found on this machine)"
                            : "data: digits, the embedded set of 1,797; CIFAR-10 was not found on this machine (--data "
                              "cifar10 fetches it, TERN_DATA names a folder that holds cifar-10-batches-bin)");
  }
  const auto log_or_end = [&](const std::string& line) {
    check_interrupted();
    log(line);
  };
  data::ImageDataset set =
      data::load_images(chosen, {.known_labels = known_labels, .allow_download = true, .log = log_or_end});
  check_interrupted();
  return set;
}

std::string content_hash(const data::ImageDataset& set) {
  data::Sha256 hash;
  const auto add = [&](const void* data, size_t bytes) {
    hash.update(static_cast<uint64_t>(bytes));
    hash.update(std::string_view(static_cast<const char*>(data), bytes));
  };
  add(set.labels.data(), set.labels.size() * sizeof(set.labels[0]));
  if (set.in_memory()) {
    add(set.pixels.raw_data(), static_cast<size_t>(set.pixels.nbytes()));
    return hash.hex();
  }
  for (const std::string& file : set.files) {
    add(file.data(), file.size());
    std::error_code ignored;
    hash.update(static_cast<uint64_t>(std::filesystem::file_size(file, ignored)));
  }
  return hash.hex();
}

}  // namespace tern::cli
