#pragma once
// What the decoders of the formats share. libpng and libjpeg report errors by longjmp, which must not pass over objects
// with a destructor: all state lives in an object outside of attempt(), and what runs inside has trivial locals alone.

#include <csetjmp>
#include <cstdint>
#include <string>
#include <string_view>

#include "tern/data/images/image.h"

namespace tern::data {

/// Where a library's error goes.
struct CodecFailure {
  jmp_buf back;
  char message[256] = {};
};

/// False when `step` ended by longjmp to failure.back. An exception passes through, but must not come from inside the
/// library's own code.
template <class Step>
bool attempt(CodecFailure& failure, Step&& step) {
  if (setjmp(failure.back) != 0) return false;
  step();
  return true;
}

Image decode_png(std::string_view bytes, const std::string& name, const DecodeOptions& options);
Image decode_jpeg(std::string_view bytes, const std::string& name, const DecodeOptions& options);

/// Throws Error when an image has no pixels or more than the options allow.
void check_size(const std::string& name, int64_t width, int64_t height, const DecodeOptions& options);

/// EXIF's tag 274 in a TIFF structure: 1 (upright) to 8. 1 where it is missing or damaged.
int exif_orientation(std::string_view tiff);
/// The upright image of one stored with an orientation of 1 to 8.
Image upright(Image image, int orientation);

}  // namespace tern::data
