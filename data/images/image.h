#pragma once
// Images in memory, read from PNG and JPEG files and written as PNG.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::data {

/// Pixels uint8 [height, width, channels], rows from the top, without gaps. Channels: 1 grey, 2 grey and alpha, 3 red,
/// green, blue, 4 with alpha.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;

  Image() = default;
  /// Zeros. Throws Error when a size is negative, and when the pixels do not fit into memory.
  Image(int64_t h, int64_t w, int64_t c);

  int64_t row_bytes() const { return width * channels; }
  uint8_t* row(int64_t y) { return pixels.data() + y * row_bytes(); }
  const uint8_t* row(int64_t y) const { return pixels.data() + y * row_bytes(); }
};

struct DecodeOptions {
  /// Rotates and mirrors the image by its EXIF orientation (PIL's ImageOps.exif_transpose). Without it the pixels stay
  /// as they are stored, as in torchvision's ImageFolder.
  bool apply_orientation = true;
  /// Larger images are refused before they are decoded (PIL: DecompressionBombError).
  int64_t max_pixels = 178956970;
};

/// A PNG or JPEG image (recognised by its first bytes) as 3 channels, red, green, blue: the pixels of PIL's
/// `Image.open(...).convert("RGB")`. Grey is repeated, a palette looked up, alpha dropped (not blended), 16 bits are
/// cut to the upper 8 (as PIL does, except for grey, where it makes everything above 255 white), CMYK and YCCK are
/// read as inverted, as Adobe writes them. An animation gives its first picture. Colour profiles and gamma are ignored.
/// Throws Error that begins with `name`: neither format, damaged, truncated, too large. A JPEG image whose decoder
/// lost pixel data counts as damaged (PIL shows it with a part in grey).
Image decode_image(std::string_view bytes, const std::string& name, const DecodeOptions& options = {});

/// decode_image of a file's contents. Also throws Error when it cannot be read.
Image read_image(const std::string& path, const DecodeOptions& options = {});

/// A PNG file of 8 bits a channel. Throws Error unless the image has 1 to 4 channels, a pixel or more, and matching
/// sizes.
std::string encode_png(const Image& image);
/// encode_png to a file, which appears complete or not at all. Creates the folder.
void write_png(const std::string& path, const Image& image);

/// True when a file's name ends as those of PNG and JPEG images do, in any case: .png, .jpg, .jpeg, .jpe or .jfif.
bool has_image_extension(const std::string& path);
/// True when it ends as those of images of other formats do: .webp, .bmp, .gif, .tif and so on.
bool has_other_image_extension(const std::string& path);
/// True when the first bytes are those of a PNG or JPEG image.
bool is_decodable(std::string_view bytes);

}  // namespace tern::data
