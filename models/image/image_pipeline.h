#pragma once
// An image classifier as it is used: model, preprocessing and label names in one folder.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tern/data/transforms/augment.h"
#include "tern/models/image/test_time.h"
#include "tern/models/prediction.h"
#include "tern/models/pretrained.h"

namespace tern::models {

/// Conversion of pixels to the model's input: Hugging Face's preprocessor_config.json.
struct ImagePreprocessing {
  int64_t size = 224;  // height and width of the model's input
  /// The shorter side is resized to so many pixels and the centre cut out; 0: the image is resized to size x size.
  int64_t crop_from = 0;
  data::Interpolation interpolation = data::Interpolation::kBilinear;
  kernels::ImageNormalization normalization = {};

  /// Parses a preprocessor_config.json: of transformers' ViTImageProcessor, or of its BitImageProcessor, which cuts out
  /// the centre. Throws Error on unsupported settings (padding, sizes that are not square, ...).
  static ImagePreprocessing from_json(const std::string& text, const std::string& source);
  /// The folder's preprocessor_config.json; without one, or with an empty path, what a config.json of timm's says, or
  /// the size and the normalisation of the model's input. image_size > 0 replaces the size.
  static ImagePreprocessing from_folder(const std::string& path, const ImageClassifier::Input& input,
                                        int64_t image_size = 0);
  std::string to_json() const;
  /// The image at `side` pixels a side, resized or cut as above in proportion. Throws Error for an image that is to be
  /// cut and whose sides differ more than a hundredfold.
  data::Image fit(const data::Image& image, int64_t side) const;
};

/// A model of an image family with its preprocessing, stored as a folder with config.json, model.safetensors and
/// preprocessor_config.json.
class ImagePipeline {
 public:
  ImagePipeline(std::unique_ptr<ImageClassifier> model, const ImagePreprocessing& preprocessing);
  static ImagePipeline load(const std::string& path, const BuildOptions& options = {});
  /// Writes all files that load() and transformers' from_pretrained need.
  void save(const std::string& dir) const;

  ImageClassifier& model() const {
    TERN_CHECK(model_, "ImagePipeline: there is no model: a null pointer was given, or this object was moved from");
    return *model_;
  }
  const ImagePreprocessing& preprocessing() const { return preprocessing_; }
  /// Resizes and normalises images of any sizes, 3 channels: [n, 3, size, size] on the model's device. size: pixels a
  /// side; 0: the preprocessing's.
  Tensor prepare(std::span<const data::Image> images, int64_t size = 0) const;
  /// Predictions in the order of the images.
  std::vector<Prediction> predict(const std::vector<data::Image>& images,
                                  TestTimeViews views = TestTimeViews::kNone) const;
  /// ImageClassifier::features() of the images in their order, float32 [images, width] on the CPU; undefined without
  /// images.
  Tensor features(const std::vector<data::Image>& images) const;

 private:
  /// Calls `use` with all images in turn, a batch at a time, of this size.
  void for_each_batch(const std::vector<data::Image>& images, int64_t size,
                      const std::function<void(const Tensor& prepared)>& use) const;

  std::unique_ptr<ImageClassifier> model_;
  ImagePreprocessing preprocessing_;
};

}  // namespace tern::models
