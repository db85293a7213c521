#pragma once
// Training and evaluation on rows of a set of images.

#include <memory>
#include <string>
#include <vector>

#include "tern/models/image/image_pipeline.h"
#include "tern/models/trainer/planned_task.h"

namespace tern::models {

using ImageObjective = Objective<data::AugmentedBatch>;

/// Batching and augmentation of images for training.
struct ImageTaskOptions {
  int64_t epochs = 10;
  int64_t batch_size = 64;
  bool shuffle = true;
  int workers = 2;
  uint64_t seed = 42;
  data::BatchAugmentOptions augmentation = {};  // sizes, normalisation and resampling are set by the preprocessing
  double label_smoothing = 0;
  std::function<void(const std::string&)> log = {};
  EvaluateOptions validation = {};
  std::shared_ptr<data::ImageCache> cache = {};  // of decoded files, for training and validation
};

/// Loss and accuracy over the given rows, without augmentation. Unreadable rows are left out of both, and of
/// `examples`.
Evaluation evaluate(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options);

class ImageTask final : public PlannedTask<data::AugmentedBatch> {
 public:
  /// One label for each image.
  ImageTask(const ImagePipeline& pipeline, const std::shared_ptr<const data::ImageSet>& set,
            const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows,
            const ImageTaskOptions& options);
  /// Anything else: targets of an image are found by AugmentedBatch::row_keys.
  ImageTask(nn::Module& model, ImageObjective objective, const ImagePreprocessing& preprocessing,
            const std::shared_ptr<const data::ImageSet>& set, const std::vector<int32_t>& train_rows,
            std::vector<int32_t> validation_rows, const ImageTaskOptions& options);

  const data::BatchPlan& plan() const override { return loader_.plan(); }

 private:
  data::BatchSource<data::AugmentedBatch> training_batches(int64_t epoch, const data::BatchStripe& stripe) override;
  data::BatchSource<data::AugmentedBatch> evaluation_batches(const std::vector<int32_t>& rows) const override;

  std::shared_ptr<const data::ImageSet> set_;
  ImagePreprocessing preprocessing_;
  DType dtype_;  // of the model's input
  ImageTaskOptions options_;
  data::ImageLoader loader_;
  data::BatchAugment augment_;
};

}  // namespace tern::models
