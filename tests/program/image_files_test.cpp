// Folders of images as users have them: all kinds of PNG and JPEG, and files that only have their names.

#include <sys/stat.h>
#include <zlib.h>

#include "tern/core/io/safetensors.h"
#include "tern/data/images/image.h"
#include "tern/tests/program/program.h"

namespace tern::program {
namespace {

class ImageFilesTest : public ProgramTest {
 protected:
  /// Writes a class of single-colour images.
  void write_class(const std::string& name, int count, int side = 12) const {
    for (int i = 0; i < count; ++i) {
      data::Image image(side, side, 3);
      std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(i * 20));
      data::write_png(file("photos/" + name + "/" + std::to_string(i) + ".png"), image);
    }
  }
  void write_classes(int count = 8) const {
    write_class("cat", count);
    write_class("dog", count);
  }
  /// `more` replaces flags.
  static Words train(const Words& more = {}) {
    return "train vit" + with_defaults("--data photos --out run --image-size 8 --batch-size 8 --threads 1", more);
  }
  /// Without a validation part, for two steps.
  static Words train_all(const std::string& out = "run") { return train("--max-steps 2 --split all --out " + out); }
  static std::map<std::string, std::string> golden() {
    std::map<std::string, std::string> files;
    for (const auto& [name, tensor] : load_safetensors(kGolden + "images.safetensors").tensors)
      if (name.ends_with("/file"))
        files[name.substr(0, name.find('/'))] = {static_cast<const char*>(tensor.raw_data()),
                                                 static_cast<size_t>(tensor.nbytes())};
    return files;
  }
  /// A PNG file without pixels whose header declares some.
  static std::string claim(uint32_t width, uint32_t height) {
    std::string bytes = golden().at("png_rgb");
    for (int i = 0; i < 4; ++i) {
      bytes[16 + i] = static_cast<char>(width >> 8 * (3 - i));
      bytes[20 + i] = static_cast<char>(height >> 8 * (3 - i));
    }
    const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(&bytes[12]), 17);
    for (int i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(crc >> 8 * (3 - i));
    return bytes;
  }
  static int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
    return count;
  }
};

TEST_F(ImageFilesTest, EveryKindOfPixelsIsRead) {
  write_classes(1);
  Words predict = "predict run";
  for (const auto& [name, bytes] : golden()) {
    const std::string path = "photos/cat/" + name + (name.starts_with("png") ? ".png" : ".JPEG");
    write(path, bytes);
    predict.push_back(path);
  }
  const Result trained = succeeds(train_all());
  EXPECT_FALSE(has(trained.err, "skipped"));
  const Result predicted = succeeds(predict);
  EXPECT_EQ(lines_of(predicted.out).size(), predict.size() - 2);
}

TEST_F(ImageFilesTest, WhatIsNoImageIsNamedOnceAndSkipped) {
  write_classes();
  const auto files = golden();
  const auto cut = [&](const char* name) { return files.at(name).substr(0, files.at(name).size() / 2); };
  write("photos/cat/cut.png", cut("png_rgb"));
  write("photos/cat/cut.jpg", cut("jpeg_420"));
  write("photos/cat/empty.png", "");
  write("photos/cat/gif.png", "GIF89a....");
  write("photos/cat/huge.png", claim(30000, 30000));
  write("photos/dog/bomb.png", claim(13000, 13000));  // within the limit, but without data
  write("photos/dog/name\xff\n\x1b[31m.png", "");     // invalid UTF-8 and control characters
  fs::create_symlink("nowhere.png", file("photos/dog/dangling.png"));
  fs::create_symlink("loop.png", file("photos/dog/loop.png"));
  ASSERT_EQ(mkfifo(file("photos/dog/pipe.png").c_str(), 0600), 0);
  fs::create_directories(file("photos/dog/folder.png"));
  fs::copy(file("photos/dog/0.png"), file("photos/dog/folder.png/inside.png"));
  // Fixed seed, so that both halves have valid images of both classes.
  const Result trained = succeeds(train("--epochs 3 --split 50/50/0 --seed 1"));
  for (const char* name : {"cut.png: damaged", "cut.jpg: damaged", "empty.png: not a PNG or JPEG image: it is empty",
                           "gif.png: not a PNG or JPEG image: it is a GIF", "huge.png: image of 30000 x 30000 pixels",
                           "bomb.png: ", "dangling.png", "loop.png", "pipe.png: not a regular file", "name\\xff\\x0a"})
    EXPECT_EQ(count_of(trained.err, name), 1) << name << " in " << trained.err;
  EXPECT_EQ(count_of(trained.err, "skipped: "), 10) << trained.err;
  EXPECT_FALSE(has(trained.err, "\x1b"));
  test::expect_peak_below(trained.peak_kib, 350 << 10, "the bomb's pixels were unpacked");
}

