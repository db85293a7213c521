// Batches of images for training: what the options change in them, against the same steps by hand.

#include "tern/models/image/image_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tern/core/ops/ops.h"
#include "tern/data/transforms/auto_augment.h"
#include "tern/data/transforms/geometry.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"

namespace tern::models {
namespace {

constexpr int64_t kRows = 10;

/// Logits of any image: its mean, weighted by rows and columns.
class Slopes final : public ImageClassifier {
 public:
  explicit Slopes(const nn::Scope& s) : ImageClassifier(s), head(sub("head"), 3, 3) {}
  Tensor forward(const Tensor& images, const Tensor& /*image_keys*/) const override {
    const Tensor row = arange(1, static_cast<double>(images.size(2) + 1), 1).reshape({-1, 1});
    const Tensor column = arange(1, static_cast<double>(images.size(3) + 1), 1);
    const Tensor grey = mean(images, {1});
    return 2 * head.forward(stack({mean(grey, {1, 2}), mean(grey * row, {1, 2}), mean(grey * column, {1, 2})}, 1));
  }
  Input input() const override { return {.size = 8, .multiple = 2}; }
  double forward_flops() const override { return 1; }
  const std::vector<std::string>& labels() const override { return labels_; }
  std::string config_json() const override { return "{}"; }
  std::string record() const override { return "{}"; }
  void save_pretrained(const std::string& /*dir*/) const override {}
  void set_recompute(int64_t /*layers*/) override {}

  nn::Linear head;

