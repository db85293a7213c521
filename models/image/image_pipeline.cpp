#include "tern/models/image/image_pipeline.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/core/io/folders.h"
#include "tern/core/ops/ops.h"
#include "tern/data/transforms/geometry.h"
#include "tern/models/hf_config.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/timm.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreprocessing = "preprocessor_config.json";

// Limits of a prediction batch: images, and pixel values.
constexpr int64_t kBatch = 64;
constexpr int64_t kBatchValues = int64_t{1} << 26;

}  // namespace

ImagePreprocessing ImagePreprocessing::from_folder(const std::string& path, const ImageClassifier::Input& input,
                                                   int64_t image_size) {
  const std::string folder = folder_of_model(path), file = (fs::path(folder) / kPreprocessing).string();
  const bool exists = !path.empty() && tern::detail::name_exists(file);
  const bool carried = !exists && !input.preprocessing.empty();
  ImagePreprocessing preprocessing = from_json(exists    ? read_model_text(folder, kPreprocessing)
                                               : carried ? input.preprocessing
                                                         : "{}",
                                               exists ? file : path);
  if (!exists && !carried) {
    preprocessing.size = input.size;
    preprocessing.normalization = input.normalization;
  }
  if (const auto timm = exists || carried || path.empty() ? std::nullopt : TimmConfig::from_folder(folder)) {
    const TimmConfig::Images images = timm->images();
    if (input.multiple == 1) preprocessing.size = images.size;  // otherwise the weights say it
    preprocessing.interpolation = images.interpolation;
    preprocessing.normalization = images.normalization;
    if (!images.squash)
      preprocessing.crop_from = static_cast<int64_t>(std::floor(static_cast<double>(preprocessing.size) / images.crop));
  }
  if (image_size > 0) {
    preprocessing.crop_from = preprocessing.crop_from * image_size / preprocessing.size;
    preprocessing.size = image_size;
  }
  return preprocessing;
}

data::Image ImagePreprocessing::fit(const data::Image& image, int64_t side) const {
  const data::ResizeOptions resampling{.interpolation = interpolation};
  if (crop_from == 0) return data::resize(image, side, side, resampling);
  constexpr int64_t kMaxRatio = 100;  // the longer side grows in proportion before it is cut
  TERN_CHECK(std::max(image.height, image.width) <= kMaxRatio * std::min(image.height, image.width), "an image of ",
             image.height, " x ", image.width, " pixels is too narrow to cut out its centre");
  return data::center_crop(data::resize_shorter(image, crop_from * side / size, resampling), side, side);
}

ImagePipeline::ImagePipeline(std::unique_ptr<ImageClassifier> model, const ImagePreprocessing& preprocessing)
    : model_(std::move(model)), preprocessing_(preprocessing) {
  const ImageClassifier::Input input = this->model().input();
  TERN_CHECK(input.channels == 3, "the model takes images of ", input.channels, " channels; images have 3");
  TERN_CHECK(preprocessing_.size % input.multiple == 0, "images of ", preprocessing_.size,
             " pixels a side are not a multiple of the model's patches of ", input.multiple);
}

ImagePipeline ImagePipeline::load(const std::string& path, const BuildOptions& options) {
  auto model = load_pretrained<ImageClassifier>(path, options);
  const auto preprocessing = ImagePreprocessing::from_folder(path, model->input(), options.image_size);
  return {std::move(model), preprocessing};
}

void ImagePipeline::save(const std::string& dir) const {
  create_folders(dir);
  write_atomically((fs::path(dir) / kPreprocessing).string(), preprocessing_.to_json());
  model().save_pretrained(dir);
}

Tensor ImagePipeline::prepare(std::span<const data::Image> images, int64_t size) const {
  if (size == 0) size = preprocessing_.size;
  const int64_t n = static_cast<int64_t>(images.size());
  Tensor pixels = empty({n, size, size, 3}, {.dtype = DType::kUInt8});
  for (int64_t i = 0; i < n; ++i) {
    const data::Image resized = preprocessing_.fit(images[static_cast<size_t>(i)], size);
    std::copy(resized.pixels.begin(), resized.pixels.end(), pixels.data<uint8_t>() + i * size * size * 3);
  }
  const std::vector<kernels::ImageAugment> plans(images.size());
  return data::augment_images(pixels.to(model().device()), plans, preprocessing_.normalization, size, size,
                              model().dtype());
}

void ImagePipeline::for_each_batch(const std::vector<data::Image>& images, int64_t size,
                                   const std::function<void(const Tensor& prepared)>& use) const {
  const int64_t values_an_image = 3 * size * size;
  const auto batch = static_cast<size_t>(std::clamp<int64_t>(kBatchValues / values_an_image, 1, kBatch));
  for (std::span<const data::Image> rest = images; !rest.empty(); rest = rest.subspan(std::min(batch, rest.size())))
    use(prepare(rest.first(std::min(batch, rest.size())), size));
}

std::vector<Prediction> ImagePipeline::predict(const std::vector<data::Image>& images, TestTimeViews views) const {
  NoGrad off;
  std::vector<Prediction> predictions;
  const data::LabelKind kind = model().label_kind();
  TERN_CHECK(kind == data::LabelKind::kOne || views == TestTimeViews::kNone,
             "test-time augmentation averages the probabilities of one label, and the model gives ",
             kind == data::LabelKind::kNumber ? "numbers" : "several labels");
  for_each_batch(images, test_time_size(views, preprocessing_.size), [&](const Tensor& prepared) {
    for (Prediction& p : predictions_of(test_time_logits(model(), prepared, views, preprocessing_.size), kind))
      predictions.push_back(std::move(p));
  });
  return predictions;
}

Tensor ImagePipeline::features(const std::vector<data::Image>& images) const {
  NoGrad off;
  std::vector<Tensor> found;
  for_each_batch(images, preprocessing_.size, [&](const Tensor& prepared) {
    found.push_back(model().features(prepared).to(DType::kFloat32).to(Device()));
  });
  return found.empty() ? Tensor() : cat(found, 0);
}

}  // namespace tern::models
