// Convolutional networks through the program: the recipe of small images, a residual network, resumed runs, the test
// after training and eval, and maps of what decided.

#include "tern/core/io/safetensors.h"
#include "tern/data/images/image.h"
#include "tern/tests/data/support.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

/// A folder in MNIST's format: images of 16 x 16 pixels with stripes in noise. The period of class c is 2 + c % 5
/// pixels; classes below 5 have rows, the others columns. Shifts change no class.
class CnnTest : public ProgramTest {
 protected:
  CnnTest() { write_images(400, 100); }

  void write_images(int train, int test) {
    for (const auto& [part, count] : {std::pair("train", train), std::pair("t10k", test)}) {
      std::string pixels(static_cast<size_t>(count * kSide * kSide), '\0'), labels;
      for (int i = 0; i < count; ++i) {
        labels += static_cast<char>(i % 10);
        for (int p = 0; p < kSide * kSide; ++p) {
          const int c = i % 10, place = c < 5 ? p / kSide : p % kSide;
          const int bright = place % (2 + c % 5) == 0 ? 150 : 0;
          pixels[static_cast<size_t>(i * kSide * kSide + p)] = static_cast<char>(bright + random_() % 100);
        }
      }
      const std::string begin = std::string("data/mnist/") + part;
      write(begin + "-images-idx3-ubyte", header({count, kSide, kSide}) + pixels);
      write(begin + "-labels-idx1-ubyte", header({count}) + labels);
    }
  }

  static std::string header(const std::vector<int>& sizes) {
    std::string bytes(4 + 4 * sizes.size(), '\0');
    bytes[2] = 8;  // unsigned bytes
    bytes[3] = static_cast<char>(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) data::put_number(bytes, 4 + 4 * i, static_cast<uint32_t>(sizes[i]), 4);
    return bytes;
  }
  Setting with_data() const {
    const std::string root = file("data").string();
    return {.in_child = [root] { setenv("TERN_DATA", root.c_str(), 1); }};
  }

  static int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
    return count;
  }

  static constexpr int kSide = 16;
  std::mt19937_64 random_ = fresh_random();
};

TEST_F(CnnTest, TheRecipeOfSmallImages) {
  const Words train =
      "train cnn --data mnist --batch-size 20 --epochs 2 --dtype fp32 --threads 1 --workers 0 "
      "--checkpoint-every 25 --keep 9 --seed " +
      std::to_string(fresh_seed());
  const Result whole = succeeds(train + "--out whole", with_data());
  const Json record = json("whole/run.json"), options = record["options"];
  EXPECT_EQ(options["preset"], "speedrun");
  EXPECT_EQ(options["optimizer"], "muon");
  EXPECT_EQ(options["split"], "train-test");
  EXPECT_EQ(options["augment"], "alternating");
  EXPECT_EQ(options["tta"], "none");  // a mirror image of a digit is none
  EXPECT_EQ(record["rows"]["train"], 400);
  EXPECT_EQ(record["rows"]["validation"], 0);
  EXPECT_EQ(json("whole/config.json")["architecture"], "speedrun");
  const double accuracy = metrics("whole").back()["test_accuracy"];
  EXPECT_GT(accuracy, 0.6) << whole.out;  // chance: 0.1

  // Muon keeps the norms of the kernels but for a last step: the root of the number of channels.
  for (const NamedTensor& t : load_safetensors(file("whole/model.safetensors").string()).tensors) {
    if (!t.name.starts_with("layers.") || t.tensor.dim() != 4) continue;
    double sum = 0;
    for (const double value : t.tensor.to_vector<double>()) sum += value * value;
    const double expected = std::sqrt(static_cast<double>(t.tensor.size(0)));
    EXPECT_NEAR(std::sqrt(sum), expected, 0.02 * expected) << t.name;
  }

  // eval repeats the test with its views, and without them when told so.
  const Json evaluated = answer("eval whole --json --threads 1", with_data());
  EXPECT_NEAR(evaluated["accuracy"], accuracy, 1e-12);
  EXPECT_EQ(evaluated, answer("eval whole --json --threads 1 --tta none", with_data()));

  copy("whole", "again");
  succeeds({"resume", "again/checkpoints/step-00000025", "--threads", "1"}, with_data());
  EXPECT_TRUE(weights("again") == weights("whole"));
}

