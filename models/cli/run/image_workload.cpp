#include <nlohmann/json.hpp>

#include "tern/data/transforms/auto_augment.h"
#include "tern/models/cli/run/data_sets.h"
#include "tern/models/cli/run/workload.h"
#include "tern/models/image/image_task.h"

namespace tern::cli {
namespace {

class ImageWorkload final : public Workload {
 public:
  ImageWorkload() : Workload("image", "images") {}
  void prepare(const TrainArguments& given, const RunSetting& setting) override {
    setting_ = setting;
    set_ = std::make_shared<data::ImageSet>(load_image_set(given.data, {}, setting.log));
    ImageFacts facts{
        .data = set_->name, .side = side(), .processes = setting.ranks(), .has_parts = !set_->parts.empty()};
    // The default split does not depend on the number of images, and the size of a batch on those that it leaves.
    split(*set_, data::LabelKind::kOne, given, split_of(given, facts), set_->label_names);
    facts.images = static_cast<int64_t>(split_.train.size());
    plan_.emplace(plan_run(given, facts));
    check_optimizer_arguments(*plan_);
    if (const int64_t bytes = parse_bytes(plan_->image_cache).value(); bytes > 0 && !set_->in_memory())
      cache_ = std::make_shared<data::ImageCache>(bytes);
    make_pipeline();
    task_.emplace(*pipeline_, set_, split_.train, split_.validation, task_options());
  }

  Json model_record() const override {
    Json record;
    record["image_size"] = pipeline_->preprocessing().size;
    record.update(Workload::model_record());
    return record;
  }

  Json data_record() const override {
    Json record = Workload::data_record();
    if (content_.empty()) content_ = set_->content_hash(check_interrupted);
    record["contents_sha256"] = content_;
    record["labels"] = labels_;
    return record;
  }

  models::TrainingTask& task() override { return *task_; }
  std::unique_ptr<models::TrainingTask> task_of(int64_t size, int64_t epochs) const override {
    models::ImageTaskOptions options = task_options();
    options.epochs = epochs;
    options.batch_size = size;
    options.first_size = 0;  // the largest images of a run decide what fits
    return std::make_unique<models::ImageTask>(*pipeline_, set_, split_.train, std::vector<int32_t>(), options);
  }
  BatchRange batch_range() const override {
    const int64_t smallest = models::trains_batch_norms(pipeline_->model()) ? 2 : 1;  // one image has no variance
    return {"images", smallest, std::max(smallest, static_cast<int64_t>(split_.train.size()))};
  }
  models::Model& model() const override { return pipeline_->model(); }
  void save(const std::string& dir) const override { pipeline_->save(dir); }

  double training_flops_per_item() const override { return 3 * pipeline_->model().forward_flops(); }

 private:
  std::string describe_batch() const override { return std::to_string(plan_->batch_size) + " images"; }
  std::string describe_input() const override {
    const std::string size = std::to_string(pipeline_->preprocessing().size);
    const std::string first = std::to_string(plan_->progressive_resize);
    return ", " + size + " x " + size + " pixels" +
           (plan_->progressive_resize > 0 ? " (the first epoch: " + first + " x " + first + ")" : "");
  }
  /// Pixels of all images, 0 where they are files.
  int64_t side() const { return set_->in_memory() ? set_->pixels.size(1) : 0; }

  models::Evaluation evaluate(const std::vector<int32_t>& rows) const override {
    models::ImageTaskOptions options = task_options();
    options.validation = evaluation(float32);
    options.views = models::test_time_views(plan_->tta);
    return models::evaluate(*pipeline_, set_, rows, options);
  }

