// JPEG images, and anything that decode_image recognises as an image.

#include "tern/tests/fuzz/images.h"

void tern::fuzz::try_input(std::string_view bytes) {
  read([&] { check(data::decode_jpeg(bytes, "input", {.max_pixels = kMaxPixels})); });
  read([&] { check(data::decode_image(bytes, "input", {.apply_orientation = false, .max_pixels = kMaxPixels})); });
}
