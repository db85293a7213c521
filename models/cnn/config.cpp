#include "tern/models/cnn/config.h"

#include <algorithm>
#include <optional>

#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

constexpr const char* kSpeedrunName = "speedrun";
constexpr const char* kModelType = "tern_cnn";  // unknown to transformers

/// Pixels a side of speedrun's first epoch: 17 of 32, where no pooling drops a row, and as many as it needs.
constexpr int64_t first_size(int64_t size) { return std::max(size * 17 / 32, CnnConfig::kSpeedrunSide); }

/// 7.1e8 operations for each image of 32 pixels a side and 2.2e8 for one of 17: 3.9e14 in all for CIFAR-10.
constexpr TrainingRecipe kSpeedrun = {.epochs = 16,
                                      .batch_size = 1000,
                                      .optimizer = "muon",
                                      .lr = 0.17,
                                      .momentum = 0.8,
                                      .scales_with_batch = true,
                                      .warmup = 0,
                                      .label_smoothing = 0.2,
                                      .progressive_resize = first_size,
                                      .augment = "alternating",
                                      .tta = "flip-shift",
                                      .split = "train-test"};
constexpr TrainingRecipe quick_recipe() {
  TrainingRecipe recipe = kSpeedrun;
  recipe.epochs = 4;
  return recipe;
}
constexpr TrainingRecipe kQuick = quick_recipe();

struct Architecture {
  ModelPreset preset;
  CnnKind kind = CnnKind::kResNet;
  double dropout = 0, stochastic_depth = 0;
  ResNetSizes resnet = {};
};

constexpr ResNetSizes sizes(std::array<int64_t, 4> blocks, bool bottleneck, bool squeezes = false, int64_t groups = 1,
                            int64_t group_width = 64) {
  return {blocks, bottleneck, groups, group_width, squeezes};
}

constexpr Architecture kArchitectures[] = {
    {.preset = {"resnet18", "11.7 M parameters"}, .resnet = sizes({2, 2, 2, 2}, false)},
    {.preset = {"resnet34", "21.8 M"}, .resnet = sizes({3, 4, 6, 3}, false)},
    {.preset = {"resnet50", "25.6 M"}, .resnet = sizes({3, 4, 6, 3}, true)},
    {.preset = {"resnet101", "44.5 M"}, .resnet = sizes({3, 4, 23, 3}, true)},
    {.preset = {"resnet152", "60.2 M"}, .resnet = sizes({3, 8, 36, 3}, true)},
    {.preset = {"resnext50_32x4d", "25.0 M"}, .resnet = sizes({3, 4, 6, 3}, true, false, 32, 4)},
    {.preset = {"wide_resnet50_2", "68.9 M"}, .resnet = sizes({3, 4, 6, 3}, true, false, 1, 128)},
    {.preset = {"seresnet18", "11.8 M"}, .resnet = sizes({2, 2, 2, 2}, false, true)},
    {.preset = {"seresnet50", "28.1 M"}, .resnet = sizes({3, 4, 6, 3}, true, true)},
    {.preset = {"mobilenet_v2", "3.5 M"}, .kind = CnnKind::kMobileNetV2, .dropout = 0.2},
    {.preset = {"mobilenet_v3_small", "2.5 M"}, .kind = CnnKind::kMobileNetV3Small, .dropout = 0.2},
    {.preset = {"mobilenet_v3_large", "5.5 M"}, .kind = CnnKind::kMobileNetV3Large, .dropout = 0.2},
    {.preset = {"efficientnet_b0", "5.3 M"}, .kind = CnnKind::kEfficientNetB0, .dropout = 0.2, .stochastic_depth = 0.2},
    {.preset = {kSpeedrunName, "2.0 M, for images of 16 to 64 pixels a side", &kSpeedrun}, .kind = CnnKind::kSpeedrun},
    {.preset = {"quick", "speedrun in four epochs", &kQuick}, .kind = CnnKind::kSpeedrun},
};

constexpr ConfigField<CnnConfig> kCnnFields[] = {
    {"architecture", &CnnConfig::architecture},      {"dropout", &CnnConfig::dropout},
    {"image_size", &CnnConfig::image_size, 1 << 14}, {"num_channels", &CnnConfig::channels, 1 << 10},
    {"small_images", &CnnConfig::small_images},      {"stochastic_depth", &CnnConfig::stochastic_depth}};

const Architecture& architecture_of(const CnnConfig& config) {
  return find_preset(kArchitectures, config.architecture);
}

Tensor entry(const StateView& weights, const std::string& name) { return find(weights, name); }

/// The sizes of a residual network's weights; empty where a stage is missing.
std::optional<ResNetSizes> resnet_sizes(const StateView& weights) {
  ResNetSizes found;
  for (size_t stage = 0; stage < 4; ++stage) {
    int64_t& blocks = found.blocks[stage] = 0;
    const std::string prefix = "layer" + std::to_string(stage + 1) + ".";
    while (entry(weights, prefix + std::to_string(blocks) + ".conv1.weight").defined()) ++blocks;
    if (blocks == 0) return {};
  }
  found.bottleneck = entry(weights, "layer1.0.conv3.weight").defined();
  found.squeezes = entry(weights, "layer1.0.se.fc1.weight").defined();
  const Tensor second = entry(weights, "layer1.0.conv2.weight");
  if (!second.defined() || second.dim() != 4 || second.size(1) == 0) return {};
  if (found.bottleneck) {
    found.groups = second.size(0) / second.size(1);
    found.group_width = second.size(0) / std::max<int64_t>(found.groups, 1);
  }
  return found;
}

