// EXIF orientation, parsed and applied to an image.

#include "tern/tests/fuzz/images.h"

void tern::fuzz::try_input(std::string_view input) {
  // A copy of exactly this size, so that AddressSanitizer reports reads beyond the end.
  const std::string tiff(input);
  const int orientation = data::exif_orientation(tiff);
  require(orientation >= 1 && orientation <= 8);
  data::Image image(3, 5, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i);
  const data::Image turned = data::upright(image, orientation);
  check(turned);
  require(turned.height == (orientation > 4 ? 5 : 3) && turned.width == (orientation > 4 ? 3 : 5));
}
