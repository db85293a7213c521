#include "tern/models/cnn/cnn.h"

#include <algorithm>
#include <filesystem>

#include "tern/core/autograd/checkpoint.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/json.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/cnn/mobile.h"
#include "tern/models/cnn/resnet.h"
#include "tern/models/cnn/speedrun.h"
#include "tern/models/hf_config.h"
#include "tern/models/timm.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

/// PyTorch's files of before 2018 do not count the batches of a norm.
void add_missing_counts(StateView& state) {
  const std::string mean = "running_mean", count = "num_batches_tracked";
  StateView added;
  for (const NamedTensor& entry : state) {
    if (!entry.name.ends_with(mean)) continue;
    const std::string name = entry.name.substr(0, entry.name.size() - mean.size()) + count;
    if (!find(state, name).defined()) added.push_back({name, zeros(Shape{}, {.dtype = DType::kInt64})});
  }
  state.insert(state.end(), added.begin(), added.end());
}

}  // namespace

std::unique_ptr<Cnn> Cnn::make(const nn::Scope& s, const CnnConfig& config) {
  config.validate("Cnn");
  if (config.kind() == CnnKind::kResNet) return std::make_unique<ResNet>(s, config);
  if (config.kind() == CnnKind::kSpeedrun) return std::make_unique<Speedrun>(s, config);
  return std::make_unique<MobileNet>(s, config);
}

Cnn::Cnn(const nn::Scope& s, const CnnConfig& config) : ImageClassifier(s), config_(config) {}

PublicCheckpoint<CnnConfig> Cnn::read_checkpoint(const std::string& path, const BuildOptions& options) {
  const bool is_file = is_weights_file(path);
  StateFile file = is_file ? load_state_file(path) : load_state_folder(path);
  for (const UnreadableTensor& tensor : file.unreadable)
    fail(path, ": the tensor '", tensor.name, "' cannot be read: ", tensor.reason);
  const TensorSet given = model_tensors(file, CnnConfig::recognizes, options.log);
  const std::string source = is_file ? path : (fs::path(path) / "config.json").string();
  const std::string text = is_file ? "{}" : read_model_text(path, "config.json");
  const nlohmann::json json = parse_json_object(text, source);
  const bool from_shapes = !json.contains("model_type");  // of a file, and of timm's folders
  CnnConfig config = from_shapes ? CnnConfig::from_weights(given.tensors, path) : CnnConfig::from_json(text, source);
  if (const auto timm = TimmConfig::from_json(json, source)) {
    TERN_CHECK(!config.small_images, path, ": its first convolution is not that of ", config.architecture);
    timm->require_cnn(config.architecture);
    config.image_size = timm->images().size;
    if (timm->labels().size() == config.labels.size()) config.labels = timm->labels();
  } else if (from_shapes && options.log && config.kind() == CnnKind::kResNet) {
    options.log(path + ": the shapes are those of " + config.architecture +
                ", as which it is computed; networks with other pools have the same (timm's resnetblur, resnetaa)");
  }
  if (options.image_size > 0) config.image_size = options.image_size;
  config.validate(path);
  StateView tensors = given.tensors;
  add_missing_counts(tensors);
  return {config,
          {.file = std::move(file),
           .tensors = std::move(tensors),
           .head_prefixes = {"fc.", "classifier.", "head."},
           .model = described_model(config.architecture, given)}};
}

void Cnn::save_pretrained(const std::string& dir) const { save_public(*this, own_names(*this), dir); }

