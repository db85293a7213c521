#pragma once
// Image classifier API: model, preprocessing and label names in one folder; its training and evaluation.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tern/core/stream.h"
#include "tern/data/loader_images.h"
#include "tern/data/transforms/augment.h"
#include "tern/models/trainer/trainer.h"
#include "tern/models/vit/vit.h"

namespace tern::models {

/// Conversion of pixels to the model's input: Hugging Face's preprocessor_config.json.
struct ImagePreprocessing {
  int64_t size = 224;  // height and width of the model's input
  data::Interpolation interpolation = data::Interpolation::kBilinear;
  kernels::ImageNormalization normalization = {};

  /// Parses a preprocessor_config.json. Throws Error on unsupported settings (padding, sizes that are not square, ...).
  static ImagePreprocessing from_json(const std::string& text, const std::string& source);
  std::string to_json() const;
};

struct ImagePrediction {
  int64_t label = 0;  // index of the largest logit
  double score = 0;   // its softmax probability
  std::vector<double> logits;
};

/// A Vision Transformer with its preprocessing, stored as a folder with config.json, model.safetensors and
/// preprocessor_config.json.
class ImageClassifier {
 public:
  ImageClassifier(std::unique_ptr<ViT> model, const ImagePreprocessing& preprocessing);
  /// As ViT::from_pretrained. Without a preprocessor_config.json: mean and deviation 0.5, as for Google's ViTs.
  static ImageClassifier load(const std::string& path, const FromPretrainedOptions& options = {},
                              const ViTFileOptions& file = {});
  /// Writes all files that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  ViT& model() const {
    TERN_CHECK(model_, "ImageClassifier: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const ImagePreprocessing& preprocessing() const { return preprocessing_; }
  /// Resizes and normalises images of any sizes, 3 channels: [n, 3, size, size] on the model's device.
  Tensor prepare(const std::vector<data::Image>& images) const;
  /// Predictions in the order of the images.
  std::vector<ImagePrediction> predict(const std::vector<data::Image>& images) const;
  /// Attention rollout over all layers (Abnar & Zuidema, arXiv:2005.00928): the contribution of each patch to the class
  /// token's state, or to the mean; [grid, grid] per image, the largest value is 1.
  std::vector<Tensor> attention_rollout(const std::vector<data::Image>& images) const;

 private:
  Tensor prepare_some(std::span<const data::Image> images) const;

  std::unique_ptr<ViT> model_;
  ImagePreprocessing preprocessing_;
};

/// Batching and augmentation of images for training.
struct ImageTaskOptions {
  int64_t epochs = 10;
  int64_t batch_size = 64;
  bool shuffle = true;
  int workers = 2;
  uint64_t seed = 42;
  data::BatchAugmentOptions augmentation = {};  // sizes, normalisation and resampling are set by the classifier
  double label_smoothing = 0;
  DType dtype = DType::kFloat32;           // for validation
  std::function<bool()> should_stop = {};  // checked to end a validation early
  std::function<void(const std::string&)> log = {};
};

/// Loss and accuracy over the given rows, without augmentation. Records no gradients; sets evaluation mode and restores
/// the mode afterwards. Unreadable rows are left out of both, and of `examples`. should_stop is called after every
/// batch; if it returns true, evaluation ends early with meaningless numbers.
Evaluation evaluate(const ImageClassifier& classifier, const std::shared_ptr<const data::ImageSet>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options);

/// Trains an image classifier on rows of a set.
class ImageTask final : public TrainingTask {
 public:
  ImageTask(const ImageClassifier& classifier, std::shared_ptr<const data::ImageSet> set,
            const std::vector<int32_t>& train_rows, std::vector<int32_t> validation_rows,
            const ImageTaskOptions& options);

  nn::Module& module() override { return classifier_.model(); }
  int64_t epochs() const override { return loader_.epochs(); }
  int64_t steps(int64_t epoch) const override { return loader_.steps(epoch); }
  void begin_epoch(int64_t epoch, const data::BatchStripe& stripe = {}) override;
  bool next_batch() override;
  TrainingBatch batch() const override;
  Tensor loss(const TrainingBatch& batch) override;
  bool fixed_shapes() const override { return fixed_; }
  int64_t items(int64_t epoch, int64_t batch) const override { return examples(epoch, batch); }
  int64_t examples(int64_t epoch, int64_t batch) const override {
    return static_cast<int64_t>(loader_.plan().epoch(epoch).batch(batch).size());
  }
  bool keyed_dropout() const override { return true; }
  bool can_validate() const override { return !validation_rows_.empty(); }
  Evaluation validate() override;

 private:
  /// A batch that is being copied to the model's device.
  struct Travelling {
    data::AugmentedBatch batch;
    Tensor keys;  // int64 [n], keys of the dropout masks
    std::vector<int32_t> rows;
    Event arrival;
  };
  void fetch_ahead();

  const ImageClassifier& classifier_;
  const bool fixed_;
  std::shared_ptr<const data::ImageSet> set_;
  std::vector<int32_t> validation_rows_;
  ImageTaskOptions options_;
  data::ImageLoader loader_;
  data::BatchAugment augment_;
  std::optional<data::BatchStream<data::ImageBatch>> stream_;
  std::optional<Stream> copies_;  // CUDA: copies and augmentation overlap with the steps
  std::optional<Travelling> current_, ahead_;
};

}  // namespace tern::models
