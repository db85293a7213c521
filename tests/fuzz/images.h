#pragma once
#include "tern/data/images/codec.h"
#include "tern/tests/fuzz/fuzz.h"

namespace tern::fuzz {

inline void check(const data::Image& image) {
  require(image.height > 0 && image.width > 0 && image.channels == 3);
  require(static_cast<int64_t>(image.pixels.size()) == image.height * image.row_bytes());
}

constexpr int64_t kMaxPixels = 1 << 20;

}  // namespace tern::fuzz
