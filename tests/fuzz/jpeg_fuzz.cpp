// JPEG images, and anything that decode_image recognises as an image.

#include "tern/tests/fuzz/images.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::read([&] { fuzz::check(data::decode_jpeg(bytes, "input", {.max_pixels = fuzz::kMaxPixels})); });
  fuzz::read([&] {
    fuzz::check(data::decode_image(bytes, "input", {.apply_orientation = false, .max_pixels = fuzz::kMaxPixels}));
  });
  return 0;
}
