// Options of `tern train` for images, through the program: what changes the weights, and what must not.

#include <algorithm>
#include <set>

#include "tern/data/images/image.h"
#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

class ImageTrainingTest : public ProgramTest {
 protected:
  static Words train(const std::string& out, const Words& more) {
    return Words("train vit --data digits --max-steps 2 --threads 1 --quiet --seed " + std::to_string(fresh_seed()) +
                 " --out " + out) +
           more;
  }
};

TEST_F(ImageTrainingTest, EveryPolicyIsAnotherRun) {
  std::set<std::string> different;
  const std::vector<std::string> policies = {"none",    "autoaugment", "autoaugment-cifar10", "autoaugment-svhn",
                                             "trivial", "randaug"};
  for (const std::string& policy : policies) {
    succeeds(train(policy, "--augment " + policy));
    different.insert(read_text(file(policy + "/model.safetensors")));
    EXPECT_EQ(json(policy + "/run.json")["options"]["augment"], policy);
  }
  EXPECT_EQ(different.size(), policies.size());
  succeeds(train("imagenet", "--augment autoaugment-imagenet --workers 0"));  // the policy of digits
  EXPECT_TRUE(weights("imagenet") == weights("autoaugment"));
  succeeds(train("erased", "--augment none --random-erase 1"));
  EXPECT_FALSE(weights("erased") == weights("none"));
  expect_error(tern("train vit --augment auto"), 2, {"--augment", "autoaugment-svhn", "randaug"});
}

/// Each answer has the name of its file; a file that is no image ends nothing, and its answer says so in its place.
TEST_F(ImageTrainingTest, PredictsThoseThatCanBeRead) {
  succeeds(train("run", "--lr 0"));
  data::Image image(8, 8, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{90});
  for (const char* name : {"a.png", "c d.png"}) data::write_png(file(name), image);
  write("b.png", "\x89PNG no more");
  const std::vector<std::string> files = {"a.png", "b.png", "c d.png", "none.png"};
  std::string names, records;
  for (const std::string& name : files) names += name + "\n", records += Json({{"image", name}}).dump() + "\n";
  const Words predict = {"predict", "run", "--threads", "1"};
  const Words by_files = predict + Words(files.begin(), files.end());
  const Result lines = tern(by_files);
  EXPECT_EQ(lines.status, 1);
  EXPECT_TRUE(has(lines.err, "2 of 4 images could not be read")) << lines.err;
  EXPECT_TRUE(has(lines.err, "tern: b.png: ") && has(lines.err, "none.png: ")) << lines.err;
  const std::vector<std::string> answers = lines_of(lines.out);
  ASSERT_EQ(answers.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(answers[i].ends_with("\t" + files[2 * i])) << answers[i];
  EXPECT_EQ(answers[0].substr(0, answers[0].rfind('\t')), answers[1].substr(0, answers[1].rfind('\t')));
  EXPECT_EQ(tern(predict, names).out, lines.out);
  const std::vector<Json> objects = json_lines(tern(by_files + "--jsonl").out);
  ASSERT_EQ(objects.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(objects[i]["image"], files[i]);
    EXPECT_EQ(objects[i].contains("error"), i % 2 == 1);
    EXPECT_EQ(objects[i].contains("label"), i % 2 == 0);
  }
  EXPECT_EQ(tern(predict + "--jsonl", records).out, tern(by_files + "--jsonl").out);
  const std::vector<std::string> features = lines_of(tern(by_files + "--features").out);
  ASSERT_EQ(features.size(), 4u);
  EXPECT_EQ(features[1], "");
  EXPECT_EQ(features[0], features[2]);
  EXPECT_EQ(succeeds(predict + "a.png").out, answers[0] + "\n");
}

/// A run that is cut in an epoch of small images goes on as if it had not been.
TEST_F(ImageTrainingTest, ProgressiveResizingGoesOn) {
  const Words run = "--batch-size 400 --epochs 5 --progressive-resize 4 --checkpoint-every 3 --keep 99";
  const auto words = [&](const std::string& out) {
    return Words("train vit --data digits --threads 1 --seed " + std::to_string(fresh_seed()) + " --out " + out) + run;
  };
  const Result whole = succeeds(words("whole"));
  EXPECT_TRUE(has(whole.err, "8 x 8 pixels (the first epoch: 4 x 4)"));
  for (const std::string step : {"03", "09"}) {  // in the first and the third epoch
    const std::string again = "again" + step;
    copy("whole", again);
    succeeds({"resume", again + "/checkpoints/step-000000" + step, "--threads", "1"});
    EXPECT_TRUE(weights(again) == weights("whole")) << step;
    EXPECT_EQ(metrics(again).size(), metrics("whole").size()) << step;
  }
  expect_error(tern("train vit --data digits --progressive-resize 3 --out x"), 1,
               {"3 pixels must be a multiple of", "2"});

  // Views of the same images have other probabilities, and each its own.
  std::set<double> losses;
  for (const char* views : {"none", "flip", "five-crop", "ten-crop"})
    losses.insert(answer(Words("eval whole --threads 1 --json --tta ") + Words(views))["loss"].get<double>());
  EXPECT_EQ(losses.size(), 4u);
  expect_error(tern("eval whole --tta crop"), 2, {"--tta", "five-crop"});
  expect_error(tern("predict curve --tta flip"), 2, {"--tta is for models that take images"});
}

/// A run on a folder that was named as seen from where the run was started.
TEST_F(ImageTrainingTest, AFolderIsFoundFromElsewhere) {
  for (int i = 0; i < 24; ++i) {
    data::Image image(4, 4, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(i % 2 * 200 + i));
    fs::create_directories(file("photos/" + std::to_string(i % 2)));
    data::write_png(file("photos/" + std::to_string(i % 2) + "/" + std::to_string(i) + ".png"), image);
  }
  const Words run =
      "train cnn --data photos --image-size 32 --batch-size 5 --max-steps 3 --checkpoint-every 2 "
      "--workers 0 --threads 1 --quiet --out run --seed " +
      std::to_string(fresh_seed());
  succeeds(run);
  copy("run", "again");
  succeeds("resume again/checkpoints/step-00000002 --quiet --threads 1");
  EXPECT_TRUE(weights("again") == weights("run"));

  fs::create_directories(file("elsewhere"));
  const auto elsewhere = [&](const Words& words) { return Process(words, file("elsewhere")).finish(); };
  const Words eval = "eval ../run --json --threads 1 --quiet";
  EXPECT_EQ(elsewhere(eval).out, succeeds("eval run --json --threads 1 --quiet").out);
  EXPECT_EQ(elsewhere("resume ../again/checkpoints/step-00000002 --quiet --threads 1").status, 0);
  EXPECT_TRUE(weights("again") == weights("run"));
  fs::rename(file("photos"), file("pictures"));
  expect_error(elsewhere(eval), 1, {"../run/run.json", "the run's data 'photos'", "--data"});
}

}  // namespace
}  // namespace tern::program