TEST_F(CnnTest, QuickIsTheSameNetwork) {
  const Words train = "train cnn --data mnist --batch-size 50 --max-steps 2 --dtype fp32 --threads 1 --seed 1";
  succeeds(train + "--preset quick --out quick", with_data());
  succeeds(train + "--preset speedrun --epochs 3 --out speedrun", with_data());
  EXPECT_EQ(options_of("quick")["epochs"], 3);
  EXPECT_EQ(read("quick/config.json"), read("speedrun/config.json"));
  EXPECT_TRUE(weights("quick") == weights("speedrun"));
  expect_error(tern(train + "--out x --patience 1 --split train-test", with_data()), 1, {"no rows are validated on"});
  succeeds(train + "--out patient --patience 1 --tta flip-shift", with_data());
  const Json evaluated = answer("eval patient --json --threads 1", with_data());
  EXPECT_NEAR(evaluated["accuracy"], metrics("patient").back()["test_accuracy"], 1e-12);
  EXPECT_NE(evaluated["loss"], answer("eval patient --json --threads 1 --tta none", with_data())["loss"]);
  EXPECT_EQ(json("patient/run.json")["rows"]["validation"], 40);

  // predict takes the views of the run too; features are of the image alone.
  data::Image image(28, 28, 1);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(random_());
  data::write_png(file("image.png"), image);
  const Words predict = "predict patient image.png --threads 1 --jsonl";
  const Json predicted = answer(predict);
  EXPECT_EQ(predicted, answer(predict + "--tta flip-shift"));
  EXPECT_NE(predicted, answer(predict + "--tta none"));
  EXPECT_EQ(answer(Words("predict quick image.png --threads 1 --jsonl")),
            answer(Words("predict quick image.png --threads 1 --jsonl --tta none")));
  EXPECT_EQ(succeeds(predict + "--features").out, succeeds(predict + "--features --tta none").out);
}

/// The first images of training make the first layer: those that cannot be read are left out there too.
TEST_F(CnnTest, DamagedImagesDoNotEndTheRecipe) {
  data::Image image(16, 16, 3);
  for (int i = 0; i < 60; ++i) {
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(random_());
    data::write_png(file("photos/" + std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png"), image);
  }
  write("photos/a/00.png", "");
  write("photos/a/20.png", read("photos/a/20.png").substr(0, 300));
  write("photos/b/01.png", "GIF89a");
  const Words train = "train cnn --data photos --preset quick --image-size 16 --batch-size 10 --epochs 1 --dtype fp32 ";
  const Result result = succeeds(train + "--split all --no-shuffle --threads 1 --out run");
  EXPECT_EQ(count_of(result.err, "skipped: "), 3) << result.err;
  for (int i = 0; i < 60; ++i)
    write("photos/" + std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png", "");
  expect_error(tern(train + "--split all --threads 1 --out none"), 1, {"none of the training images can be read"});
}

TEST_F(CnnTest, AResidualNetworkOnDigits) {
  const Words train = "train cnn --data digits --max-steps 3 --checkpoint-every 2 --resume auto --threads 1 --seed " +
                      std::to_string(fresh_seed());
  const Result whole = succeeds(train + "--out whole");
  EXPECT_EQ(options_of("whole")["preset"], "resnet18");
  EXPECT_EQ(options_of("whole")["optimizer"], "adamw");
  interrupted(train + "--out cut", "step ", SIGKILL);
  EXPECT_EQ(succeeds(train + "--out cut").out, whole.out);
  EXPECT_TRUE(weights("cut") == weights("whole"));
}

/// 50 steps an epoch, of the rows that are trained on.
TEST_F(CnnTest, TheBatchIsChosenByTheTrainingRows) {
  write_images(4000, 100);
  const Result run = succeeds(
      "train cnn --data mnist --preset quick --split 3250/0/10 --max-steps 1 --threads 1 --out run "
      "--dtype fp32 --seed " +
          std::to_string(fresh_seed()),
      with_data());
  EXPECT_EQ(options_of("run")["batch_size"], 65) << run.err;
}

/// Passes that are only measured leave the running statistics as they were.
TEST_F(CnnTest, RecomputationIsTheSameRun) {
  const Words train = "train cnn --data digits --split all --batch-size 8 --max-steps 2 --threads 1 --seed " +
                      std::to_string(fresh_seed());
  succeeds(train + "--out plain");
  const Result recomputed = succeeds(train + "--recompute block --out recomputed");
  EXPECT_TRUE(has(recomputed.err, "recompute block: activations "));
  EXPECT_TRUE(weights("recomputed") == weights("plain"));
}

}  // namespace
}  // namespace tern::program
