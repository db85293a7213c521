#include "tern/data/loaders/image_loader.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// The files that could not be read, each counted once.
class Unreadable {
 public:
  /// Throws Error if there are more than allowed.
  void add(const ImageSet& set, int32_t row, const Error& error, const ImageLoaderOptions& options) {
    const std::lock_guard lock(mutex_);
    if (!rows_.insert(row).second) return;
    TERN_CHECK(count() <= options.max_unreadable, set.name, ": more than ", options.max_unreadable,
               " images cannot be read; the last: ", error.what());
    if (options.log) options.log(std::string("skipped: ") + error.what());
  }
  int64_t size() const {
    const std::lock_guard lock(mutex_);
    return count();
  }

 private:
  int64_t count() const { return static_cast<int64_t>(rows_.size()); }

  mutable std::mutex mutex_;
  std::set<int32_t> rows_;
};

}  // namespace

struct ImageLoader::State {
  static std::shared_ptr<const State> checked(std::shared_ptr<const ImageSet> set, BatchPlan plan,
                                              const ImageLoaderOptions& options);

  std::shared_ptr<const ImageSet> set;
  std::shared_ptr<const BatchPlan> plan;
  ImageLoaderOptions options;
  mutable Unreadable unreadable = {};

  ImageBatch make(std::span<const int32_t> rows, int64_t epoch, int64_t step) const;
  Image read(int64_t epoch, int32_t row) const;
  Image readable(int64_t epoch) const;
};

/// Returns an image without pixels if the file cannot be read.
Image ImageLoader::State::read(int64_t epoch, int32_t row) const {
  Image image;
  try {
    image = options.cache && !set->in_memory()
                ? options.cache->read(set->files[static_cast<size_t>(row)], options.decode)
                : set->image(row, options.decode);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    unreadable.add(*set, row, error, options);
    return image;
  }
  if (!options.transform) return image;
  try {
    return options.transform(std::move(image), {options.seed, epoch, row});
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    fail(set->name_of(row), ": ", error.what());
  }
}

/// The first readable image: gives the size of a batch without a readable image.
Image ImageLoader::State::readable(int64_t epoch) const {
  for (int32_t row = 0; row < set->size(); ++row) {
    if (Image image = read(epoch, row); !image.pixels.empty()) return image;
  }
  fail(set->name, ": none of its ", set->size(), " images can be read");
}

ImageBatch ImageLoader::State::make(std::span<const int32_t> rows, int64_t epoch, int64_t step) const {
  ImageBatch batch;
  batch.rows.assign(rows.begin(), rows.end());
  batch.epoch = epoch;
  batch.step = step;
  std::vector<Image> images;
  for (const int32_t row : rows) images.push_back(read(epoch, row));

  const Image* first = nullptr;
  size_t first_row = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const Image& image = images[i];
    if (image.pixels.empty()) continue;
    if (first == nullptr) {
      first = &image;
      first_row = i;
    }
    TERN_CHECK(image.height == first->height && image.width == first->width && image.channels == first->channels,
               set->name_of(rows[i]), " has ", image.width, " x ", image.height, " pixels of ", image.channels,
               " channels, and ", set->name_of(rows[first_row]), " of the same batch ", first->width, " x ",
               first->height, " of ", first->channels, "; resize or crop them to one size");
  }
  const Image other = first == nullptr ? readable(epoch) : Image();
  if (first == nullptr) first = &other;
  const int64_t n = options.fixed_capacity ? plan->options().batch_size : static_cast<int64_t>(rows.size());
  const size_t bytes = first->pixels.size();
  batch.images = empty({n, first->height, first->width, first->channels}, {.dtype = DType::kUInt8});
  batch.labels = empty({n}, {.dtype = DType::kInt64});
  batch.row_keys = empty({n}, {.dtype = DType::kInt64});
  for (int64_t i = 0; i < n; ++i) {
    const bool planned = i < static_cast<int64_t>(rows.size()), there = planned && !images[i].pixels.empty();
    uint8_t* out = batch.images.data<uint8_t>() + static_cast<size_t>(i) * bytes;
    batch.row_keys.data<int64_t>()[i] = planned ? rows[i] : 0;
    batch.labels.data<int64_t>()[i] = there ? set->labels[rows[i]] : kIgnoredLabel;
    if (there)
      std::memcpy(out, images[i].pixels.data(), bytes);
    else
      std::memset(out, 0, bytes);
  }
  return batch;
}

std::shared_ptr<const ImageLoader::State> ImageLoader::State::checked(std::shared_ptr<const ImageSet> set,
                                                                      BatchPlan plan,
                                                                      const ImageLoaderOptions& options) {
  TERN_CHECK(set != nullptr, "image loader: no data set");
  TERN_CHECK(plan.epochs() == 0 || plan.options().batch_size > 0, "image loader: the plan must have a batch_size");
  TERN_CHECK(options.max_unreadable >= 0, "image loader: max_unreadable must be >= 0, got ", options.max_unreadable);
  auto rows = PlannedLoader::checked("image loader", std::move(plan), set->size());
  return std::shared_ptr<const State>(new State{std::move(set), std::move(rows), options});
}

ImageLoader::ImageLoader(std::shared_ptr<const ImageSet> set, BatchPlan plan, const ImageLoaderOptions& options)
    : ImageLoader(State::checked(std::move(set), std::move(plan), options)) {}

ImageLoader::ImageLoader(std::shared_ptr<const State> state)
    : PlannedLoader("image loader", state), state_(std::move(state)) {}

int64_t ImageLoader::unreadable() const { return state_->unreadable.size(); }

}  // namespace tern::data
