#include "tern/models/cnn/config.h"

#include <algorithm>
#include <cstdio>
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
                                      .first_size = "17/32 of it, 16 or more",
                                      .augment = "alternating",
                                      .tta = "flip-shift",
                                      .split = "train-test"};
constexpr TrainingRecipe quick_recipe() {
  TrainingRecipe recipe = kSpeedrun;
  recipe.epochs = 3;
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
    {.preset = {"quick", "speedrun in three epochs", &kQuick}, .kind = CnnKind::kSpeedrun},
};

constexpr ConfigField<CnnConfig> kCnnFields[] = {
    {"architecture", &CnnConfig::architecture},      {"dropout", &CnnConfig::dropout},
    {"image_size", &CnnConfig::image_size, 1 << 14}, {"num_channels", &CnnConfig::channels, 1 << 10},
    {"small_images", &CnnConfig::small_images},      {"stochastic_depth", &CnnConfig::stochastic_depth}};

const Architecture& architecture_of(const CnnConfig& config) {
  return find_preset(kArchitectures, config.architecture);
}

Tensor entry(const StateView& weights, const std::string& name) { return find(weights, name); }

bool is_residual(const StateView& weights) {
  return std::any_of(weights.begin(), weights.end(),
                     [](const NamedTensor& t) { return t.name.starts_with("layer1.0.conv"); });
}

/// The sizes of a residual network's weights. Stages and blocks count by any of their tensors, so that a missing one
/// does not hide the others.
ResNetSizes resnet_sizes(const StateView& weights) {
  ResNetSizes found;
  found.blocks = {};
  for (const NamedTensor& t : weights) {
    size_t stage = 0;
    int64_t block = 0;
    char dot = 0;
    if (std::sscanf(t.name.c_str(), "layer%1zu.%4ld%c", &stage, &block, &dot) != 3 || dot != '.') continue;
    if (stage < 1 || stage > 4 || block < 0) continue;
    int64_t& blocks = found.blocks[stage - 1];
    blocks = std::max(blocks, block + 1);
    found.bottleneck = found.bottleneck || t.name.ends_with(".conv3.weight");
    found.squeezes = found.squeezes || t.name.ends_with(".se.fc1.weight");
  }
  const Tensor second = entry(weights, "layer1.0.conv2.weight");
  if (found.bottleneck && second.defined() && second.dim() == 4 && second.size(1) > 0) {
    found.groups = second.size(0) / second.size(1);
    found.group_width = second.size(0) / std::max<int64_t>(found.groups, 1);
  }
  return found;
}

/// How far apart two networks' weights are: 0 if names and shapes are the same.
int64_t distance(const ResNetSizes& a, const ResNetSizes& b) {
  // Roughly the layers of a block that differ.
  const int64_t in_block =
      a.bottleneck != b.bottleneck
          ? 6
          : (a.groups != b.groups || a.group_width != b.group_width ? 4 : 0) + (a.squeezes != b.squeezes ? 2 : 0);
  int64_t sum = 0;
  for (size_t stage = 0; stage < 4; ++stage) {
    const auto [fewer, more] = std::minmax(a.blocks[stage], b.blocks[stage]);
    sum += in_block * fewer + 6 * (more - fewer);
  }
  return sum;
}

/// Those of which others publish weights.
std::vector<std::string> public_architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures)
    if (a.kind != CnnKind::kSpeedrun) names.push_back(a.preset.name);
  return names;
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

/// The architecture of weights under torchvision's names, or of residual networks the nearest: loading then lists all
/// differences. Null if the names are of no kind of network in the table.
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
  else if (is_residual(weights))
    kind = CnnKind::kResNet;
  if (!kind) return nullptr;
  const ResNetSizes sizes = *kind == CnnKind::kResNet ? resnet_sizes(weights) : ResNetSizes();
  const Architecture* nearest = nullptr;
  for (const Architecture& a : kArchitectures)
    if (a.kind == *kind && (!nearest || distance(a.resnet, sizes) < distance(nearest->resnet, sizes))) nearest = &a;
  return nearest;
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
  const std::vector<std::string> known = offered(presets());
  TERN_CHECK(std::find(known.begin(), known.end(), architecture) != known.end(), source, ": \"architecture\" must be ",
             in_words(known), ", got '", tern::detail::printable(architecture), "'");
  CnnConfig config = preset(architecture);
  fields.read(kCnnFields, config);
  config.labels = fields.read_labels();
  fields.require_single_label();
  fields.reject_unknown("CnnConfig");
  config.validate(source);
  return config;
}

bool CnnConfig::recognizes(const StateView& weights) {
  return is_residual(weights) || entry(weights, "features.0.0.weight").defined() ||
         entry(weights, "whiten.weight").defined();
}

CnnConfig CnnConfig::from_weights(const StateView& weights, const std::string& source) {
  const Architecture* const found = recognized(weights);
  TERN_CHECK(found, source, ": the names of the tensors are those of none of the networks that Tern reads: ",
             in_words(public_architectures()), ", as torchvision or timm names their tensors");
  CnnConfig config = preset(found->preset.name);
  const bool residual = found->kind == CnnKind::kResNet, speedrun = found->kind == CnnKind::kSpeedrun;
  const char* const first_name = residual ? "conv1.weight" : speedrun ? "whiten.weight" : "features.0.0.weight";
  const Tensor first = entry(weights, first_name);
  const bool is_kernel = first.defined() && first.dim() == 4;  // otherwise loading says what does not fit
  if (is_kernel) config.channels = first.size(1);
  config.small_images = speedrun || (residual && is_kernel && first.size(2) == 3);
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
