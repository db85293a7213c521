#include "tern/models/vit/vit.h"

#include <algorithm>
#include <filesystem>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/io/json.h"
#include "tern/core/io/state_file.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/hf_config.h"
#include "tern/models/timm.h"
#include "tern/models/vit/checkpoint_names.h"
#include "tern/models/vit/positions.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

// Exceeds the tokens of any image: row keys are image * kMaxTokens + token.
constexpr double kMaxTokens = 1 << 24;

int64_t tokens_of(const ViTConfig& config) { return config.grid() * config.grid() + (config.class_token ? 1 : 0); }

/// Interpolates position embeddings [1, tokens, width] to another grid; the class token's is unchanged.
Tensor resized_positions(const Tensor& position, const ViTConfig& config, int64_t height, int64_t width) {
  const int64_t first = config.class_token ? 1 : 0;
  const Tensor matrix = grid_interpolation(config.grid(), height, width).to(position.dtype()).to(position.device());
  const Tensor grid = matmul(matrix, position.slice(1, first).reshape({-1, config.width}));
  const Tensor patches = grid.reshape({1, height * width, config.width});
  return first == 1 ? cat({position.slice(1, 0, 1), patches}, 1) : patches;
}

/// The same for a file's state, if the model's grid differs from the file's. `config` is the file's.
void resize_in_file(StateView& state, const KeyMap& map, const ViTConfig& config, int64_t grid) {
  NoGrad off;
  const std::string name = checkpoint_names_of(map, "position")[0];
  for (NamedTensor& entry : state)
    if (entry.name == name && entry.tensor.shape() == Shape({1, tokens_of(config), config.width}))
      entry.tensor = resized_positions(entry.tensor.to(DType::kFloat32), config, grid, grid);
}

struct Source {
  StateFile weights;
  std::optional<std::string> config = {};  // text of a config.json that describes the model
  std::string config_path = {};
  std::optional<TimmConfig> timm = {};
};

/// Finds the weights and configuration: a folder of transformers or timm, or a weights file.
Source find_source(const std::string& path) {
  if (is_weights_file(path)) {
    Source source{load_state_file(path)};
    for (const UnreadableTensor& tensor : source.weights.unreadable)
      fail(path, ": the tensor '", tensor.name, "' cannot be read: ", tensor.reason);
    return source;
  }
  Source source{{}, read_model_text(path, "config.json"), (fs::path(path) / "config.json").string()};
  const nlohmann::json json = parse_json_object(*source.config, source.config_path);
  source.timm = TimmConfig::from_json(json, source.config_path);
  if (source.timm) source.config.reset();  // it names an architecture, the shapes say the rest
  source.weights = load_state_folder(path);
  return source;
}

}  // namespace

ViT::ViT(const nn::Scope& s, const ViTConfig& config)
    : ImageClassifier(s),
      config_((config.validate("ViT"), config)),
      position_(this, "position", Shape{1, tokens_of(config), config.width},
                nn::init::normal(0, config.initializer_range)),
      patch_weight_(this, "patch_weight", Shape{config.width, config.channels, config.patch_size, config.patch_size},
                    nn::init::normal(0, config.initializer_range)),
      patch_bias_(this, "patch_bias", Shape{config.width}),
      encoder_(sub("encoder"), config.encoder()),
      classifier_(sub("classifier"), config.width, config.num_labels(), normal_linear(config.initializer_range)) {
  if (config.class_token)
    class_token_.emplace(this, "class_token", Shape{1, 1, config.width}, nn::init::normal(0, config.initializer_range));
  if (config.mean_pool() && config.norm_first)
    pool_norm_.emplace(sub("pool_norm"), config.width, nn::LayerNormOptions{.eps = config.norm_eps});
}

