// The Vision Transformer through the program: the embedded digits, resumed runs, predictions and attention maps; and
// folders of images as users have them, with all kinds of PNG and JPEG and files that only have their names.

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tern/core/io/safetensors.h"
#include "tern/data/images/image.h"
#include "tern/tests/data/support.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

class VitTest : public ProgramTest {
 protected:
  /// Writes images of two classes that a small model can separate: bright on the left, or on the right.
  void write_images(const std::string& folder, int count) const {
    for (int i = 0; i < count; ++i) {
      const bool right = i % 2 == 1;
      data::Image image(10 + i % 3, 12, 3);
      for (int64_t y = 0; y < image.height; ++y)
        for (int64_t x = 0; x < image.width; ++x)
          for (int64_t c = 0; c < 3; ++c)
            image.row(y)[x * 3 + c] =
                static_cast<uint8_t>(((x >= 6) == right ? 180 : 20) + (i * 7 + y * 3 + x * 5 + c) % 50);
      data::write_png(file(folder + (right ? "/right/" : "/left/") + std::to_string(i) + ".png"), image);
    }
  }
};

TEST_F(VitTest, DigitsTrainResumeAndEvaluate) {
  const Words train = "train vit --data digits --max-steps 12 --checkpoint-every 5 --resume auto --threads 1 --seed " +
                      std::to_string(fresh_seed());
  const Result whole = succeeds(train + "--out whole");
  EXPECT_TRUE(has(whole.out, "test accuracy"));
  EXPECT_EQ(listing("whole"),
            "checkpoints config.json metrics.jsonl model.safetensors preprocessor_config.json run.json");

  interrupted(train + "--out cut", "step ", SIGKILL);
  EXPECT_EQ(succeeds(train + "--out cut").out, whole.out);
  EXPECT_TRUE(weights("cut") == weights("whole"));

  EXPECT_NEAR(answer("eval whole --json")["accuracy"], metrics("whole").back()["test_accuracy"], 1e-12);
}

TEST_F(VitTest, AFolderOfImages) {
  write_images("photos/train", 40);
  write_images("photos/test", 8);
  succeeds(
      "train vit --data photos --out run --image-size 16 --epochs 4 --batch-size 8 --dtype fp32 --augment none --split "
      "official");
  EXPECT_EQ(json("run/config.json")["image_size"], 16);

  // Equal predictions for files given as arguments, on stdin and in JSON.
  const std::vector<std::string> files = {"photos/test/left/0.png", "photos/test/right/1.png"};
  const Result predicted = succeeds({"predict", "run", files[0], files[1], "--attention", "maps"});
  ASSERT_EQ(lines_of(predicted.out).size(), 2u);
  const std::vector<std::string> features =
      lines_of(succeeds({"predict", "run", files[0], files[1], "--features"}).out);
  ASSERT_EQ(features.size(), 2u);
  EXPECT_EQ(std::count(features[1].begin(), features[1].end(), '\t') + 1, json("run/config.json")["hidden_size"]);
  EXPECT_NE(features[0], features[1]);
  expect_error(tern({"predict", "run", files[0], "--features", "--tta", "flip"}), 2, {"--features and --tta exclude"});
  EXPECT_EQ(listing("maps"), "0.png 1.png");
  const data::Image map = data::read_image(file("maps/0.png"));
  EXPECT_EQ(map.height, 10);
  EXPECT_EQ(map.width, 12);
  EXPECT_EQ(tern("predict run", files[0] + "\n" + files[1] + "\n").out, predicted.out);
  const Json one = answer("predict run --jsonl", R"({"image": "photos/test/left/0.png"})");
  EXPECT_EQ(one["logits"].size(), 2u);
  EXPECT_TRUE(predicted.out.starts_with(std::string(one["label"]) + "\t"));

  // Fine-tuning at another size, from that folder.
  const Result tuned = succeeds(
      "train vit --data photos --init run --out tuned --image-size 24 --epochs 1 --batch-size 8 --mixup 0.2 --cutmix "
      "1");
  EXPECT_EQ(json("tuned/config.json")["image_size"], 24);
  EXPECT_EQ(json("tuned/preprocessor_config.json")["size"]["height"], 24);
}

TEST_F(VitTest, WhatIsWrongIsNamed) {
  write_images("photos", 20);
  write("photos/left/broken.png", "not a picture");
  const Result skipped =
      succeeds("train vit --data photos --out run --image-size 16 --max-steps 3 --batch-size 8 --split all");
  EXPECT_TRUE(has(skipped.err, "broken.png"));
  expect_error(tern("predict run photos/left/broken.png"), 1, {"broken.png"});
  expect_error(tern("predict run nothing.png"), 1, {"nothing.png"});
  expect_error(tern("train vit --preset huge"), 2, {"--preset", "large"});
  expect_error(tern("train vit --data photos --image-size 17 --out x"), 1, {"patch_size"});
  EXPECT_FALSE(exists("x"));
}

