#pragma once
// An image classifier as a user meets it: model, preprocessing and label names of one folder; its training and its
// evaluation.

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

/// How pixels become the model's input: Hugging Face's preprocessor_config.json.
struct ImagePreprocessing {
  int64_t size = 224;  // height and width that the model gets
  data::Interpolation interpolation = data::Interpolation::kBilinear;
  kernels::ImageNormalization normalization = {};

  /// Parses a preprocessor_config.json. Throws Error on what Tern does not do (padding, other sizes than squares, ...).
  static ImagePreprocessing from_json(const std::string& text, const std::string& source);
  std::string to_json() const;
};

struct ImagePrediction {
  int64_t label = 0;  // of the largest logit
  double score = 0;   // its softmax probability
  std::vector<double> logits;
};

/// A Vision Transformer with its preprocessing: a folder with config.json, model.safetensors and
/// preprocessor_config.json.
class ImageClassifier {
 public:
  ImageClassifier(std::unique_ptr<ViT> model, const ImagePreprocessing& preprocessing);
  /// As ViT::from_pretrained. Without a preprocessor_config.json: mean and deviation 0.5, as Google's ViTs have them.
  static ImageClassifier load(const std::string& path, const FromPretrainedOptions& options = {},
                              const ViTFileOptions& file = {});
  /// Writes everything that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  ViT& model() const {
    TERN_CHECK(model_, "ImageClassifier: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const ImagePreprocessing& preprocessing() const { return preprocessing_; }
  /// Images of any sizes, 3 channels, resized and normalised: [n, 3, size, size] on the model's device.
  Tensor prepare(const std::vector<data::Image>& images) const;
  /// Predictions of the images, in their order.
  std::vector<ImagePrediction> predict(const std::vector<data::Image>& images) const;
  /// How much each patch adds to the class token's state, or to the mean, over all layers: attention rollout (Abnar &
  /// Zuidema, arXiv:2005.00928), [grid, grid] for each image, the largest value 1.
  std::vector<Tensor> attention_rollout(const std::vector<data::Image>& images) const;

 private:
  Tensor prepare_some(std::span<const data::Image> images) const;

  std::unique_ptr<ViT> model_;
  ImagePreprocessing preprocessing_;
};

/// How images are batched and augmented for training.
struct ImageTaskOptions {
  int64_t epochs = 10;
  int64_t batch_size = 64;
  bool shuffle = true;
  int workers = 2;
  uint64_t seed = 42;
  data::BatchAugmentOptions augmentation = {};  // its sizes, normalisation and resampling are the classifier's
  double label_smoothing = 0;
  DType dtype = DType::kFloat32;           // of validation
  std::function<bool()> should_stop = {};  // ends a validation early
  std::function<void(const std::string&)> log = {};
};

/// Loss and accuracy over the given rows, without augmentation. Runs without recording; puts the model into evaluation
/// mode and back. Rows that cannot be read are left out of both, and out of `examples`. Ends early, with numbers to
/// throw away, when should_stop, asked after every batch, says so.
Evaluation evaluate(const ImageClassifier& classifier, const std::shared_ptr<const data::ImageDataset>& set,
                    const std::vector<int32_t>& rows, const ImageTaskOptions& options);

/// Training of an image classifier on rows of a set.
class ImageTask final : public TrainingTask {
 public:
  ImageTask(const ImageClassifier& classifier, std::shared_ptr<const data::ImageDataset> set,
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
  /// A batch on its way to the model's device.
  struct Travelling {
    data::AugmentedBatch batch;
    Tensor keys;  // int64 [n], of the dropout masks
    std::vector<int32_t> rows;
    Event arrival;
  };
  void fetch_ahead();

  const ImageClassifier& classifier_;
  const bool fixed_;
  std::shared_ptr<const data::ImageDataset> set_;
  std::vector<int32_t> validation_rows_;
  ImageTaskOptions options_;
  data::ImageLoader loader_;
  data::BatchAugment augment_;
  std::optional<data::BatchStream<data::ImageBatch>> stream_;
  std::optional<Stream> copies_;  // CUDA: batches travel, and are augmented, beside the steps
  std::optional<Travelling> current_, ahead_;
};

}  // namespace tern::models
