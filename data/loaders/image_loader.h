#pragma once
// Batches of images.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/datasets/image_set.h"
#include "tern/data/images/image_cache.h"
#include "tern/data/loaders/batch_loader.h"
#include "tern/data/plan/item_key.h"
#include "tern/data/samples/image_batch.h"

namespace tern::data {

/// Transforms a stored image to the batch's image size. Called from several threads.
using ImageTransform = std::function<Image(Image image, const ItemKey& key)>;

struct ImageLoaderOptions {
  ImageTransform transform = {};  // empty: all images must have one size
  DecodeOptions decode = {};
  uint64_t seed = 0;            // seed of the transform
  bool fixed_capacity = false;  // pad the last batch to full size with black images and label -100
  int workers = 2;              // 0: batches are made in the consumer's thread
  int64_t prefetch = 0;         // batches made ahead; 0: two per worker
  /// How many files may be unreadable (each counted once over all epochs) before the loader throws. Such a file is
  /// logged once by name; its image in the batch is black with label -100.
  int64_t max_unreadable = 100;
  std::function<void(const std::string&)> log = {};  // called from several threads, one at a time
  /// Keeps decoded images of files; may be shared among loaders.
  std::shared_ptr<ImageCache> cache = {};
};

/// Yields the batches of a plan (BatchPlanOptions::batch_size). Batches depend only on data, plan, transform and seed,
/// not on the workers. A batch is an Error if too many files are unreadable, if sizes differ or if the transform fails.
class ImageLoader : public PlannedLoader<ImageBatch> {
 public:
  /// Throws Error if the plan has packed batches, or rows that do not exist.
  ImageLoader(std::shared_ptr<const ImageSet> set, BatchPlan plan, const ImageLoaderOptions& options = {});
  ImageLoader(const ImageLoader&) = default;  // a move copies, so the source stays usable
  ImageLoader& operator=(const ImageLoader&) = default;

  /// Number of unreadable files so far.
  int64_t unreadable() const;

 private:
  struct State;
  explicit ImageLoader(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace tern::data