data::TokenInput ViT::layout(const Tensor& images, const Tensor& image_keys) const {
  const int64_t p = config_.patch_size;
  TERN_CHECK(images.dim() == 4 && images.size(1) == config_.channels && is_floating(images.dtype()),
             "ViT: images must be floating [n, ", config_.channels, ", height, width], got ", images.describe());
  TERN_CHECK(images.size(2) > 0 && images.size(2) % p == 0 && images.size(3) > 0 && images.size(3) % p == 0,
             "ViT: the sides of an image must be multiples of the patch size ", p, ", got ", images.size(2), " x ",
             images.size(3));
  const int64_t n = images.size(0),
                tokens = (images.size(2) / p) * (images.size(3) / p) + (config_.class_token ? 1 : 0);
  TERN_CHECK(!image_keys.defined() || (image_keys.dtype() == DType::kInt64 && image_keys.shape() == Shape({n})),
             "ViT: image_keys must be int64 [", n, "], got ", image_keys.describe());
  const TensorOptions whole{.dtype = DType::kInt64, .device = images.device()};
  data::TokenInput input;
  input.layout = padded_layout(n, tokens, {}, images.device());
  input.first_rows = arange(0, static_cast<double>(n * tokens), static_cast<double>(tokens), whole);
  if (image_keys.defined())
    input.layout.row_keys =
        (image_keys.unsqueeze(1) * kMaxTokens + arange(0, static_cast<double>(tokens), 1, whole)).reshape({-1});
  return input;
}

Tensor ViT::positions(int64_t grid_height, int64_t grid_width) const {
  if (grid_height == config_.grid() && grid_width == config_.grid()) return position_;
  return resized_positions(position_, config_, grid_height, grid_width);
}

Tensor ViT::embed(const Tensor& images, const data::TokenInput& input) const {
  const ProfileRange range("embeddings", RangeKind::kModule);
  const int64_t n = images.size(0), c = config_.channels, p = config_.patch_size;
  const int64_t height = images.size(2) / p, width = images.size(3) / p;
  // A convolution whose stride equals its kernel size is a matrix product of the patches with the kernel.
  const Tensor patches = images.reshape({n, c, height, p, width, p}).permute({0, 2, 4, 1, 3, 5});
  Tensor x = linear(patches.reshape({n, height * width, c * p * p}),
                    patch_weight_.tensor().reshape({config_.width, c * p * p}), patch_bias_);
  if (class_token_) x = cat({class_token_->tensor().expand({n, 1, config_.width}), x}, 1);
  x = (x + positions(height, width)).reshape({-1, config_.width});
  return dropout(
      x, {.p = is_training() ? config_.dropout : 0, .generator = &generator(), .row_keys = input.layout.row_keys});
}

Tensor ViT::forward(const Tensor& images, const Tensor& image_keys) const {
  return forward_head(features(images, image_keys), image_keys);
}

Tensor ViT::features(const Tensor& images, const Tensor& image_keys) const {
  const data::TokenInput input = layout(images, image_keys);
  const Tensor x = embed(images, input);
  if (!config_.mean_pool()) return encoder_.forward_first(x, input);
  const Tensor states = encoder_.forward(x, input).reshape({images.size(0), -1, config_.width});
  const Tensor pooled = mean(states.slice(1, class_token_ ? 1 : 0), {1});
  return pool_norm_ ? pool_norm_->forward(pooled) : pooled;
}

Tensor ViT::forward_head(const Tensor& features, const Tensor& /*image_keys*/) const {
  const ProfileRange range("classification head", RangeKind::kModule);
  return classifier_.forward(features);
}

Tensor ViT::hidden_states(const Tensor& images) const {
  const data::TokenInput input = layout(images, {});
  return encoder_.forward(embed(images, input), input).reshape({images.size(0), -1, config_.width});
}

std::vector<Tensor> ViT::attention_maps(const Tensor& images) const {
  const data::TokenInput input = layout(images, {});
  return encoder_.attention_maps(embed(images, input), input);
}

double ViT::forward_flops() const {
  const double d = static_cast<double>(config_.width), h = static_cast<double>(config_.hidden);
  const double n = static_cast<double>(tokens_of(config_));
  const double patch = static_cast<double>(config_.channels * config_.patch_size * config_.patch_size);
  return 2 * n * patch * d + static_cast<double>(config_.layers) * (2 * n * (4 * d * d + 2 * d * h) + 4 * n * n * d) +
         2 * d * static_cast<double>(config_.num_labels());
}

