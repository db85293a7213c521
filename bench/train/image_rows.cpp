#include "tern/bench/train/image_rows.h"

#include <cstdlib>
#include <memory>
#include <numeric>

#include "tern/data/datasets/cifar10.h"
#include "tern/data/transforms/augment.h"
#include "tern/data/transforms/random.h"
#include "tern/kernels/base/check.h"

namespace tern::bench {
namespace {

constexpr int64_t kEpochs = 1000;  // more than a measurement uses, each in another order
constexpr uint64_t kSeed = 1;
const kernels::ImageNormalization kNormalization = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};

data::ImageLoader make_loader(data::ImageSet set, int64_t images, int64_t batch_size,
                              const data::ImageLoaderOptions& options) {
  std::vector<int32_t> rows(static_cast<size_t>(images));
  std::iota(rows.begin(), rows.end(), 0);
  const data::BatchPlanOptions plan{.batch_size = batch_size, .shuffle = true, .seed = kSeed};
  return {std::make_shared<const data::ImageSet>(std::move(set)), data::BatchPlan(rows, {}, plan, kEpochs), options};
}

ImagePass passes(data::ImageLoader loader, const data::BatchAugmentOptions& options) {
  return [loader = std::move(loader), augment = data::BatchAugment(options, kSeed), epoch = int64_t{0}]() mutable {
    int64_t images = 0;
    for (const data::ImageBatch& batch : loader.epoch(epoch++ % kEpochs)) images += augment(batch, {}).labels.size(0);
    return images;
  };
}

}  // namespace

ImagePass jpeg_folder(int workers) {
  const char* folder = std::getenv("TERN_BENCH_JPEGS");
  TERN_CHECK(folder != nullptr, "TERN_BENCH_JPEGS is not set: name a folder train/LABEL/*.jpg, such as ",
             "bench/compare/pytorch_side.py --make-jpegs writes");
  data::ImageSet set = data::load_images(folder);
  const int64_t images = set.size();
  return passes(make_loader(std::move(set), images, 32,
                            {.transform = data::compose({data::RandomResizedCrop{224, 224}, data::RandomFlip{}}),
                             .seed = kSeed,
                             .workers = workers}),
                {.normalization = kNormalization});
}

ImagePass cifar_augment() {
  constexpr int64_t kImages = 10000;
  const auto folder = data::find_cifar10();
  TERN_CHECK(folder.has_value(), "cifar-10-batches-bin not found: set TERN_DATA to the folder that holds it");
  return passes(make_loader(data::read_cifar10(*folder), kImages, 128, {.seed = kSeed, .workers = 0}),
                {.padding = 4, .flip = {}, .normalization = kNormalization});
}

}  // namespace tern::bench
