// A data set of the user's own, read by worker threads in batches.
#include <tern/tern.h>

#include <cstdio>

using namespace tern;

struct Words final : data::Dataset<std::pair<Tensor, int64_t>> {
  int64_t size() const override { return 1000; }
  std::pair<Tensor, int64_t> get(const data::ItemKey& key) const override {
    data::RandomStream random = data::item_random(key);  // for augmentation: differs in every epoch
    return {full({8}, random.uniform()), key.row % 2};
  }
};

int main() {
  const Device device = cpu;
  double total = 0;
  const data::Loader loader(Words(), {.batch_size = 32, .shuffle = true, .workers = 4, .seed = 42});
  for (const auto& [inputs, labels] : data::DeviceBatches(loader.epoch(0), device))  // [32, 8], [32]
    total += sum(inputs * labels.unsqueeze(1)).item<double>();
  std::printf("the sum of the rows with label 1 is %.0f\n", total);
  return total > 0 ? 0 : 1;
}