bool same(const ResNetSizes& a, const ResNetSizes& b) {
  return a.blocks == b.blocks && a.bottleneck == b.bottleneck && a.groups == b.groups &&
         a.group_width == b.group_width && a.squeezes == b.squeezes;
}

/// The last layer's weight.
const char* head_of(CnnKind kind) {
  switch (kind) {
    case CnnKind::kResNet:
      return "fc.weight";
    case CnnKind::kMobileNetV3Small:
    case CnnKind::kMobileNetV3Large:
      return "classifier.3.weight";
    case CnnKind::kSpeedrun:
      return "head.weight";
    case CnnKind::kMobileNetV2:
    case CnnKind::kEfficientNetB0:
      break;
  }
  return "classifier.1.weight";
}

/// The architecture of weights under torchvision's names; null if it is none of the table.
const Architecture* recognized(const StateView& weights) {
  std::optional<CnnKind> kind;
  const auto has = [&](const char* name) { return entry(weights, name).defined(); };
  if (has("features.1.conv.0.0.weight"))
    kind = CnnKind::kMobileNetV2;
  else if (has("features.1.0.block.0.0.weight"))
    kind = CnnKind::kEfficientNetB0;
  else if (has("features.1.block.0.0.weight"))
    kind = has("features.16.0.weight") ? CnnKind::kMobileNetV3Large : CnnKind::kMobileNetV3Small;
  else if (has("whiten.weight"))
    kind = CnnKind::kSpeedrun;
  else if (has("layer1.0.conv1.weight"))
    kind = CnnKind::kResNet;
  if (!kind) return nullptr;
  const std::optional<ResNetSizes> sizes = *kind == CnnKind::kResNet ? resnet_sizes(weights) : ResNetSizes();
  for (const Architecture& a : kArchitectures)
    if (sizes && a.kind == *kind && (*kind != CnnKind::kResNet || same(a.resnet, *sizes))) return &a;
  return nullptr;
}

}  // namespace

CnnConfig CnnConfig::preset(const std::string& name) {
  const Architecture& found = find_preset(kArchitectures, name);
  CnnConfig config;
  config.architecture = found.kind == CnnKind::kSpeedrun ? kSpeedrunName : name;
  config.dropout = found.dropout;
  config.stochastic_depth = found.stochastic_depth;
  return config;
}

std::vector<ModelPreset> CnnConfig::presets() { return presets_of(kArchitectures); }

const char* CnnConfig::preset_for(int64_t side) {
  return side >= kSpeedrunSide && side <= 64 ? kSpeedrunName : "resnet18";
}

CnnKind CnnConfig::kind() const { return architecture_of(*this).kind; }
ResNetSizes CnnConfig::resnet() const { return architecture_of(*this).resnet; }

CnnConfig CnnConfig::from_json(const std::string& text, const std::string& source) {
  ConfigFields fields(text, source);
  fields.read_type({kModelType});
  std::string architecture = CnnConfig().architecture;
  fields.read("architecture", architecture);
  CnnConfig config = preset(architecture);
  fields.read(kCnnFields, config);
  config.labels = fields.read_labels();
  fields.require_single_label();
  fields.reject_unknown("CnnConfig");
  config.validate(source);
  return config;
}

bool CnnConfig::recognizes(const StateView& weights) {
  return std::any_of(weights.begin(), weights.end(), [](const NamedTensor& t) {
    return t.name == "layer1.0.conv1.weight" || t.name == "features.0.0.weight" || t.name == "whiten.weight";
  });
}

CnnConfig CnnConfig::from_weights(const StateView& weights, const std::string& source) {
  const Architecture* const found = recognized(weights);
  TERN_CHECK(found, source, ": the names and shapes of the tensors are not those of ", in_words(offered(presets())),
             " as torchvision names them");
  CnnConfig config = preset(found->preset.name);
  const bool residual = found->kind == CnnKind::kResNet, speedrun = found->kind == CnnKind::kSpeedrun;
  const char* const first_name = residual ? "conv1.weight" : speedrun ? "whiten.weight" : "features.0.0.weight";
  const Tensor first = entry(weights, first_name);
  TERN_CHECK(first.defined() && first.dim() == 4, source, ": there is no tensor '", first_name, "' of four dimensions");
  config.channels = first.size(1);
  config.small_images = speedrun || (residual && first.size(2) == 3);
  if (config.small_images) config.image_size = 32;
  const Tensor head = entry(weights, head_of(found->kind));
  if (head.defined() && head.dim() == 2) {
    config.labels.clear();
    for (int64_t i = 0; i < head.size(0); ++i) config.labels.push_back("LABEL_" + std::to_string(i));
  }
  config.validate(source);
  return config;
}

void CnnConfig::validate(const std::string& source) const {
  const ConfigRules rules(source);
  rules.bounds(kCnnFields, *this);
  TERN_CHECK(dropout < 1 && stochastic_depth < 1, source, ": dropout and stochastic_depth must be below 1");
  (void)architecture_of(*this);
  check_labels(labels, source);
}

std::string CnnConfig::to_json(DType dtype) const {
  ConfigFields::Json json;
  json["model_type"] = kModelType;
  write_fields(json, kCnnFields, *this);
  write_labels(json, labels);
  json["problem_type"] = "single_label_classification";
  json["torch_dtype"] = name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