Tensor Cnn::feature_map(const Tensor& images, const Tensor& image_keys) const {
  TERN_CHECK(images.dim() == 4 && images.size(1) == config_.channels && is_floating(images.dtype()),
             config_.architecture, ": images must be floating [n, ", config_.channels, ", height, width], got ",
             images.describe());
  TERN_CHECK(
      !image_keys.defined() || (image_keys.dtype() == DType::kInt64 && image_keys.shape() == Shape({images.size(0)})),
      config_.architecture, ": image_keys must be int64 [", images.size(0), "], got ", image_keys.describe());
  Tensor x = stem(images);
  const bool again = recompute_ > 0 && grad_enabled();
  const size_t segment = again ? static_cast<size_t>(recompute_) : blocks_.size();
  for (size_t first = 0; first < blocks_.size(); first += segment) {
    const auto run = [this, first, segment, image_keys](const Tensor& in) {
      Tensor y = in;
      for (size_t i = first; i < std::min(first + segment, blocks_.size()); ++i) y = blocks_[i]->forward(y, image_keys);
      return y;
    };
    x = again ? checkpoint(run, x) : run(x);
  }
  return x;
}

Tensor Cnn::pool(const Tensor& feature_map) const { return mean(feature_map, {2, 3}); }

Tensor Cnn::features(const Tensor& images, const Tensor& image_keys) const {
  return pool(feature_map(images, image_keys));
}

Tensor Cnn::forward_head(const Tensor& features, const Tensor& image_keys) const {
  const ProfileRange range("classification head", RangeKind::kModule);
  return head(features, image_keys);
}

Tensor Cnn::forward(const Tensor& images, const Tensor& image_keys) const {
  return forward_head(features(images, image_keys), image_keys);
}

ImageClassifier::Input Cnn::input() const {
  // The mean and deviation of ImageNet's pixels, which torchvision's weights expect.
  Input input{.size = config_.image_size, .channels = config_.channels};
  const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  std::copy_n(mean, 3, input.normalization.mean);
  std::copy_n(deviation, 3, input.normalization.std);
  return input;
}

double Cnn::forward_flops() const {
  int64_t side = config_.image_size;
  double count = stem_flops(side);
  for (const CnnBlock* block : blocks_) count += block->flops(side);
  return count + head_flops();
}

std::vector<Tensor> Cnn::attention_rollout(const Tensor& images) const {
  Tensor map;
  {
    NoGrad off;
    map = feature_map(images);
  }
  const Tensor leaf = map.detach().set_requires_grad(true);
  Tensor slope;
  {
    const GradMode on(true);
    const Tensor logits = forward_head(pool(leaf));
    slope = grad({sum(max(logits, {1}))}, {leaf})[0];
  }
  NoGrad off;
  const Tensor shown = relu(sum(map * mean(slope, {2, 3}, true), {1})).to(DType::kFloat32).to(Device());
  std::vector<Tensor> maps;
  for (int64_t i = 0; i < shown.size(0); ++i) maps.push_back(shown[i] / std::max(max(shown[i]).item<double>(), 1e-12));
  return maps;
}

std::string Cnn::record() const {
  const nlohmann::ordered_json record = {{"architecture", config_.architecture},
                                         {"small_images", config_.small_images},
                                         {"dropout", config_.dropout},
                                         {"stochastic_depth", config_.stochastic_depth}};
  return record.dump();
}

ModelFamily cnn_family() {
  const auto make = [](const std::string& preset, const BuildOptions& options) -> std::unique_ptr<Model> {
    require_one_label("Cnn", options);
    CnnConfig config = CnnConfig::preset(preset);
    config.labels = options.labels;
    if (options.image_size > 0) config.image_size = options.image_size;
    config.small_images = config.image_size <= 64;
    if (options.dropout) config.set_dropout(*options.dropout);
    return Cnn::make(options.scope(), config);
  };
  return {.name = "cnn",
          .kind = ModelKind::kImages,
          .model_types = {"tern_cnn"},
          .presets = CnnConfig::presets(),
          .load = load_model<Cnn>,
          .make = make,
          .presets_note = " (default: speedrun for images of 16 to 64 pixels a side, otherwise resnet18)",
          .preset_for = CnnConfig::preset_for,
          .sized_by_data = true,
          .recognizes = CnnConfig::recognizes,
          .notes = {{"--freeze", "layer[1-3].*,bn1.* of a cnn"},
                    {"--dropout", "EfficientNet's stochastic depth is its own"},
                    {"--attention", "CNNs: Grad-CAM of the label"}}};
}

}  // namespace tern::models
