#include "tern/models/image/image_classifier.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/atomic_file.h"
#include "tern/core/io/file_kind.h"
#include "tern/core/io/folders.h"
#include "tern/core/ops/ops.h"
#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreprocessing = "preprocessor_config.json";

// Limits of a prediction batch: images, and pixel values.
constexpr int64_t kBatch = 64;
constexpr int64_t kBatchValues = int64_t{1} << 26;

}  // namespace

ImageClassifier::ImageClassifier(std::unique_ptr<ViT> model, const ImagePreprocessing& preprocessing)
    : model_(std::move(model)), preprocessing_(preprocessing) {
  TERN_CHECK(this->model().config().channels == 3, "the model takes images of ", this->model().config().channels,
             " channels; images have 3");
  TERN_CHECK(preprocessing_.size % this->model().config().patch_size == 0, "images of ", preprocessing_.size,
             " pixels a side are not a multiple of the model's patches of ", this->model().config().patch_size);
}

ImageClassifier ImageClassifier::load(const std::string& path, const FromPretrainedOptions& options,
                                      const ViTFileOptions& file) {
  auto model = ViT::from_pretrained(path, options, file);
  ImagePreprocessing preprocessing = ImagePreprocessing::from_json("{}", path);
  preprocessing.size = model->config().image_size;
  const std::string config = (fs::path(path) / kPreprocessing).string();
  if (tern::detail::name_exists(config)) {
    preprocessing = ImagePreprocessing::from_json(read_model_text(path, kPreprocessing), config);
    if (file.image_size > 0) preprocessing.size = file.image_size;
  }
  return {std::move(model), preprocessing};
}

void ImageClassifier::save(const std::string& dir) const {
  create_folders(dir);
  write_atomically((fs::path(dir) / kPreprocessing).string(), preprocessing_.to_json());
  model().save_pretrained(dir);
}

Tensor ImageClassifier::prepare(const std::vector<data::Image>& images) const { return prepare_some(images); }

Tensor ImageClassifier::prepare_some(std::span<const data::Image> images) const {
  const int64_t size = preprocessing_.size, n = static_cast<int64_t>(images.size());
  Tensor pixels = empty({n, size, size, 3}, {.dtype = DType::kUInt8});
  for (int64_t i = 0; i < n; ++i) {
    const data::Image resized =
        data::resize(images[static_cast<size_t>(i)], size, size, {.interpolation = preprocessing_.interpolation});
    std::copy(resized.pixels.begin(), resized.pixels.end(), pixels.data<uint8_t>() + i * size * size * 3);
  }
  const std::vector<kernels::ImageAugment> plans(images.size());
  return data::augment_images(pixels.to(model().device()), plans, preprocessing_.normalization, size, size,
                              model().dtype());
}

std::vector<ImagePrediction> ImageClassifier::predict(const std::vector<data::Image>& images) const {
  NoGrad off;
  std::vector<ImagePrediction> predictions;
  const int64_t values_an_image = 3 * preprocessing_.size * preprocessing_.size;
  const auto batch = static_cast<size_t>(std::clamp<int64_t>(kBatchValues / values_an_image, 1, kBatch));
  for (std::span<const data::Image> rest = images; !rest.empty(); rest = rest.subspan(std::min(batch, rest.size()))) {
    const Tensor logits = model().forward(prepare_some(rest.first(std::min(batch, rest.size())))).to(DType::kFloat32);
    const std::vector<double> values = logits.to_vector<double>(), scores = softmax(logits).to_vector<double>();
    const int64_t classes = logits.size(1);
    for (int64_t i = 0; i < logits.size(0); ++i) {
      ImagePrediction p;
      p.logits.assign(values.begin() + i * classes, values.begin() + (i + 1) * classes);
      p.label = std::max_element(p.logits.begin(), p.logits.end()) - p.logits.begin();
      p.score = scores[static_cast<size_t>(i * classes + p.label)];
      predictions.push_back(std::move(p));
    }
  }
  return predictions;
}

std::vector<Tensor> ImageClassifier::attention_rollout(const std::vector<data::Image>& images) const {
  NoGrad off;
  const ViTConfig& config = model().config();
  const int64_t grid = preprocessing_.size / config.patch_size, first = config.class_token ? 1 : 0;
  Tensor rollout;  // [n, tokens, tokens]: contributions of all tokens to each token's state
  for (const Tensor& map : model().attention_maps(prepare(images))) {
    const Tensor mixed = mean(map.to(DType::kFloat32), {1});
    // The residual connection contributes the other half of a token's state.
    const Tensor all = arange(0, static_cast<double>(mixed.size(1)), 1, {.dtype = int64, .device = mixed.device()});
    const Tensor identity = eq(all.unsqueeze(0), all.unsqueeze(1)).to(DType::kFloat32);
    const Tensor step = mixed * 0.5 + identity * 0.5;
    rollout = rollout.defined() ? matmul(step, rollout) : step;
  }
  const Tensor read = config.mean_pool() ? mean(rollout.slice(1, first), {1}) : rollout.slice(1, 0, 1).squeeze(1);
  const Tensor patches = read.slice(1, first).to(Device());
  std::vector<Tensor> maps;
  for (int64_t i = 0; i < patches.size(0); ++i) {
    const Tensor map = patches.slice(0, i, i + 1).reshape({grid, grid});
    maps.push_back(map / std::max(max(map).item<double>(), 1e-12));
  }
  return maps;
}

}  // namespace tern::models
