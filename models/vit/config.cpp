#include "tern/models/vit/config.h"

#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

constexpr const char* kPlainType = "vit";
constexpr const char* kOwnType = "tern_vit";  // unknown to transformers

constexpr struct {
  ModelPreset preset;
  int64_t width, layers, heads, image_size, patch_size;
} kViTPresets[] = {{{"tiny", "192 x 9, patch 4 at 32 x 32"}, 192, 9, 3, 32, 4},
                   {{"small", "384 x 12"}, 384, 12, 6, 224, 16},
                   {{"base", "768 x 12"}, 768, 12, 12, 224, 16},
                   {{"large", "1024 x 24"}, 1024, 24, 16, 224, 16},
                   {{"digits"}, 96, 4, 3, 8, 2}};

constexpr ConfigField<ViTConfig> kViTFields[] = {{"attention_probs_dropout_prob", &ViTConfig::attention_dropout},
                                                 {"hidden_act", &ViTConfig::activation},
                                                 {"hidden_dropout_prob", &ViTConfig::dropout},
                                                 {"hidden_size", &ViTConfig::width, 1 << 17},
                                                 {"initializer_range", &ViTConfig::initializer_range, 1e3},
                                                 {"intermediate_size", &ViTConfig::hidden, 1 << 20},
                                                 {"layer_norm_eps", &ViTConfig::norm_eps},
                                                 {"num_attention_heads", &ViTConfig::heads, 1 << 12},
                                                 {"num_channels", &ViTConfig::channels, 1 << 10},
                                                 {"num_hidden_layers", &ViTConfig::layers, 1 << 12},
                                                 {"qkv_bias", &ViTConfig::qkv_bias}};
/// Sides of squares, which a file may give as a list.
constexpr ConfigField<ViTConfig> kViTSides[] = {{"image_size", &ViTConfig::image_size, 1 << 14},
                                                {"patch_size", &ViTConfig::patch_size, 1 << 12}};
/// Fields of kOwnType alone.
constexpr ConfigField<ViTConfig> kOwnFields[] = {
    {"norm_first", &ViTConfig::norm_first}, {"pool", &ViTConfig::pool}, {"class_token", &ViTConfig::class_token}};

}  // namespace

ViTConfig ViTConfig::preset(const std::string& name) {
  const auto& preset = find_preset(kViTPresets, name);
  ViTConfig config;
  config.image_size = preset.image_size;
  config.patch_size = preset.patch_size;
  config.width = preset.width;
  config.layers = preset.layers;
  config.heads = preset.heads;
  config.hidden = 4 * preset.width;
  if (name == "digits") {  // 1,800 images: a model that fits few of them
    config.hidden = 192;
    config.set_dropout(0.1);
    config.initializer_range = 0.1;  // about 1 / sqrt(width): 0.02 is for wide models
  }
  return config;
}

std::vector<ModelPreset> ViTConfig::presets() { return presets_of(kViTPresets); }

ViTConfig ViTConfig::from_json(const std::string& text, const std::string& source, const Log& log) {
  ConfigFields fields(text, source);
  const std::string type = fields.read_type({kPlainType, kOwnType});
  ViTConfig config;
  fields.read(kViTFields, config);
  for (const auto& side : kViTSides) fields.read_side(side.name, config.*std::get<int64_t ViTConfig::*>(side.member));
  if (type == kOwnType) fields.read(kOwnFields, config);
  config.labels = fields.read_labels();
  fields.require_single_label();
  // Fields of parts that a classifier lacks: the masked-image decoder and the pooler.
  for (const char* part : {"encoder_stride", "pooler_output_size", "pooler_act"}) fields.take(part);
  fields.reject_not_implemented();
  if (type == kPlainType)
    fields.ignore_unknown(log);
  else
    fields.reject_unknown("ViTConfig");
  config.validate(source);
  return config;
}

void ViTConfig::validate(const std::string& source) const {
  const ConfigRules rules(source);
  rules.bounds(kViTFields, *this);
  rules.bounds(kViTSides, *this);
  TERN_CHECK(image_size % patch_size == 0, source, ": \"image_size\" ", image_size,
             " is not a multiple of \"patch_size\" ", patch_size);
  rules.heads("hidden_size", width, "num_attention_heads", heads);
  rules.activation("hidden_act", activation);
  TERN_CHECK(pool == "cls" || pool == "mean", source, ": \"pool\" must be cls or mean, got '", pool, "'");
  TERN_CHECK(class_token || pool == "mean", source, ": \"pool\" cls needs \"class_token\"");
  check_labels(labels, source);
}

EncoderOptions ViTConfig::encoder() const {
  return {.width = width,
          .heads = heads,
          .hidden = hidden,
          .layers = layers,
          .activation = activation == "relu" ? Activation::kRelu : Activation::kGelu,
          .dropout = dropout,
          .attention_dropout = attention_dropout,
          .norm_eps = norm_eps,
          .initializer_range = initializer_range,
          .qkv_bias = qkv_bias,
          .norm_first = norm_first,
          .final_norm = !mean_pool()};
}

std::string ViTConfig::to_json(DType dtype) const {
  ConfigFields::Json json;
  if (plain()) json["architectures"] = {"ViTForImageClassification"};
  json["model_type"] = plain() ? kPlainType : kOwnType;
  write_fields(json, kViTFields, *this);
  write_fields(json, kViTSides, *this);
  if (!plain()) write_fields(json, kOwnFields, *this);
  json["encoder_stride"] = patch_size;
  write_labels(json, labels);
  json["problem_type"] = "single_label_classification";
  json["torch_dtype"] = name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
