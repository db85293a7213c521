#pragma once
// Batches of images.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/image_dataset.h"
#include "tern/data/loader_stream.h"
#include "tern/data/samplers/batch_plan.h"

namespace tern::data {

struct ImageBatch {
  Tensor images;              // uint8 [n, height, width, 3]
  Tensor labels;              // int64 [n]; -100 (the losses' default ignore_index) where there is no image
  std::vector<int32_t> rows;  // the data set's rows, one for each planned image
  int64_t epoch = 0;
  int64_t step = 0;  // in the epoch

  int64_t size() const { return labels.size(0); }
  /// The batch on another device.
  ImageBatch to(Device device) const;
};

/// Which image is transformed: what its random choices depend on, and nothing else.
struct ItemKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int32_t row = 0;
};

/// From an image as it is stored to one of the batch's size. Called from several threads at a time.
using ImageTransform = std::function<Image(Image image, const ItemKey& key)>;

struct ImageLoaderOptions {
  ImageTransform transform = {};  // none: images must have one size
  DecodeOptions decode = {};
  uint64_t seed = 0;            // of the transform
  bool fixed_capacity = false;  // the last batch has the size of the others: filled up with black images, label -100
  int workers = 2;              // 0: in the consumer's thread
  int64_t prefetch = 0;         // batches ahead; 0: two for each worker
  /// How many files may be unreadable (counted once each, over all epochs) before the loader gives up. Such a file is
  /// logged once by name; its place in the batch is black with label -100.
  int64_t most_unreadable = 100;
  std::function<void(const std::string&)> log = {};  // from several threads, one at a time
};

/// Hands out the batches of a plan (BatchPlanOptions::batch_size). Batches depend on data, plan, transform and seed
/// only, never on the workers.
class ImageLoader {
 public:
  /// Throws Error when the plan is none of batches of images, or names rows that do not exist.
  ImageLoader(std::shared_ptr<const ImageDataset> set, BatchPlan plan, const ImageLoaderOptions& options = {});
  ImageLoader(const ImageLoader&) = default;  // moving copies: no loader is left without its data set
  ImageLoader& operator=(const ImageLoader&) = default;

  const BatchPlan& plan() const;
  int64_t epochs() const { return plan().epochs(); }
  int64_t steps(int64_t epoch) const { return plan().steps(epoch); }
  /// Files that could not be read so far.
  int64_t unreadable() const;

  /// The batches of an epoch: all, those from one on (to go on in the middle of it), or every n-th (for one of n
  /// processes). The stream may outlive the
  /// loader. Asking for a batch throws Error when too many files are unreadable, sizes differ or the transform fails.
  BatchStream<ImageBatch> epoch(int64_t epoch, const BatchStripe& stripe = {}) const;
  /// One batch of it.
  ImageBatch batch(int64_t epoch, int64_t step) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace tern::data
