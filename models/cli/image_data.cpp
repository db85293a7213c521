#include "tern/models/cli/image_data.h"

#include "tern/data/datasets/cifar10.h"
#include "tern/models/cli/commands.h"

namespace tern::cli {

data::ImageSet load_image_set(const std::string& source, const std::vector<std::string>& known_labels, const Log& log) {
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
  data::ImageSet set =
      data::load_images(chosen, {.known_labels = known_labels, .allow_download = true, .log = log_or_end});
  check_interrupted();
  return set;
}

}  // namespace tern::cli
