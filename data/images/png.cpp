// PNG by libpng.

#include <png.h>

#include <cstdio>
#include <cstring>

#include "tern/data/images/codec.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

[[noreturn]] void end_by_error(png_structp png, png_const_charp message) {
  auto& failure = *static_cast<CodecFailure*>(png_get_error_ptr(png));
  std::snprintf(failure.message, sizeof failure.message, "%s", message);
  std::longjmp(failure.back, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

class PngReader {
 public:
  PngReader(std::string_view bytes, const std::string& name) : name_(name), file_bytes_(bytes.size()), rest_(bytes) {
    require([&] {
      png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure_, end_by_error, ignore_warning);
      if (png_ == nullptr) return;
      info_ = png_create_info_struct(png_);
      if (info_ == nullptr) return;
      png_set_read_fn(png_, this, [](png_structp png, png_bytep out, size_t count) {
        std::string_view& rest = static_cast<PngReader*>(png_get_io_ptr(png))->rest_;
        if (count > rest.size()) png_error(png, "the file ends early");
        std::memcpy(out, rest.data(), count);
        rest.remove_prefix(count);
      });
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size() decides
      // Skips chunks that do not affect the pixels.
      static const png_byte kSkipped[] = "gAMA\0cHRM\0sRGB\0iCCP\0sBIT\0bKGD\0hIST\0tEXt\0zTXt\0iTXt\0pHYs\0sPLT\0tIME";
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kSkipped, static_cast<int>(sizeof kSkipped / 5));
    });
    if (info_ == nullptr) {
      close();
      fail(name_, ": no memory for the PNG decoder");
    }
  }
  ~PngReader() { close(); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Image decode(const DecodeOptions& options) {
    require([&] { png_read_info(png_, info_); });
    const int64_t width = png_get_image_width(png_, info_), height = png_get_image_height(png_, info_);
    check_size(name_, width, height, options);
    // Checked before the pixels are allocated: deflate expands one byte to at most 1,032.
    const auto raw_bytes = static_cast<uint64_t>(height) * png_get_rowbytes(png_, info_);
    TERN_CHECK(raw_bytes / 1032 <= file_bytes_, name_, ": damaged PNG image: ", width, " x ", height,
               " pixels do not fit into ", file_bytes_, " bytes");
    Image image(height, width, 3);
    require([&] {
      convert_to_rgb();
      const int passes = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      if (png_get_rowbytes(png_, info_) != static_cast<size_t>(image.row_bytes()))
        png_error(png_, "unexpected kind of pixels");
      for (int pass = 0; pass < passes; ++pass) {
        for (int64_t y = 0; y < image.height; ++y) png_read_row(png_, image.row(y), nullptr);
      }
      png_read_end(png_, info_);
    });
    return options.apply_orientation ? upright(std::move(image), orientation()) : image;
  }

 private:
  template <class Step>
  void require(Step&& step) {
    if (attempt(failure_, step)) return;
    close();  // the destructor does not run if a constructor throws
    fail(name_, ": damaged PNG image: ", failure_.message);
  }

  void close() { png_destroy_read_struct(&png_, &info_, nullptr); }

  void convert_to_rgb() {
    const int kind = png_get_color_type(png_, info_), bits = png_get_bit_depth(png_, info_);
    if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (kind == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (bits == 16) png_set_strip_16(png_);
    if ((kind & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);  // also for palettes
  }

  int orientation() {
    png_uint_32 count = 0;
    png_bytep data = nullptr;
    if (png_get_eXIf_1(png_, info_, &count, &data) == 0 || data == nullptr) return 1;
    return exif_orientation({reinterpret_cast<const char*>(data), count});
  }

  const std::string& name_;
  const uint64_t file_bytes_;
  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  CodecFailure failure_;
};

struct PngWriter {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string bytes;
  CodecFailure failure;

  PngWriter() = default;
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  static void append(png_structp png, png_bytep data, size_t count) {
    bool stored = true;
    try {
      static_cast<PngWriter*>(png_get_io_ptr(png))->bytes.append(reinterpret_cast<const char*>(data), count);
    } catch (const std::bad_alloc&) {
      stored = false;  // an exception must not propagate through the C library
    }
    if (!stored) png_error(png, "no memory");
  }

  bool write(const Image& image) {
    static constexpr int kKinds[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                     PNG_COLOR_TYPE_RGB_ALPHA};
    return attempt(failure, [&] {
      png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &failure, end_by_error, ignore_warning);
      info = png == nullptr ? nullptr : png_create_info_struct(png);
      if (info == nullptr) {
        std::snprintf(failure.message, sizeof failure.message, "no memory");
        std::longjmp(failure.back, 1);
      }
      png_set_write_fn(png, this, append, nullptr);
      png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      png_set_IHDR(png, info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
                   kKinds[image.channels - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                   PNG_FILTER_TYPE_DEFAULT);
      png_write_info(png, info);
      for (int64_t y = 0; y < image.height; ++y) png_write_row(png, image.row(y));
      png_write_end(png, nullptr);
    });
  }
};

}  // namespace

Image decode_png(std::string_view bytes, const std::string& name, const DecodeOptions& options) {
  return PngReader(bytes, name).decode(options);
}

std::string encode_png(const Image& image) {
  const int64_t max_side = PNG_UINT_31_MAX;
  TERN_CHECK(image.channels >= 1 && image.channels <= 4 && image.width > 0 && image.height > 0 &&
                 image.width <= max_side && image.height <= max_side,
             "encode_png: expected an image of 1 to 4 channels, got one of ", image.width, " x ", image.height,
             " pixels and ", image.channels, " channels");
  TERN_CHECK(static_cast<int64_t>(image.pixels.size()) / image.height == image.row_bytes() &&
                 static_cast<int64_t>(image.pixels.size()) % image.height == 0,
             "encode_png: ", image.pixels.size(), " bytes for ", image.width, " x ", image.height, " pixels of ",
             image.channels, " channels");
  PngWriter writer;
  TERN_CHECK(writer.write(image), "encode_png: ", writer.failure.message);
  return std::move(writer.bytes);
}

}  // namespace tern::data
