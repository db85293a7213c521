#include "tern/data/images/image_cache.h"

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// What an entry takes besides its pixels and name, about.
constexpr int64_t kEntryBytes = 256;

int64_t cached_bytes(const std::string& key, const Image& image) {
  return kEntryBytes + static_cast<int64_t>(key.size() + image.pixels.size());
}

}  // namespace

ImageCache::ImageCache(int64_t max_bytes) : max_bytes_(max_bytes) {
  TERN_CHECK(max_bytes >= 0, "image cache: max_bytes must be >= 0, got ", max_bytes);
}

std::shared_ptr<const Image> ImageCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(key);
  ++(found == images_.end() ? misses_ : hits_);
  return found == images_.end() ? nullptr : found->second;
}

Image ImageCache::read(const std::string& path, const DecodeOptions& options) {
  // The options decide the pixels, and which images are refused.
  const std::string key = detail::concatenate(options.max_pixels, options.apply_orientation ? "+" : "-", path);
  if (const auto kept = find(key)) return *kept;
  Image image = read_image(path, options);
  const int64_t memory = cached_bytes(key, image);
  const auto has_room = [&] { return memory <= max_bytes_ - bytes_; };
  {
    const std::lock_guard lock(mutex_);
    if (!has_room()) return image;
  }
  auto copy = std::make_shared<const Image>(image);
  const std::lock_guard lock(mutex_);
  if (has_room() && images_.emplace(key, std::move(copy)).second) bytes_ += memory;
  return image;
}

int64_t ImageCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t ImageCache::hits() const {
  const std::lock_guard lock(mutex_);
  return hits_;
}

int64_t ImageCache::misses() const {
  const std::lock_guard lock(mutex_);
  return misses_;
}

}  // namespace tern::data
