// JPEG by libjpeg-turbo.

#include <algorithm>
#include <cstddef>
#include <cstdio>
// These two in this order, after <cstddef> and <cstdio>.
#include <jpeglib.h>
//
#include <jerror.h>

#include "tern/data/images/codec.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr uint64_t kAlwaysAllowed = uint64_t{1} << 18;  // 8 x 8 blocks: 16 million samples
constexpr int kMaxScans = 500;                          // a small progressive file with many scans would take minutes

struct JpegErrors : jpeg_error_mgr {
  CodecFailure failure;
};

[[noreturn]] void end_by_error(j_common_ptr info) {
  CodecFailure& failure = static_cast<JpegErrors*>(info->err)->failure;
  char text[JMSG_LENGTH_MAX] = {};
  info->err->format_message(info, text);
  std::snprintf(failure.message, sizeof failure.message, "%s", text);
  std::longjmp(failure.back, 1);
}

/// Fails on warnings that mean missing pixels; other warnings (odd markers) are ignored.
void take_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      end_by_error(info);
    default:
      break;
  }
}

void watch_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  CodecFailure& failure = static_cast<JpegErrors*>(info->err)->failure;
  std::snprintf(failure.message, sizeof failure.message, "more than %d scans", kMaxScans);
  std::longjmp(failure.back, 1);
}

/// Decodes one image. The object must not move: the library keeps pointers into it.
class JpegReader {
 public:
  JpegReader(std::string_view bytes, const std::string& name) : name_(name), file_bytes_(bytes.size()) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = end_by_error;
    errors_.emit_message = take_message;
    errors_.output_message = [](j_common_ptr) {};
    require([&] {
      jpeg_create_decompress(&info_);
      progress_.progress_monitor = watch_scans;
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    });
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }  // safe to call twice
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Image decode(const DecodeOptions& options) {
    require([&] {
      if (options.apply_orientation) jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);
      jpeg_read_header(&info_, TRUE);
    });
    check_size(name_, info_.image_width, info_.image_height, options);
    const int parts = info_.num_components;
    TERN_CHECK(parts == 1 || parts == 3 || parts == 4, name_, ": a JPEG image of ", parts,
               " components; expected 1, 3 or 4");
    check_claims();
    const bool inks = parts == 4;
    require([&] {
      info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
      jpeg_start_decompress(&info_);
    });
    Image image(info_.output_height, info_.output_width, 3);
    if (inks)
      read_inks(image);
    else
      read_rows(image);
    return options.apply_orientation ? upright(std::move(image), orientation()) : image;
  }

 private:
  template <class Step>
  void require(Step&& step) {
    if (attempt(errors_.failure, step)) return;
    jpeg_destroy_decompress(&info_);  // the destructor does not run if a constructor throws
    fail(name_, ": damaged JPEG image: ", errors_.failure.message);
  }

  /// Before the pixels are allocated: checks that the file has enough bytes for the number of blocks it declares.
  void check_claims() const {
    uint64_t blocks = 0;  // of 8 x 8 samples, of all components
    for (int i = 0; i < info_.num_components; ++i)
      blocks += uint64_t{info_.comp_info[i].width_in_blocks} * info_.comp_info[i].height_in_blocks;
    // Lower bound on the coded size. The shortest Huffman code is one bit: a block needs one for its first coefficient
    // and, unless scans are progressive, one for the end of block. Arithmetic coding has no such bound: a file may
    // declare kAlwaysAllowed blocks, and beyond those as many per byte as deflate could produce (PNG).
    const uint64_t coded = info_.arith_code ? blocks - std::min(blocks, kAlwaysAllowed) : blocks;
    const uint64_t blocks_a_byte = info_.arith_code ? 1024 : info_.progressive_mode ? 8 : 4;
    TERN_CHECK(coded / blocks_a_byte <= file_bytes_, name_, ": damaged JPEG image: ", info_.image_width, " x ",
               info_.image_height, " pixels do not fit into ", file_bytes_, " bytes");
  }

  void read_rows(Image& image) {
    require([&] {
      constexpr int64_t kRows = 16;
      JSAMPROW rows[kRows];
      while (info_.output_scanline < info_.output_height) {
        const int64_t first = info_.output_scanline, count = std::min<int64_t>(kRows, image.height - first);
        for (int64_t i = 0; i < count; ++i) rows[i] = image.row(first + i);
        jpeg_read_scanlines(&info_, rows, static_cast<JDIMENSION>(count));
      }
    });
  }

  /// CMYK samples, stored inverted.
  void read_inks(Image& image) {
    std::vector<uint8_t> inks(static_cast<size_t>(image.width) * 4);
    require([&] {
      JSAMPROW row = inks.data();
      while (info_.output_scanline < info_.output_height) {
        uint8_t* out = image.row(info_.output_scanline);
        jpeg_read_scanlines(&info_, &row, 1);
        for (int64_t x = 0; x < image.width; ++x) {
          for (int64_t c = 0; c < 3; ++c) {
            const int black = inks[x * 4 + 3];  // 255: no black ink
            const int product = (255 - inks[x * 4 + c]) * black + 128;
            out[x * 3 + c] = static_cast<uint8_t>(std::max(0, black - (((product >> 8) + product) >> 8)));
          }
        }
      }
    });
  }

  int orientation() const {
    for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      constexpr std::string_view kExif("Exif\0\0", 6);
      if (data.starts_with(kExif)) return exif_orientation(data.substr(kExif.size()));
    }
    return 1;
  }

  const std::string& name_;
  const uint64_t file_bytes_;
  jpeg_decompress_struct info_{};
  jpeg_progress_mgr progress_{};
  JpegErrors errors_{};
};

}  // namespace

Image decode_jpeg(std::string_view bytes, const std::string& name, const DecodeOptions& options) {
  return JpegReader(bytes, name).decode(options);
}

}  // namespace tern::data