 private:
  std::vector<std::string> labels_ = {"a", "b", "c"};
};

ImagePipeline pipeline() {
  return {std::make_unique<Slopes>(nn::Scope({.generator = test::fresh_generator(1)})), {.size = 8}};
}

std::shared_ptr<data::ImageSet> random_images(int64_t size) {
  std::mt19937_64 random = fresh_random(2);
  std::vector<uint8_t> pixels(static_cast<size_t>(kRows * size * size * 3));
  for (uint8_t& value : pixels) value = static_cast<uint8_t>(random());
  auto set = std::make_shared<data::ImageSet>();
  set->name = "random";
  set->pixels = from_vector(pixels, {kRows, size, size, 3});
  set->label_names = {"a", "b", "c"};
  for (int32_t row = 0; row < kRows; ++row) set->labels.push_back(row % 3);
  return set;
}

std::vector<int32_t> all_rows() {
  std::vector<int32_t> rows(kRows);
  for (int32_t row = 0; row < kRows; ++row) rows[static_cast<size_t>(row)] = row;
  return rows;
}

/// The images of an epoch by their rows.
std::map<int64_t, Tensor> epoch_of(ImageTask& task, int64_t epoch) {
  std::map<int64_t, Tensor> images;
  task.begin_epoch(epoch);
  while (task.next_batch()) {
    const std::vector<Tensor> tensors = task.batch().tensors;  // as ImageBatch lists them
    const std::vector<int64_t> keys = tensors[2].to_vector<int64_t>();
    for (size_t i = 0; i < keys.size(); ++i) images[keys[i]] = tensors[0].select(0, static_cast<int64_t>(i));
  }
  return images;
}

TEST(ImageTask, APolicyChangesEachTrainingImageAlone) {
  const ImagePipeline of = pipeline();
  const auto set = random_images(8);
  const uint64_t seed = fresh_seed();
  const data::AutoAugment policy{data::AugmentPolicy::kSvhn};
  int changed = 0;
  for (const int workers : {0, 3}) {
    ImageTask task(of, set, all_rows(), all_rows(),
                   {.epochs = 2, .batch_size = 3, .workers = workers, .seed = seed, .policy = policy});
    for (const int64_t epoch : {0, 1}) {
      const std::map<int64_t, Tensor> images = epoch_of(task, epoch);
      ASSERT_EQ(images.size(), static_cast<size_t>(kRows));
      for (const auto& [row, image] : images) {
        data::RandomStream random = data::image_random({seed, epoch, static_cast<int32_t>(row)});
        const data::Image plain = set->image(row), expected = policy(plain, random);
        changed += plain.pixels != expected.pixels;
        for (int64_t y = 0; y < 8; ++y)
          for (int64_t x = 0; x < 8; ++x)
            for (int64_t c = 0; c < 3; ++c)
              ASSERT_EQ((image.data<float>()[(c * 8 + y) * 8 + x]),
                        static_cast<float>(expected.row(y)[x * 3 + c]) / 255.0f)
                  << row << " " << epoch;
      }
    }
    // Validation has no policy.
    const Evaluation with = task.validate();
    ImageTask without(of, set, all_rows(), all_rows(), {.epochs = 2, .batch_size = 3, .seed = seed});
    EXPECT_EQ(with.loss, without.validate().loss);
  }
  EXPECT_GT(changed, 0);  // of 40 draws; a sub-policy of SVHN changes an image with a probability of 0.6 at least
}

/// The image with its pixels moved down and to the right by `by`, and what a mirror at the border shows.
data::Image shifted(const data::Image& image, int64_t by) {
  data::Image result = image;
  const auto inside = [](int64_t i, int64_t size) { return size - 1 - std::abs(size - 1 - std::abs(i)); };
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        result.row(y)[x * 3 + c] = image.row(inside(y - by, image.height))[inside(x - by, image.width) * 3 + c];
  return result;
}

/// The mean of the softmax probabilities of views that are made of bytes.
std::vector<double> mean_probabilities(const ImagePipeline& of, const data::Image& image, TestTimeViews views) {
  std::vector<data::Image> parts = {data::resize(image, 8, 8)};
  if (views == TestTimeViews::kFlip) parts.push_back(data::flip_horizontal(parts[0]));
  if (views == TestTimeViews::kFiveCrop) parts = data::five_crop(data::resize(image, 9, 9), 8, 8);
  if (views == TestTimeViews::kTenCrop) parts = data::ten_crop(data::resize(image, 9, 9), 8, 8);
  if (views == TestTimeViews::kFlipShift) {  // those that count twice are there twice
    const data::Image mirror = data::flip_horizontal(parts[0]);
    parts = {parts[0], parts[0], shifted(parts[0], 1), shifted(parts[0], -1),
             mirror,   mirror,   shifted(mirror, 1),   shifted(mirror, -1)};
  }
  std::vector<double> mean(3, 0);
  const NoGrad off;
  for (const data::Image& part : parts) {
    const std::vector<double> logits = of.model().forward(of.prepare({&part, 1})).to_vector<double>();
    double total = 0;
    for (const double logit : logits) total += std::exp(logit);
    for (size_t c = 0; c < 3; ++c) mean[c] += std::exp(logits[c]) / total / static_cast<double>(parts.size());
  }
  return mean;
}

/// Batch norms cannot be trained on one image, and 10 rows make batches of 3, 3, 3 and 1.
TEST(ImageTask, ALastBatchOfOneImageIsLeftOutForBatchNorms) {
  const auto sizes = [](nn::Module& model, const std::vector<int32_t>& rows, int64_t batch,
                        std::string* said = nullptr) {
    ImageTaskOptions options{.epochs = 2, .batch_size = batch, .workers = 0};
    if (said) options.log = [said](const std::string& line) { *said += line; };
    const ImageTask task(model, {}, {.size = 8}, random_images(8), rows, {}, options);
    std::vector<size_t> found;
    for (int64_t step = 0; step < task.steps(1); ++step) found.push_back(task.plan().epoch(1)->batch(step).size());
    EXPECT_EQ(task.steps(0), task.steps(1));
    return found;
  };
  using Sizes = std::vector<size_t>;
  const nn::Scope scope({.generator = test::fresh_generator(1)});
  nn::BatchNorm2d norm(scope, 3);
  nn::Linear linear(scope, 3, 3);
  std::string said;
  EXPECT_EQ(sizes(norm, all_rows(), 3, &said), (Sizes{3, 3, 3}));
  EXPECT_TRUE(test::has(said, "one image")) << said;
  EXPECT_EQ(sizes(linear, all_rows(), 3), (Sizes{3, 3, 3, 1}));
  EXPECT_EQ(sizes(norm, all_rows(), 4), (Sizes{4, 4, 2}));
  EXPECT_EQ(sizes(norm, all_rows(), 1).size(), 10u);  // as it was asked for
  EXPECT_EQ(sizes(norm, {4}, 3), (Sizes{1}));
  norm.freeze();
  EXPECT_EQ(sizes(norm, all_rows(), 3), (Sizes{3, 3, 3, 1}));
}

TEST(TestTime, IsTheMeanOfTheViewsProbabilities) {
  const ImagePipeline of = pipeline();
  std::mt19937_64 random = fresh_random(3);
  std::vector<data::Image> images;
  for (int i = 0; i < 3; ++i) {
    images.emplace_back(14 + 3 * i, 20, 3);
    for (size_t p = 0; p < images.back().pixels.size(); ++p)  // brighter to the right, so that the views differ
      images.back().pixels[p] = static_cast<uint8_t>(10 * (p / 3 % 20) + random() % 60);
  }
  for (const std::string& name : test_time_names()) {
    SCOPED_TRACE(name);
    const TestTimeViews views = test_time_views(name);
    const std::vector<Prediction> found = of.predict(images, views);
    for (size_t i = 0; i < images.size(); ++i) {
      const std::vector<double> expected = mean_probabilities(of, images[i], views);
      double total = 0;
      for (const double logit : found[i].logits) total += std::exp(logit);
      for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(std::exp(found[i].logits[c]) / total, expected[c], 1e-5) << i;
      EXPECT_NEAR(found[i].score, std::ranges::max(expected), 1e-5);
    }
  }
  EXPECT_TRUE(of.predict({}, TestTimeViews::kTenCrop).empty());
  EXPECT_EQ(test_time_size(TestTimeViews::kFiveCrop, 224), 256);
  EXPECT_EQ(test_time_size(TestTimeViews::kFlip, 224), 224);
  EXPECT_TRUE(test::has(test::error_of([] { test_time_views("crop"); }), "unknown 'crop'; known: none, flip"));
}

TEST(TestTime, Evaluation) {
  const ImagePipeline of = pipeline();
  const auto set = random_images(12);
  for (const TestTimeViews views : {TestTimeViews::kNone, TestTimeViews::kFlip, TestTimeViews::kTenCrop}) {
    double loss = 0, right = 0;
    for (int32_t row = 0; row < kRows; ++row) {
      const std::vector<double> p = mean_probabilities(of, set->image(row), views);
      const auto label = static_cast<size_t>(set->labels[static_cast<size_t>(row)]);
      loss -= std::log(p[label]) / kRows;
      right += std::ranges::max(p) == p[label];
    }
    const Evaluation found = evaluate(of, set, all_rows(), {.batch_size = 4, .views = views});
    EXPECT_NEAR(found.loss, loss, 1e-5);
    EXPECT_NEAR(found.metric, right / kRows, 1e-9);
  }
}

TEST(ProgressiveResizing, GrowsInFourFifthsOfTheEpochs) {
  const auto sizes = [](int64_t first, int64_t last, int64_t multiple, int64_t epochs) {
    std::vector<int64_t> all;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) all.push_back(training_size(first, last, multiple, epoch, epochs));
    return all;
  };
  EXPECT_EQ(sizes(16, 32, 4, 10), (std::vector<int64_t>{16, 16, 20, 20, 24, 24, 28, 28, 32, 32}));
  EXPECT_EQ(sizes(128, 224, 16, 5), (std::vector<int64_t>{128, 144, 176, 192, 224}));
  EXPECT_EQ(sizes(4, 8, 2, 2), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(sizes(4, 8, 2, 1), (std::vector<int64_t>{8}));
  EXPECT_EQ(sizes(8, 8, 2, 3), (std::vector<int64_t>{8, 8, 8}));
}

TEST(ProgressiveResizing, OfTrainingImagesAlone) {
  const ImagePipeline of = pipeline();
  const auto set = random_images(12);
  ImageTask task(of, set, all_rows(), all_rows(), {.epochs = 5, .batch_size = 4, .first_size = 4});
  EXPECT_FALSE(task.fixed_shapes());
  const int64_t sizes[] = {4, 4, 6, 6, 8};
  for (const int64_t epoch : {4, 0, 1, 2, 3})  // in any order: a run may go on anywhere
    for (const auto& [row, image] : epoch_of(task, epoch)) {
      const int64_t size = sizes[epoch];
      const data::Image expected = data::resize(set->image(row), size, size);
      ASSERT_EQ(image.shape(), (Shape{3, size, size}));
      for (int64_t i = 0; i < size * size; ++i)
        ASSERT_EQ(image.data<float>()[i], static_cast<float>(expected.pixels[static_cast<size_t>(3 * i)]) / 255.0f);
    }
  ImageTask plain(of, set, all_rows(), all_rows(), {.epochs = 5, .batch_size = 4});
  EXPECT_EQ(task.validate().loss, plain.validate().loss);
  const auto error = [&](int64_t first) {
    return test::error_of([&] { ImageTask(of, set, all_rows(), {}, {.epochs = 5, .first_size = first}); });
  };
  EXPECT_TRUE(test::has(error(5), "5 pixels must be a multiple of the model's patches of 2, and at most the 8"));
  EXPECT_TRUE(test::has(error(10), "10 pixels must be"));
}

/// An error about a step names its images: files by their paths.
TEST(ImageTask, ANonFiniteLossNamesTheImages) {
  const ImagePipeline of = pipeline();
  auto set = random_images(8);
  ImageObjective objective =
      single_label<data::ImageBatch>([&](const data::ImageBatch& batch) { return of.model().forward(batch.images); });
  objective.loss = [](const Tensor& logits, const data::ImageBatch& batch) {
    const bool bad = batch.row_keys.to_vector<int64_t>()[0] == 4;  // the second batch
    return mean(bad ? log(logits * 0) : logits * logits);
  };
  ImageTask task(of.model(), objective, of.preprocessing(), set, all_rows(), {},
                 {.epochs = 1, .batch_size = 4, .shuffle = false});
  TrainObserver silent;
  const std::string error = test::error_of([&] { train(task, {.optimizer = "sgd"}, silent); });
  EXPECT_TRUE(test::has(error, "step 2: the loss is -inf; ")) << error;
  EXPECT_TRUE(test::has(error, "; the batch: random: image 4, random: image 5, random: image 6, random: image 7; try"))
      << error;
  set->pixels = Tensor();
  for (int i = 0; i < kRows; ++i) set->files.push_back("photos/" + std::to_string(i) + ".png");
  EXPECT_EQ(task.example_names(0, 2), (std::vector<std::string>{"photos/8.png", "photos/9.png"}));
}

}  // namespace
}  // namespace tern::models
