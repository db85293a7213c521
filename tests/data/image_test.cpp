// Decoding of PNG and JPEG compared with Pillow's pixels, and of damaged files. tests/golden/images.safetensors
// (written by make_images.py) has for every kind of file NAME/file (its bytes), NAME/rgb (the pixels) and, if EXIF data
// rotates the image, NAME/upright.

#include "tern/data/images/image.h"

#include <algorithm>
#include <cstdio>
#include <map>
// After <cstdio>.
#include <jpeglib.h>

#include "tern/core/io/safetensors.h"
#include "tern/data/images/codec.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(tensor.nbytes())};
}

/// Cases by name: "file", "rgb" and, for some, "upright".
std::map<std::string, std::map<std::string, Tensor>> golden() {
  std::map<std::string, std::map<std::string, Tensor>> cases;
  for (const auto& [name, tensor] : load_safetensors(test::source_dir() + "/tests/golden/images.safetensors").tensors) {
    const size_t slash = name.find('/');
    cases[name.substr(0, slash)][name.substr(slash + 1)] = tensor;
  }
  return cases;
}

std::string golden_file(const std::string& name) { return bytes_of(golden().at(name).at("file")); }

/// The largest difference of any byte, or 1000 if the sizes differ.
int difference(const Image& image, const Tensor& expected) {
  const std::vector<uint8_t> pixels = expected.to_vector<uint8_t>();
  if (expected.shape() != Shape({image.height, image.width, image.channels})) return 1000;
  if (image.pixels.size() != pixels.size()) return 1000;
  int largest = 0;
  for (size_t i = 0; i < pixels.size(); ++i) largest = std::max(largest, std::abs(image.pixels[i] - pixels[i]));
  return largest;
}

std::string jpeg_of_size(uint32_t width, uint32_t height) {
  std::string bytes = golden_file("jpeg_444");
  const size_t frame = bytes.find("\xff\xc0");
  put_number(bytes, frame + 5, height, 2);
  put_number(bytes, frame + 7, width, 2);
  return bytes;
}

TEST(Decode, EqualsPillow) {
  const auto cases = golden();
  EXPECT_EQ(cases.size(), 34u);
  for (const auto& [name, tensors] : cases) {
    const std::string bytes = bytes_of(tensors.at("file"));
    const int allowed = name.starts_with("jpeg") ? 1 : 0;  // other versions of libjpeg-turbo may round differently
    EXPECT_LE(difference(decode_image(bytes, name, {.apply_orientation = false}), tensors.at("rgb")), allowed) << name;
    const bool turned = tensors.contains("upright");
    EXPECT_EQ(turned, name.starts_with("jpeg_exif") ? name != "jpeg_exif_1" : name == "png_exif_6") << name;
    EXPECT_LE(difference(decode_image(bytes, name), tensors.at(turned ? "upright" : "rgb")), allowed) << name;
  }
}

/// Encodes samples of a colour space as a JPEG file; `choose` sets what is not to be the library's default.
std::string encode_jpeg(const std::vector<uint8_t>& samples, int width, int height, J_COLOR_SPACE space,
                        const std::function<void(jpeg_compress_struct&)>& choose) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;  // NOLINT: the library's type
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = space == JCS_CMYK ? 4 : 3;
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  choose(info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(&samples[info.next_scanline * samples.size() / info.image_height]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(data), size);
  std::free(data);
  return bytes;
}

/// CMYK samples, inverted as Adobe writes them.
TEST(Decode, InksAreInvertedAndMultiplied) {
  constexpr int kWidth = 17, kHeight = 5;
  std::vector<uint8_t> inks(kWidth * kHeight * 4);
  for (size_t i = 0; i < inks.size(); ++i)  // low frequencies, which JPEG preserves
    inks[i] = static_cast<uint8_t>(128 + 120 * std::sin(0.02 * static_cast<double>(i) + static_cast<double>(i % 4)));
  for (const J_COLOR_SPACE space : {JCS_CMYK, JCS_YCCK}) {
    const std::string bytes = encode_jpeg(inks, kWidth, kHeight, JCS_CMYK, [&](jpeg_compress_struct& info) {
      jpeg_set_colorspace(&info, space);
      jpeg_set_quality(&info, 100, TRUE);
      for (int i = 0; i < 4; ++i) info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
    });
    const Image image = decode_image(bytes, "inks.jpg");
    ASSERT_EQ(image.pixels.size(), static_cast<size_t>(kWidth * kHeight * 3));
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const double expected = inks[i / 3 * 4 + i % 3] / 255.0 * inks[i / 3 * 4 + 3];
      ASSERT_NEAR(image.pixels[i], expected, space == JCS_CMYK ? 4 : 6) << space << " " << i;
    }
  }
}