TEST_F(ImageFilesTest, TooManyOfThemEndTheRun) {
  write_classes(60);
  for (int i = 0; i < 101; ++i) write("photos/cat/bad" + std::to_string(i) + ".png", "");
  const Result stopped = tern(train("--epochs 1 --split all"));
  expect_error(stopped, 1, {"photos: more than 100 images cannot be read; the last: photos/cat/bad"});
  EXPECT_EQ(count_of(stopped.err, "skipped: "), 100);
}

TEST_F(ImageFilesTest, FoldersThatAreNoDataSet) {
  write_class("cat", 4);
  expect_error(tern(train_all()), 1, {"photos: every image has the label 'cat'", "two or more"});
  fs::create_directories(file("photos/dog"));
  expect_error(tern(train_all()), 1, {"photos/dog: no images (.png, .jpg, .jpeg) for this label"});
  fs::remove(file("photos/dog"));
  write_class("bad\xff", 4);
  expect_error(tern(train_all()), 1, {"photos/bad\\xff", "label", "UTF-8"});
  fs::remove_all(file("photos/bad\xff"));
  fs::create_directory_symlink(file("photos"), file("photos/cat/again"));
  expect_error(tern(train_all()), 1, {"cat/again", "a link to a folder that it is in"});
  fs::remove(file("photos/cat/again"));
  write_class("dog", 4);
  for (int i = 0; i < 4; ++i)
    for (const char* name : {"cat", "dog"})
      write("photos/" + std::string(name) + "/" + std::to_string(i) + ".png", "broken");
  expect_error(tern(train_all()), 1, {"photos: none of its 8 images can be read"});
  EXPECT_FALSE(exists("run"));
}

TEST_F(ImageFilesTest, AFolderWhoseNameIsNotUtf8) {
  write_classes();
  fs::rename(file("photos"), file("p\xe9"));
  succeeds(train("--max-steps 1 --data p\xe9"));
  succeeds("eval run --data p\xe9");
  succeeds("predict run p\xe9/cat/0.png");
}

TEST_F(ImageFilesTest, AFileThatMayNotBeRead) {
  if (getuid() != 0) GTEST_SKIP() << "root: becomes another user";
  write_classes();
  fs::permissions(file("photos/cat/3.png"), fs::perms::none);
  fs::create_directories(file("out"));
  fs::permissions(file("out"), fs::perms::all);
  const Result trained = succeeds(train_all("out/run"), as_another_user());
  EXPECT_EQ(count_of(trained.err, "skipped: cannot open photos/cat/3.png: Permission denied"), 1) << trained.err;
}

/// Other damage: tests/data/cifar10_test.cpp.
TEST_F(ImageFilesTest, DamagedCifar10) {
  for (const std::string& name : Words("data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch")) {
    write("bin/" + name + ".bin", "");
    fs::resize_file(file("bin/" + name + ".bin"), 30730000 + (name == "test_batch" ? 1 : 0));
  }
  const Words train = "train vit --out run --max-steps 1 --data";
  expect_error(tern(train + "bin"), 1, {"bin/test_batch.bin: ", "more follows at byte 30730000"});
  write("py/data_batch_1", "cposix\nsystem\n(S'touch ran'\ntR.");
  expect_error(tern(train + "py"), 1, {"py/data_batch_1: at byte ", "it names posix.system", "never runs code"});
  EXPECT_FALSE(exists("ran"));
}

}  // namespace
}  // namespace tern::program
