#include "tern/data/images/image.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <initializer_list>

#include "tern/core/tensor/size_checks.h"
#include "tern/data/files/files.h"
#include "tern/data/files/text.h"
#include "tern/data/images/codec.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

Image::Image(int64_t h, int64_t w, int64_t c) : height(h), width(w), channels(c) {
  TERN_CHECK(h >= 0 && w >= 0 && c >= 0, "image: sizes must be >= 0, got ", w, " x ", h, " pixels of ", c, " channels");
  const int64_t bytes = tern::detail::checked_product("image", tern::detail::checked_product("image", w, c), h);
  tern::detail::check_host_list("image", bytes, 1);
  pixels.resize(static_cast<size_t>(bytes));
}
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n", kJpeg = "\xff\xd8\xff";

/// Whether the path's extension is one of these, in any case.
bool has_extension(const std::string& path, std::initializer_list<std::string_view> extensions) {
  const std::string extension = lower_ascii(std::filesystem::path(path).extension().string());
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

/// Other formats that end up in image folders.
const char* other_format(std::string_view bytes) {
  if (bytes.starts_with("GIF8")) return "it is a GIF image";
  if (bytes.starts_with("BM")) return "it is a BMP image";
  if (bytes.starts_with("II*\0"sv) || bytes.starts_with("MM\0*"sv)) return "it is a TIFF image";
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return "it is a WebP image";
  if (bytes.substr(0, 12).substr(std::min<size_t>(4, bytes.size())).starts_with("ftyp"))
    return "it is an AVIF or HEIF image";
  return bytes.empty() ? "it is empty" : "its first bytes are those of neither";
}

/// Bytes of a TIFF structure in its own byte order; nothing past its end is read.
class TiffReader {
 public:
  explicit TiffReader(std::string_view bytes) : bytes_(bytes), little_(bytes.starts_with("II")) {}

  bool has(size_t at, size_t count) const { return at <= bytes_.size() && count <= bytes_.size() - at; }
  uint32_t number(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i)
      value = value << 8 | static_cast<uint8_t>(bytes_[little_ ? at + count - 1 - i : at + i]);
    return value;
  }

 private:
  std::string_view bytes_;
  bool little_;
};

}  // namespace

void check_size(const std::string& name, int64_t width, int64_t height, const DecodeOptions& options) {
  TERN_CHECK(width > 0 && height > 0, name, ": image of ", width, " x ", height, " pixels");
  TERN_CHECK(width <= options.max_pixels / height, name, ": image of ", width, " x ", height, " pixels; the limit is ",
             options.max_pixels, " pixels");
}

int exif_orientation(std::string_view tiff) {
  constexpr size_t kEntryBytes = 12;
  constexpr uint32_t kOrientation = 274, kShort = 3;
  const TiffReader reader(tiff);
  if (!reader.has(0, 8) || !(tiff.starts_with("II*\0"sv) || tiff.starts_with("MM\0*"sv))) return 1;
  const size_t directory = reader.number(4, 4);
  if (!reader.has(directory, 2)) return 1;
  const size_t entries = reader.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * kEntryBytes;
    if (!reader.has(at, kEntryBytes)) return 1;
    if (reader.number(at, 2) != kOrientation) continue;
    const uint32_t value = reader.number(at + 8, 2);
    return reader.number(at + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool turned = orientation >= 5;  // rows are stored as columns
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image result(turned ? image.width : image.height, turned ? image.height : image.width, image.channels);
  const size_t pixel = static_cast<size_t>(image.channels);
  for (int64_t y = 0; y < result.height; ++y) {
    uint8_t* out = result.row(y);
    for (int64_t x = 0; x < result.width; ++x, out += pixel) {
      const int64_t row = turned ? x : y, column = turned ? y : x;
      const uint8_t* in = image.row(from_bottom ? image.height - 1 - row : row) +
                          static_cast<size_t>(from_right ? image.width - 1 - column : column) * pixel;
      std::memcpy(out, in, pixel);
    }
  }
  return result;
}

Image decode_image(std::string_view bytes, const std::string& name, const DecodeOptions& options) {
  if (bytes.starts_with(kPng)) return decode_png(bytes, name, options);
  if (bytes.starts_with(kJpeg)) return decode_jpeg(bytes, name, options);
  fail(name, ": not a PNG or JPEG image: ", other_format(bytes));
}

Image read_image(const std::string& path, const DecodeOptions& options) {
  std::string bytes;
  read_file(path, bytes);
  return decode_image(bytes, path, options);
}

void write_png(const std::string& path, const Image& image) {
  const std::string bytes = encode_png(image);
  write_file_atomically(path, {bytes});
}

bool has_image_extension(const std::string& path) {
  return has_extension(path, {".png", ".jpg", ".jpeg", ".jpe", ".jfif"});
}

bool has_other_image_extension(const std::string& path) {
  return has_extension(path, {".webp", ".bmp", ".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl",
                              ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".ico", ".svg"});
}

bool is_decodable(std::string_view bytes) { return bytes.starts_with(kPng) || bytes.starts_with(kJpeg); }

}  // namespace tern::data
