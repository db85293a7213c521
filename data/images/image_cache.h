#pragma once
// Decoded images that stay in memory.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tern/data/images/image.h"

namespace tern::data {

/// Images of files, decoded once while there is room. Nothing is evicted: an epoch reads every image once, so that each
/// kept one is a hit in every epoch, while the least recently used ones would be evicted before they are needed again
/// (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021). A file that changes afterwards is
/// not read again. All methods may be called from several threads.
class ImageCache {
 public:
  /// Throws Error for a negative number of bytes.
  explicit ImageCache(int64_t max_bytes);

  /// read_image(path, options), the same pixels whether they were kept or not. An image that cannot be read is not
  /// kept, and its Error is thrown at every call.
  Image read(const std::string& path, const DecodeOptions& options = {});

  /// Memory of the kept images, at most max_bytes.
  int64_t bytes() const;
  /// Calls of read() that found the image, and those that decoded it.
  int64_t hits() const;
  int64_t misses() const;

 private:
  std::shared_ptr<const Image> find(const std::string& key);

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Image>> images_;
  int64_t bytes_ = 0, hits_ = 0, misses_ = 0;
};

}  // namespace tern::data