/// Large images are processed one at a time: a whole group must not be held in memory.
TEST_F(VitTest, ManyLargeImagesTakeTheMemoryOfFew) {
  constexpr int64_t kSide = 2500;  // 19 MB of pixels
  succeeds("train vit --data digits --max-steps 1 --out vit --quiet");
  data::write_png(file("0.png"), data::Image(kSide, kSide, 3));
  Words one = "predict vit 0.png", many = one;
  for (int i = 1; i < 8; ++i) {
    many.push_back(std::to_string(i) + ".png");
    fs::create_symlink("0.png", file(many.back()));
  }
  const Result few = tern(one), all = tern(many);
  EXPECT_EQ(all.status, 0) << all.err;
  std::string eight;
  for (int i = 0; i < 8; ++i) eight += few.out.substr(0, few.out.rfind('\t') + 1) + std::to_string(i) + ".png\n";
  EXPECT_EQ(all.out, eight);
  test::expect_peak_below(all.peak_kib, few.peak_kib + (100 << 10), "8 images have 143 MiB of pixels");
  std::string names;
  for (size_t i = 2; i < many.size(); ++i) names += many[i] + "\n";
  const Result listed = tern("predict vit", names);
  EXPECT_EQ(listed.out, all.out);
  test::expect_peak_below(listed.peak_kib, few.peak_kib + (100 << 10));
}

TEST_F(VitTest, AJpegHeaderThatClaimsMuch) {
  succeeds("train vit --data digits --max-steps 1 --out vit --quiet");
  std::string header("\xff\xd8\xff\xdb\0\x43\0", 7);
  header += std::string(64, '\1');
  header += std::string("\xff\xc0\0\x11\x08\x0a\xac\xff\xdc\3\1\x11\0\2\x11\0\3\x11\0", 19);  // 65500 x 2732
  header += std::string("\xff\xc4\0\x14\0\1", 6) + std::string(16, '\0');
  header += std::string("\xff\xda\0\x0c\3\1\0\2\0\3\0\0\x3f\0", 14) + std::string(100, '\0');
  write("claim.jpg", header);
  const Result result = tern("predict vit claim.jpg");
  expect_error(result, 1, {"claim.jpg: damaged JPEG image: 65500 x 2732 pixels do not fit into "});
  test::expect_peak_below(result.peak_kib, 400 << 10);
}

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
  static int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
    return count;
  }
};

/// Counts how often files of a folder are opened.
class Opens {
 public:
  explicit Opens(const std::string& folder) : events_(inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(events_, 0);
    EXPECT_GE(inotify_add_watch(events_, folder.c_str(), IN_OPEN), 0);
  }
  ~Opens() { close(events_); }
  Opens(const Opens&) = delete;
  Opens& operator=(const Opens&) = delete;

  int of(const std::string& name) const {
    int count = 0;
    alignas(inotify_event) char buffer[1 << 14];
    for (ssize_t size; (size = read(events_, buffer, sizeof buffer)) > 0;)
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        count += event->len > 0 && event->name == name;
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    return count;
  }

 private:
  int events_;
};

TEST_F(ImageFilesTest, TheCacheKeepsDecodedImages) {
  write_classes(4);
  const auto opened = [&](const Words& more) {
    const Opens opens(file("photos/dog"));
    succeeds(train("--epochs 3 --split all --seed 5" + more));
    return opens.of("3.png");
  };
  const int decoded_once = opened("--image-cache 1MB --out kept");
  EXPECT_EQ(opened("--out read"), decoded_once + 2);
  opened("--image-cache 1kB --out small");  // has room for two of the eight
  EXPECT_TRUE(weights("kept") == weights("read"));
  EXPECT_TRUE(weights("small") == weights("read"));
  expect_error(tern(train("--image-cache 5 --out x")), 2, {"--image-cache", "4GB"});
  expect_error(tern("train distilbert --image-cache 4GB --out x"), 2, {"--image-cache", "images"});
}

TEST_F(ImageFilesTest, WhatIsNoImageIsNamedOnceAndSkipped) {
  write_classes();
  const auto files = golden();
  const auto cut = [&](const char* name) { return files.at(name).substr(0, files.at(name).size() / 2); };
  write("photos/cat/cut.png", cut("png_rgb"));
  write("photos/cat/cut.jpg", cut("jpeg_420"));
  write("photos/cat/empty.png", "");
  write("photos/cat/gif.png", "GIF89a....");
  write("photos/cat/huge.png", data::png_of_size(files.at("png_rgb"), 30000, 30000));
  write("photos/dog/bomb.png", data::png_of_size(files.at("png_rgb"), 13000, 13000));  // within the limit, without data
  write("photos/dog/name\xff\n\x1b[31m.png", "");  // invalid UTF-8 and control characters
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

/// tests/data/image_set_test.cpp has the others.
TEST_F(ImageFilesTest, FoldersThatAreNoDataSet) {
  write_class("cat", 4);
  expect_error(tern(train_all()), 1, {"photos: every image has the label 'cat'", "two or more"});
  write_class("bad\xff", 4);
  expect_error(tern(train_all()), 1, {"photos/bad\\xff", "label", "UTF-8"});
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

}  // namespace
}  // namespace tern::program
