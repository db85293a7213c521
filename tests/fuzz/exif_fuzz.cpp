// EXIF orientation, parsed and applied to an image.

#include <cstring>

#include "tern/tests/fuzz/images.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  // A copy of exactly this size, so that AddressSanitizer reports reads beyond the end.
  const std::string tiff(fuzz::text_of(data, size));
  const int orientation = data::exif_orientation(tiff);
  fuzz::require(orientation >= 1 && orientation <= 8);
  data::Image image(3, 5, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i);
  const data::Image turned = data::upright(image, orientation);
  fuzz::check(turned);
  fuzz::require(turned.height == (orientation > 4 ? 5 : 3) && turned.width == (orientation > 4 ? 3 : 5));
  return 0;
}