std::vector<Tensor> ViT::attention_rollout(const Tensor& images) const {
  NoGrad off;
  const int64_t first = config_.class_token ? 1 : 0;
  Tensor rollout;  // [n, tokens, tokens]: contributions of all tokens to each token's state
  for (const Tensor& map : attention_maps(images)) {
    const Tensor mixed = mean(map.to(DType::kFloat32), {1});
    // The residual connection contributes the other half of a token's state.
    const Tensor all = arange(0, static_cast<double>(mixed.size(1)), 1, {.dtype = int64, .device = mixed.device()});
    const Tensor identity = eq(all.unsqueeze(0), all.unsqueeze(1)).to(DType::kFloat32);
    const Tensor step = mixed * 0.5 + identity * 0.5;
    rollout = rollout.defined() ? matmul(step, rollout) : step;
  }
  const Tensor read = config_.mean_pool() ? mean(rollout.slice(1, first), {1}) : rollout.slice(1, 0, 1).squeeze(1);
  const Tensor patches = read.slice(1, first).to(Device());
  std::vector<Tensor> maps;
  for (int64_t i = 0; i < patches.size(0); ++i) {
    const Tensor map =
        patches.slice(0, i, i + 1).reshape({images.size(2) / config_.patch_size, images.size(3) / config_.patch_size});
    maps.push_back(map / std::max(max(map).item<double>(), 1e-12));
  }
  return maps;
}

std::string ViT::record() const {
  const nlohmann::ordered_json record = {{"patch_size", config_.patch_size},
                                         {"width", config_.width},
                                         {"layers", config_.layers},
                                         {"dropout", config_.dropout},
                                         {"attention_dropout", config_.attention_dropout}};
  return record.dump();
}

PublicCheckpoint<ViTConfig> ViT::read_checkpoint(const std::string& path, const BuildOptions& options) {
  const Source source = find_source(path);
  const TensorSet given = model_tensors(source.weights, has_vit_names, options.log);
  const ViTNames names = vit_names(given.tensors, source.weights.path);
  StateView tensors = vit_modernised(names, given.tensors);
  const KeyMap& map = vit_key_map(names);
  int64_t heads = options.heads;
  if (source.timm) {
    const Tensor patch = find(tensors, "patch_embed.proj.weight");
    const int64_t width = patch.defined() && patch.dim() > 0 ? patch.size(0) : 0;  // loading says what is missing
    const int64_t published = source.timm->vit_heads(width, find(tensors, "fc_norm.weight").defined());
    if (heads == 0) heads = published;
  }
  ViTConfig config = source.config ? ViTConfig::from_json(*source.config, source.config_path, options.log)
                                   : vit_config_from_shapes(names, tensors, heads, source.weights.path);
  if (source.timm && source.timm->labels().size() == config.labels.size()) config.labels = source.timm->labels();
  if (options.log && !source.config && heads == 0 && names != ViTNames::kTorchvision)
    options.log(path + ": the shapes do not say how many heads there are; as in most published networks " +
                std::to_string(config.heads) + " of " + std::to_string(config.width / config.heads) +
                " dimensions are taken. A folder with its config.json says it");
  if (options.image_size > 0 && options.image_size != config.image_size) {
    const ViTConfig trained = config;
    config.image_size = options.image_size;
    config.validate(path);
    resize_in_file(tensors, map, trained, config.grid());
  }
  return {config,
          {.file = source.weights,
           .tensors = tensors,
           .names = &map,
           // The masked-image decoder's, and what is only used with it.
           .ignored_prefixes = {"vit.pooler.", "decoder.", "vit.embeddings.mask_token"},
           .head_prefixes = {"classifier."},
           .model = described_model("the model", given)}};
}

void ViT::save_pretrained(const std::string& dir) const {
  save_public(*this, vit_key_map(ViTNames::kHuggingFace), dir);
}

ModelFamily vit_family() {
  const auto make = [](const std::string& preset, const BuildOptions& options) -> std::unique_ptr<Model> {
    require_one_label("ViT", options);
    ViTConfig config = ViTConfig::preset(preset);
    config.labels = options.labels;
    if (options.image_size > 0) config.image_size = options.image_size;
    if (options.dropout) config.set_dropout(*options.dropout);
    return std::make_unique<ViT>(options.scope(), config);
  };
  return {.name = "vit",
          .kind = ModelKind::kImages,
          .model_types = {"vit", "tern_vit"},
          .presets = ViTConfig::presets(),
          .load = load_model<ViT>,
          .make = make,
          .presets_note = ", these with patch 16 at 224 x 224",
          .recognizes = has_vit_names,
          .notes = {{"--image-size", "a ViT's position embeddings are interpolated"},
                    {"--attention", "ViT: attention rollout"}}};
}

}  // namespace tern::models
