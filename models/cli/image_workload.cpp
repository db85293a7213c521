#include <algorithm>
#include <sstream>

#include "tern/data/datasets/cifar10.h"
#include "tern/data/datasets/sha256.h"
#include "tern/data/samplers/split.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/image_data.h"
#include "tern/models/cli/train_defaults.h"
#include "tern/models/cli/workload.h"
#include "tern/models/image/image_classifier.h"

namespace tern::cli {
namespace {

/// The Vision Transformer on images.
class ImageWorkload final : public Workload {
 public:
  void prepare(const TrainArguments& given, const RunSetting& setting) override {
    setting_ = setting;
    set_ = std::make_shared<data::ImageSet>(load_image_set(given.data, {}, setting.log));
    TERN_CHECK(set_->label_names.size() > 1, set_->name, ": every image has the label '", set_->label_names.front(),
               "'; a classifier needs two or more");
    options_ = with_defaults(given, ImageFacts{set_->name});
    split_ = data::make_split(*set_, options_.split, options_.fold, options_.seed);
    make_classifier();
    task_.emplace(*classifier_, set_, split_.train, setting.share(split_.validation), task_options());
  }

  const TrainArguments& options() const override { return options_; }

  Json model_record() const override {
    const models::ViTConfig& config = classifier_->model().config();
    return {{"image_size", classifier_->preprocessing().size},
            {"patch_size", config.patch_size},
            {"width", config.width},
            {"layers", config.layers},
            {"dropout", config.dropout},
            {"attention_dropout", config.attention_dropout},
            {"parameters", classifier_->model().num_parameters()}};
  }

  Json data_record() const override {
    return {{"train", split_.train.size()},
            {"validation", split_.validation.size()},
            {"test", split_.test.size()},
            {"images_sha256", set_->content_hash()}};
  }

  models::TrainingTask& task() override { return *task_; }
  nn::Module& module() override { return classifier_->model(); }
  void set_recompute(int64_t layers) override { classifier_->model().set_recompute(layers); }
  void save(const std::string& dir) const override { classifier_->save(dir); }
  const char* unit() const override { return "images"; }

  std::string describe(int64_t total_steps) const override {
    std::ostringstream out;
    out << "train: " << split_.train.size() << " images, validate " << split_.validation.size() << ", test "
        << split_.test.size() << "; " << classifier_->model().num_parameters() << " parameters, "
        << classifier_->preprocessing().size << " x " << classifier_->preprocessing().size << " pixels; " << total_steps
        << " steps of " << times(options_.accumulate * setting_.ranks) << options_.batch_size << " images, "
        << options_.epochs << " epochs";
    return out.str();
  }

  std::optional<models::Evaluation> test() override {
    if (split_.test.empty()) return std::nullopt;
    models::ImageTaskOptions options = task_options();
    options.dtype = float32;
    return models::evaluate(*classifier_, set_, setting_.share(split_.test), options);
  }

  double training_flops_per_item() const override { return 3 * classifier_->model().forward_flops(); }

 private:
  bool from_scratch() const { return options_.init.empty(); }
  bool digits() const { return set_->name == "digits"; }

  models::ImageTaskOptions task_options() const {
    models::ImageTaskOptions options{.epochs = planned_epochs(options_),
                                     .batch_size = options_.batch_size,
                                     .shuffle = options_.shuffle,
                                     .workers = options_.workers,
                                     .seed = options_.seed,
                                     .dtype = setting_.precision.autocast,
                                     .should_stop = [] { return pending_signal() != 0; },
                                     .log = setting_.log};
    data::BatchAugmentOptions& augmentation = options.augmentation;
    augmentation.mixup = options_.mixup.value();
    augmentation.cutmix = options_.cutmix;
    options.label_smoothing = options_.label_smoothing;
    // A digit fills its 8 x 8 pixels: a shift cuts a part off, and its mirror image is no digit.
    if (options_.augment == "none" || digits()) return options;
    augmentation.flip = {.probability = 0.5};
    // A shift of an eighth of the image's side.
    const int64_t stored = set_->in_memory() ? set_->pixels.size(1) : 0;
    if (stored == classifier_->preprocessing().size) augmentation.padding = stored / 8;
    return options;
  }

  void make_classifier() {
    Generator generator(options_.seed);
    const bool resumed = !setting_.checkpoint.empty();
    if (from_scratch() && !resumed) {
      models::ViTConfig config = models::ViTConfig::preset(options_.preset);
      if (digits() && options_.preset == "tiny") shrink_for_digits(config);
      if (options_.image_size > 0) config.image_size = options_.image_size;
      config.labels = set_->label_names;
      if (options_.dropout) config.dropout = config.attention_dropout = *options_.dropout;
      auto model = std::make_unique<models::ViT>(
          nn::Scope({.device = setting_.device, .dtype = setting_.precision.weights, .generator = generator}), config);
      models::ImagePreprocessing preprocessing = models::ImagePreprocessing::from_json("{}", "");
      preprocessing.size = config.image_size;
      classifier_.emplace(std::move(model), preprocessing);
      return;
    }
    const models::FromPretrainedOptions options{.device = setting_.device,
                                                .dtype = setting_.precision.weights,
                                                .generator = generator,
                                                .labels = set_->label_names,
                                                .dropout = resumed ? std::nullopt : options_.dropout,
                                                .allow_new_head = !resumed,
                                                .log = setting_.log};
    classifier_.emplace(models::ImageClassifier::load(resumed ? setting_.checkpoint : options_.init, options,
                                                      {.image_size = resumed ? 0 : options_.image_size}));
    set_->order_labels(classifier_->model().config().labels);  // the folder's order of the labels
  }

  /// 8 x 8 pixels: patches of 2 x 2, and a model that fits 1,800 images.
  static void shrink_for_digits(models::ViTConfig& config) {
    config.image_size = 8;
    config.patch_size = 2;
    config.width = 96;
    config.layers = 4;
    config.hidden = 192;
    config.dropout = config.attention_dropout = 0.1;
    config.initializer_range = 0.1;  // about 1 / sqrt(width): 0.02 is for wide models
  }

  TrainArguments options_;
  RunSetting setting_;
  std::shared_ptr<data::ImageSet> set_;
  data::Split split_;
  std::optional<models::ImageClassifier> classifier_;
  std::optional<models::ImageTask> task_;
};

}  // namespace

std::unique_ptr<Workload> make_image_workload() { return std::make_unique<ImageWorkload>(); }

}  // namespace tern::cli
