// CIFAR-10's batches: the Python version's pickles, and the binary version's records.

#include <vector>

#include "tern/data/datasets/cifar10.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view bytes) {
  const std::string path = write_file("data_batch_1", bytes);
  for (const int64_t images : {int64_t{1}, int64_t{4}}) {
    std::vector<uint8_t> pixels(static_cast<size_t>(images) * 3072);
    std::vector<int32_t> labels(static_cast<size_t>(images), -1);
    const auto check = [&] {
      for (const int32_t label : labels) require(label >= 0 && label < 10);
    };
    read([&] {
      data::read_cifar10_batch(path, images, pixels.data(), labels.data());
      check();
    });
    read([&] {
      data::read_cifar10_records(bytes, "input", images, pixels.data(), labels.data());
      check();
    });
  }
}
