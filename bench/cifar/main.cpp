// tern-bench-cifar: Tern's side of the comparison of whole trainings (bench/compare/cifar.py): the Vision Transformer
// "tiny" from scratch on the first images of CIFAR-10's training set, then its accuracy on the 10,000 test images.
// Prints one JSON line for each epoch and one at the end.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tern/bench/timing.h"
#include "tern/data/datasets/cifar10.h"
#include "tern/kernels/kernel.h"
#include "tern/models/image/image_task.h"
#include "tern/models/vit/vit.h"

namespace tern::bench {
namespace {

using Json = nlohmann::json;

struct Arguments {
  std::string data;
  int64_t images = 10000, epochs = 3, batch_size = 64;
  double lr = 1e-3, dropout = 0;
  uint64_t seed = 1;
  int threads = kernels::num_threads();
  int workers = 2;
  std::string dtype = "fp32";

  DType autocast() const {
    if (dtype == "auto") return autocast_dtype(cpu);
    return dtype == "bf16" ? DType::kBFloat16 : DType::kFloat32;
  }
};

std::vector<int32_t> rows(int64_t begin, int64_t end) {
  std::vector<int32_t> result(static_cast<size_t>(end - begin));
  std::iota(result.begin(), result.end(), static_cast<int32_t>(begin));
  return result;
}

/// Prints each epoch's mean loss and times.
class EpochLines final : public models::TrainObserver {
 public:
  EpochLines(uint64_t seed, int64_t steps_per_epoch) : seed_(seed), steps_per_epoch_(steps_per_epoch) {}

  void on_step(const models::StepMetrics& metrics) override {
    loss_ += metrics.loss;
    if (metrics.step % steps_per_epoch_ != 0) return;
    const double cpu = cpu_seconds();
    const Json line = {{"side", "tern"},
                       {"seed", seed_},
                       {"epoch", metrics.step / steps_per_epoch_},
                       {"loss", loss_ / static_cast<double>(steps_per_epoch_)},
                       {"seconds", watch_.lap()},
                       {"cpu_seconds", cpu - cpu_}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    cpu_ = cpu;
    loss_ = 0;
  }

 private:
  uint64_t seed_;
  int64_t steps_per_epoch_;
  double loss_ = 0, cpu_ = cpu_seconds();
  Stopwatch watch_;
};

models::ImagePipeline make_pipeline(const Arguments& a, const data::ImageSet& set) {
  models::ViTConfig config = models::ViTConfig::preset("tiny");
  config.dropout = config.attention_dropout = a.dropout;
  config.labels = set.label_names;
  models::ImagePreprocessing preprocessing = models::ImagePreprocessing::from_json("{}", "");
  preprocessing.size = config.image_size;
  return {std::make_unique<models::ViT>(nn::Scope({.generator = Generator(a.seed)}), config), preprocessing};
}

models::ImageTaskOptions task_options(const Arguments& a) {
  models::ImageTaskOptions options{
      .epochs = a.epochs, .batch_size = a.batch_size, .workers = a.workers, .seed = a.seed};
  options.augmentation.padding = 4;
  options.augmentation.flip = {.probability = 0.5};
  return options;
}

Json train_and_test(const Arguments& a) {
  const auto set = std::make_shared<const data::ImageSet>(data::read_cifar10(a.data));
  const auto first_test = std::find(set->parts.begin(), set->parts.end(), data::Part::kTest) - set->parts.begin();
  TERN_CHECK(a.images <= first_test, a.data, ": there are ", first_test, " images for training, --images is ",
             a.images);
  const models::ImagePipeline pipeline = make_pipeline(a, *set);
  models::ImageTask task(pipeline, set, rows(0, a.images), {}, task_options(a));
  EpochLines lines(a.seed, task.steps(0));
  const double cpu_begin = cpu_seconds();
  models::TrainOptions training;
  training.lr = a.lr;
  training.warmup = 0.1;
  training.dtype = a.autocast();
  const models::TrainResult trained = models::train(task, training, lines);
  const double cpu_trained = cpu_seconds();
  Stopwatch test_watch;
  const models::Evaluation test =
      models::evaluate(pipeline, set, rows(first_test, set->size()), {.batch_size = 256, .workers = a.workers});
  return {{"test_accuracy", test.metric},     {"test_loss", test.loss},
          {"test_images", test.examples},     {"steps", trained.steps},
          {"train_seconds", trained.seconds}, {"train_cpu_seconds", cpu_trained - cpu_begin},
          {"test_seconds", test_watch.lap()}, {"test_cpu_seconds", cpu_seconds() - cpu_trained}};
}

int run_program(int argc, char** argv) {
  Arguments a;
  CLI::App app("Trains the Vision Transformer on a part of CIFAR-10 (bench/compare/README.md).", "tern-bench-cifar");
  app.add_option("--data", a.data, "the folder cifar-10-batches-bin")->required();
  app.add_option("--images", a.images, "the first so many of the training set")->check(CLI::Range(1, 50000));
  app.add_option("--epochs", a.epochs)->check(CLI::Range(1, 100000));
  app.add_option("--batch-size", a.batch_size)->check(CLI::Range(1, 50000));
  app.add_option("--lr", a.lr)->check(CLI::PositiveNumber);
  app.add_option("--dropout", a.dropout)->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", a.seed);
  app.add_option("--threads", a.threads)->check(CLI::Range(1, 1024));
  app.add_option("--dtype", a.dtype, "of training; bf16: autocast; auto: the faster one here")
      ->check(CLI::IsMember({"fp32", "bf16", "auto"}));
  app.add_option("--workers", a.workers)->check(CLI::Range(0, 256));
  CLI11_PARSE(app, argc, argv);
  kernels::set_num_threads(a.threads);
  Json line = {
      {"side", "tern"}, {"seed", a.seed}, {"threads", kernels::num_threads()}, {"dtype", name_of(a.autocast())}};
  line.update(train_and_test(a));
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) {
  try {
    return tern::bench::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tern-bench-cifar: %s\n", error.what());
    return 1;
  }
}