  models::ImageTaskOptions task_options() const {
    models::ImageTaskOptions options{.epochs = planned_epochs(*plan_),
                                     .batch_size = plan_->batch_size,
                                     .shuffle = plan_->shuffle,
                                     .workers = plan_->workers,
                                     .seed = plan_->seed,
                                     .label_smoothing = plan_->label_smoothing.value(),
                                     .first_size = plan_->progressive_resize,
                                     .log = setting_.log,
                                     .validation = evaluation(setting_.precision.autocast),
                                     .cache = cache_};
    data::BatchAugmentOptions& augmentation = options.augmentation;
    augmentation.mixup = plan_->mixup.value();
    augmentation.cutmix = plan_->cutmix;
    augmentation.erasing.probability = plan_->random_erase;
    options.policy = policy();
    const data::SetTraining set = training_on(set_->name);
    if (plan_->augment == "none" || !set.augmented) return options;
    const bool alternating = plan_->augment == "alternating", whole = side() == pipeline_->preprocessing().size;
    augmentation.flip = {.probability = *set.unmirrored == 0 ? 0.5 : 0, .alternating = alternating};
    if (alternating) augmentation.border = kernels::ImageBorder::kReflect;
    // Files are resized to the model's input: they are not shifted.
    if (whole) augmentation.padding = alternating ? 2 : side() / 8;  // pixels; an eighth of the image's side
    return options;
  }

  /// The operations of --augment; empty: none.
  data::ImageStep policy() const {
    const std::string& name = plan_->augment;
    if (name == "randaug") return data::RandAugment{};
    if (name == "trivial") return data::TrivialAugmentWide{};
    if (!name.starts_with("autoaugment")) return {};
    const size_t dash = name.find('-');
    const std::string found_for = dash == name.npos ? training_on(set_->name).policy : name.substr(dash + 1);
    for (const auto& [of, policy] : data::kNamedPolicies)
      if (found_for == of) return data::AutoAugment{policy};
    return data::AutoAugment{};
  }

  /// --preset, or the size that a family may have for the set in place of its first one.
  std::string preset() const {
    const models::ModelFamily& family = models::family_named(plan_->model);
    const models::ModelPreset* const of_set = family.preset_of_set(set_->name);
    return of_set && plan_->preset == family.presets.front().name ? of_set->name : plan_->preset;
  }

  void make_pipeline() {
    models::BuildOptions options{
        .labels = set_->label_names, .dropout = plan_->dropout, .image_size = plan_->image_size};
    const std::string path = model_path();
    const bool sized = path.empty() && models::family_named(plan_->model).sized_by_data;
    if (sized && options.image_size == 0 && set_->in_memory()) options.image_size = side();
    auto model = models::model_as<models::ImageClassifier>(build(*plan_, preset(), options), plan_->model);
    const auto preprocessing = models::ImagePreprocessing::from_folder(path, model->input(), options.image_size);
    pipeline_.emplace(std::move(model), preprocessing);
    if (path.empty()) pipeline_->model().initialize([this](int64_t n) { return first_images(n); });
    labels_ = label_names_record(set_->label_names);
    set_->order_labels(pipeline_->model().labels());
  }

  /// The first rows of training that can be read, so that all ranks have the same. The loader reports the others.
  Tensor first_images(int64_t n) const {
    std::vector<data::Image> images;
    std::string problem;
    for (size_t i = 0; i < split_.train.size() && std::ssize(images) < n; ++i) {
      try {
        images.push_back(set_->image(split_.train[i]));
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const Error& error) {
        problem = error.what();
      }
    }
    TERN_CHECK(!images.empty(), set_->name, ": none of the training images can be read; the last: ", problem);
    return pipeline_->prepare(images);
  }

  std::shared_ptr<data::ImageSet> set_;
  mutable std::string content_;              // the hash of set_, when it was asked for
  std::string labels_;                       // of the data, for the record
  std::shared_ptr<data::ImageCache> cache_;  // --image-cache, for files
  std::optional<models::ImagePipeline> pipeline_;
  std::optional<models::ImageTask> task_;
};

}  // namespace

std::unique_ptr<Workload> make_image_workload() { return std::make_unique<ImageWorkload>(); }

}  // namespace tern::cli