TEST(Decode, SizeIsCheckedFirst) {
  const std::string small = golden_file("png_rgb");
  for (const std::string& bytes : {png_of_size(small, 30000, 30000), jpeg_of_size(30000, 30000)})
    EXPECT_EQ(error_of([&] { decode_image(bytes, "huge.png"); }),
              "huge.png: image of 30000 x 30000 pixels; the limit is 178956970 pixels");
  EXPECT_TRUE(fails([&] { decode_image(png_of_size(small, 0x7fffffff, 0x7fffffff), "x"); }, {"2147483647 x "}));
  EXPECT_TRUE(fails([&] { decode_image(png_of_size(small, 0, 3), "x"); }, {"x: damaged PNG image: "}));
  EXPECT_TRUE(fails([&] { decode_image(small, "x", {.max_pixels = 9 * 13 - 1}); }, {"13 x 9", "116"}));
  EXPECT_EQ(decode_image(small, "x", {.max_pixels = 9 * 13}).width, 13);
}

enum class Coding { kBaseline, kProgressive, kArithmetic };

/// An image of one colour, encoded in as few bytes as possible.
std::string smallest_jpeg(int width, int height, Coding coding, int sampling) {
  const std::vector<uint8_t> pixels(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, 128);
  return encode_jpeg(pixels, width, height, JCS_RGB, [&](jpeg_compress_struct& info) {
    info.optimize_coding = coding != Coding::kArithmetic;
    info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = sampling;
    if (coding == Coding::kProgressive) jpeg_simple_progression(&info);
    info.arith_code = coding == Coding::kArithmetic;
  });
}

TEST(Decode, WhatAJpegHeaderClaimsIsCheckedAgainstTheFile) {
  for (const Coding coding : {Coding::kBaseline, Coding::kProgressive, Coding::kArithmetic})
    for (const int sampling : {1, 2}) {
      const std::string bytes = smallest_jpeg(2500, 1999, coding, sampling);
      const Image image = decode_image(bytes, "plain.jpg");
      EXPECT_EQ(image.width, 2500);
      EXPECT_EQ(image.pixels[image.pixels.size() / 2], 128);
      // The same header with the largest size allowed.
      std::string claim = bytes;
      const size_t frame = claim.find(coding == Coding::kBaseline      ? "\xff\xc0"
                                      : coding == Coding::kProgressive ? "\xff\xc2"
                                                                       : "\xff\xc9");
      ASSERT_NE(frame, claim.npos);
      put_number(claim, frame + 5, 2732, 2);
      put_number(claim, frame + 7, 65500, 2);
      claim.resize(600);
      EXPECT_EQ(error_of([&] { decode_image(claim, "claim.jpg"); }),
                "claim.jpg: damaged JPEG image: 65500 x 2732 pixels do not fit into 600 bytes");
    }
  EXPECT_TRUE(fails([&] { decode_image(jpeg_of_size(1000, 1000), "x"); }, {"do not fit into "}));
}

TEST(Decode, OtherFormatsAreNamed) {
  const auto message = [](const std::string& bytes) { return error_of([&] { decode_image(bytes, "f"); }); };
  EXPECT_EQ(message(""), "f: not a PNG or JPEG image: it is empty");
  EXPECT_TRUE(contains(message("GIF89a...."), {"f: not a PNG or JPEG image: it is a GIF image"}));
  EXPECT_TRUE(contains(message("RIFF1234WEBPVP8 "), {"WebP"}));
  EXPECT_TRUE(contains(message("RIFF"), {"first bytes"}));
  EXPECT_TRUE(contains(message(std::string("\0\0\0\x1c", 4) + "ftypavif"), {"AVIF"}));
  EXPECT_TRUE(contains(message(std::string("\0\0", 2)), {"first bytes"}));
  EXPECT_TRUE(contains(message("<!DOCTYPE html>"), {"first bytes"}));
}

TEST(Decode, CutFilesAreErrors) {
  for (const char* name : {"png_rgb", "png_interlaced", "png_palette_8", "jpeg_420", "jpeg_progressive", "jpeg_cmyk"}) {
    const std::string whole = golden_file(name);
    for (size_t size = 0; size < whole.size(); size += 1 + size / 40)
      EXPECT_TRUE(fails([&] { decode_image(whole.substr(0, size), "cut"); }, {"cut: "})) << name << " of " << size;
    EXPECT_TRUE(fails([&] { decode_image(whole.substr(0, whole.size() - 3), "cut"); }, {"cut: damaged "}));
  }
}

