// The Vision Transformer through the program: training on the embedded digits and on a folder of images, resumed runs,
// eval, predict and attention maps.

#include "tern/data/images/image.h"
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
  const Result resumed = succeeds(train + "--out cut");
  EXPECT_TRUE(weights("cut") == weights("whole"));
  EXPECT_EQ(resumed.out, whole.out);

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
  write_text(file("photos/left/broken.png"), "not a picture");
  const Result skipped =
      succeeds("train vit --data photos --out run --image-size 16 --max-steps 3 --batch-size 8 --split all");
  EXPECT_TRUE(has(skipped.err, "broken.png"));
  expect_error(tern("predict run photos/left/broken.png"), 1, {"broken.png"});
  expect_error(tern("predict run nothing.png"), 1, {"nothing.png"});
  expect_error(tern("train vit --batch-tokens 100"), 2, {"--batch-tokens", "texts"});
  expect_error(tern("train distilbert --mixup 1"), 2, {"--mixup", "images"});
  expect_error(tern("train vit --preset huge"), 2, {"--preset", "large"});
  expect_error(tern("train vit --data photos --image-size 17 --out x"), 1, {"patch_size"});
  expect_error(tern({"train", "vit", "--data", "photos", "--init", kGolden + "distilbert_gelu", "--out", "x"}), 1,
               {"Vision Transformer"});
  EXPECT_FALSE(exists("x"));
}

}  // namespace
}  // namespace tern::program
