#pragma once
// Training and evaluation on rows of a set of images.

#include <memory>
#include <string>
#include <vector>

#include "tern/models/image/image_pipeline.h"
#include "tern/models/trainer/planned_task.h"

namespace tern::models {

using ImageObjective = Objective<data::ImageBatch>;

/// Batching and augmentation of images for training.
struct ImageTaskOptions {
  int64_t epochs = 10;
  int64_t batch_size = 64;
  bool shuffle = true;
  int workers = 2;
  uint64_t seed = 42;
  // A step for each training image in the workers, before `augmentation`; files are resized first. Empty: none.
  data::ImageStep policy = {};
  data::BatchAugmentOptions augmentation = {};  // sizes, normalisation and resampling are set by the preprocessing
  double label_smoothing = 0;
  // Progressive resizing: pixels a side of the training images in the first epoch (training_size()); 0: always the
  // preprocessing's size. A multiple of size_multiple, which the model's input() gives where there is one.
  int64_t first_size = 0;
  int64_t size_multiple = 1;
  TestTimeViews views = TestTimeViews::kNone;  // of evaluate(); not of the validation while training
  std::function<void(const std::string&)> log = {};
  EvaluateOptions validation = {};
  std::shared_ptr<data::ImageCache> cache = {};  // of decoded files, for training and validation
};

/// Whether the model has batch norms that train_except_frozen_norms() trains: a batch of one image is then too small.
bool trains_batch_norms(nn::Module& model);

/// Loss and accuracy over the given rows, without augmentation but options.views. Unreadable rows are left out of both,
/// and of `examples`.
Evaluation evaluate(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options);

/// Pixels a side in an epoch when images grow from `first` to `last` pixels: linearly in the first four fifths of the
/// epochs, rounded down to a multiple, then `last`.
int64_t training_size(int64_t first, int64_t last, int64_t multiple, int64_t epoch, int64_t epochs);

class ImageTask final : public PlannedTask<data::ImageBatch> {
 public:
  /// One label for each image.
  ImageTask(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
            const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows,
            const ImageTaskOptions& options);
  /// Anything else: targets of an image are found by ImageBatch::row_keys.
  ImageTask(nn::Module& model, ImageObjective objective, const ImagePreprocessing& preprocessing,
            const std::shared_ptr<const data::ImageSet>& set, const std::vector<int32_t>& train_rows,
            std::vector<int32_t> validation_rows, const ImageTaskOptions& options);

  const data::BatchPlan& plan() const override { return loader_.plan(); }
  bool fixed_shapes() const override { return PlannedTask::fixed_shapes() && options_.first_size == 0; }

 private:
  data::BatchSource<data::ImageBatch> training_batches(int64_t epoch, const data::BatchStripe& stripe) override;
  data::BatchSource<data::ImageBatch> evaluation_batches(const std::vector<int32_t>& rows) const override;
  std::string name_of(int32_t row) const override { return set_->name_of(row); }

  std::shared_ptr<const data::ImageSet> set_;
  ImagePreprocessing preprocessing_;
  DType dtype_;  // of the model's input
  ImageTaskOptions options_;
  data::ImageLoader loader_;
};

}  // namespace tern::models