// Any bytes give an image of the stated size, or an Error that begins with the name.
TEST(Decode, RandomDamageIsHarmless) {
  std::mt19937_64 random = fresh_random();
  int64_t errors = 0;
  for (const auto& [name, tensors] : golden()) {
    const std::string whole = bytes_of(tensors.at("file"));
    for (int trial = 0; trial < 60; ++trial) {
      std::string bytes = whole;
      for (size_t changes = 1 + random() % 4; changes > 0; --changes)
        bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
      if (trial % 3 == 0) bytes.erase(8 + random() % (bytes.size() - 8), 1 + random() % 9);
      const std::string error = error_of([&] {
        const Image image = decode_image(bytes, "damaged", {.max_pixels = 1 << 22});
        EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.height * image.width * 3));
      });
      if (error == "no error") continue;
      EXPECT_TRUE(error.starts_with("damaged: ")) << error;
      ++errors;
    }
  }
  EXPECT_GT(errors, 500);
}

TEST(Decode, ManyScansAreRefused) {
  // Repeats the first scan of a progressive file many times.
  std::string bytes = golden_file("jpeg_progressive");
  const size_t scan = bytes.find("\xff\xda"), next = bytes.find("\xff\xc4", scan);
  const std::string first = bytes.substr(scan, next - scan);
  for (int i = 0; i < 600; ++i) bytes.insert(scan, first);
  EXPECT_EQ(error_of([&] { decode_image(bytes, "slow.jpg"); }), "slow.jpg: damaged JPEG image: more than 500 scans");
}

std::string tiff(bool little, uint32_t tag, uint32_t type, uint32_t value) {
  std::string bytes(26, '\0');
  const auto put = [&](size_t at, uint32_t number, int count) {
    for (int i = 0; i < count; ++i)
      bytes[at + static_cast<size_t>(little ? i : count - 1 - i)] = static_cast<char>(number >> 8 * i);
  };
  bytes[0] = bytes[1] = little ? 'I' : 'M';
  put(2, 42, 2);
  put(4, 8, 4);
  put(8, 1, 2);
  put(10, tag, 2);
  put(12, type, 2);
  put(14, 1, 4);
  put(18, value, 2);
  return bytes;
}

TEST(Orientation, DamagedDataMeansUpright) {
  for (const bool little : {false, true}) {
    EXPECT_EQ(exif_orientation(tiff(little, 274, 3, 6)), 6);
    EXPECT_EQ(exif_orientation(tiff(little, 274, 3, 9)), 1);
    EXPECT_EQ(exif_orientation(tiff(little, 274, 3, 0)), 1);
    EXPECT_EQ(exif_orientation(tiff(little, 274, 4, 6)), 1);
    EXPECT_EQ(exif_orientation(tiff(little, 275, 3, 6)), 1);
    const std::string whole = tiff(little, 274, 3, 6);
    for (size_t size = 0; size < 22; ++size) EXPECT_EQ(exif_orientation(whole.substr(0, size)), 1) << size;
  }
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = tiff(trial % 2 == 0, 274, 3, 6);
    for (int i = 0; i < 3; ++i) bytes[4 + random() % 20] = static_cast<char>(random());
    const int orientation = exif_orientation(bytes);
    EXPECT_TRUE(orientation >= 1 && orientation <= 8);
  }
}

TEST_F(FolderTest, WrittenPngIsReadBack) {
  std::mt19937_64 random = fresh_random();
  for (const auto& [height, width] : {std::pair(1, 1), {7, 1}, {1, 9}, {33, 65}})
    for (int channels = 1; channels <= 4; ++channels) {
      Image image(height, width, channels);
      for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random());
      const std::string path = (root() / "maps" / "a.png").string();
      write_png(path, image);
      const Image read = read_image(path);
      ASSERT_EQ(read.width, width);
      ASSERT_EQ(read.height, height);
      for (int64_t i = 0; i < height * width * 3; ++i)
        ASSERT_EQ(read.pixels[i], image.pixels[i / 3 * channels + (channels < 3 ? 0 : i % 3)]) << channels;
    }
}

TEST_F(FolderTest, ErrorsNameTheFile) {
  const std::string path = write("bad.jpg", golden_file("jpeg_420").substr(0, 400));
  EXPECT_TRUE(fails([&] { read_image(path); }, {path + ": damaged JPEG image: "}));
  EXPECT_TRUE(fails([&] { read_image(root() / "none.png"); }, {"cannot open", "none.png"}));
  EXPECT_TRUE(fails([&] { read_image(root()); }, {"not a regular file"}));
  EXPECT_TRUE(fails([] { encode_png(Image(3, 3, 5)); }, {"5 channels"}));
  EXPECT_TRUE(fails([] { encode_png(Image(0, 3, 3)); }, {"3 x 0 pixels"}));
  Image wrong(3, 3, 3);
  wrong.pixels.pop_back();
  EXPECT_TRUE(fails([&] { encode_png(wrong); }, {"26 bytes"}));
}

}  // namespace
}  // namespace tern::data
