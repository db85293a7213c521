#pragma once
// Shared by the image decoders. libpng and libjpeg report errors by longjmp, which must not skip destructors: all state
// lives in an object outside attempt(), and the code inside attempt() has only trivial local variables.

#include <csetjmp>
#include <cstdint>
#include <string>
#include <string_view>

#include "tern/data/images/image.h"

namespace tern::data {

/// The target of a library's error longjmp.
struct CodecFailure {
  jmp_buf back;
  char message[256] = {};
};

/// Returns false if `step` ended by longjmp to failure.back. Exceptions propagate, but must not be thrown through the
/// library's C frames.
template <class Step>
bool attempt(CodecFailure& failure, Step&& step) {
  if (setjmp(failure.back) != 0) return false;
  step();
  return true;
}

Image decode_png(std::string_view bytes, const std::string& name, const DecodeOptions& options);
Image decode_jpeg(std::string_view bytes, const std::string& name, const DecodeOptions& options);

/// Throws Error if an image has no pixels or exceeds the limits of the options.
void check_size(const std::string& name, int64_t width, int64_t height, const DecodeOptions& options);

/// EXIF tag 274 (orientation) of a TIFF structure: 1 (upright) to 8. 1 if it is missing or damaged.
int exif_orientation(std::string_view tiff);
/// Turns an image stored with orientation 1 to 8 upright.
Image upright(Image image, int orientation);

}  // namespace tern::data
