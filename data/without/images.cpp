// TERN_IMAGES=OFF.

#include "tern/data/images/codec.h"
#include "tern/data/images/image.h"
#include "tern/data/without/part.h"

namespace tern::data {

Image decode_png(std::string_view, const std::string& name, const DecodeOptions&) {
  fail_without(name + ": cannot decode a PNG image", "libpng", "TERN_IMAGES");
}

Image decode_jpeg(std::string_view, const std::string& name, const DecodeOptions&) {
  fail_without(name + ": cannot decode a JPEG image", "libjpeg", "TERN_IMAGES");
}

std::string encode_png(const Image&) { fail_without("cannot encode a PNG image", "libpng", "TERN_IMAGES"); }

}  // namespace tern::data
