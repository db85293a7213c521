#include "tern/models/timm.h"

#include <algorithm>
#include <filesystem>
#include <regex>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/models/hf_config.h"

namespace tern::models {
namespace {

using tern::detail::printable;

/// The sizes in the names of timm's plain Vision Transformers.
constexpr struct {
  const char* name;
  int64_t width, heads;
} kSizes[] = {{"tiny", 192, 3},   {"small", 384, 6},   {"base", 768, 12},     {"large", 1024, 16},
              {"huge", 1280, 16}, {"giant", 1408, 16}, {"gigantic", 1664, 16}};

/// What changes nothing in a trained network: shapes, which the weights have, and training.
constexpr const char* kHarmless[] = {"num_classes", "in_chans",   "drop_rate",       "drop_path_rate",
                                     "weight_init", "pretrained", "zero_init_last",  "pretrained_strict",
                                     "device",      "dtype",      "drop_block_rate", "scale_by_keep"};

bool one_of(std::initializer_list<const char*> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<TimmConfig> TimmConfig::from_json(const nlohmann::json& object, const std::string& source) {
  if (!object.contains("architecture") || object.contains("model_type")) return std::nullopt;
  const nlohmann::json& name = object["architecture"];
  TERN_CHECK(name.is_string(), source, ": \"architecture\" must be a string, got ", shortened(name));
  for (const char* part : {"pretrained_cfg", "model_args"})
    TERN_CHECK(!object.contains(part) || object[part].is_object() || object[part].is_null(), source, ": \"", part,
               "\" must be an object, got ", shortened(object[part]));
  TimmConfig config;
  config.object_ = object;
  config.source_ = source;
  const std::string full = name.get<std::string>();
  config.architecture_ = full.substr(0, full.find('.'));  // without the tag of the weights
  return config;
}

std::optional<TimmConfig> TimmConfig::from_folder(const std::string& dir) {
  const std::string path = (std::filesystem::path(dir) / "config.json").string();
  if (!tern::detail::name_exists(path)) return std::nullopt;
  return from_json(parse_json_object(read_model_text(dir, "config.json"), path), path);
}

const nlohmann::json& TimmConfig::entry(const char* object, const char* name) const {
  static const nlohmann::json none;
  const auto outer = object_.find(object);
  if (outer == object_.end() || !outer->is_object() || !outer->contains(name)) return none;
  return (*outer)[name];
}

std::vector<std::string> TimmConfig::labels() const {
  const auto names = object_.find("label_names");
  if (names == object_.end() || !names->is_array()) return {};
  std::vector<std::string> labels;
  for (const nlohmann::json& name : *names) labels.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  return labels;
}

void TimmConfig::check_arguments(std::initializer_list<const char*> known,
                                 std::initializer_list<const char*> pools) const {
  if (const auto arguments = object_.find("model_args"); arguments != object_.end() && arguments->is_object())
    for (const auto& [name, value] : arguments->items()) {
      const bool harmless = std::find(std::begin(kHarmless), std::end(kHarmless), name) != std::end(kHarmless);
      // timm's arguments that are null or false are those of the published network.
      const bool usual = value.is_null() || value == false;
      TERN_CHECK(harmless || usual || one_of(known, name), source_, ": \"model_args\" has ", printable(name), ": ",
                 shortened(value), ", which Tern does not implement");
    }
  for (const nlohmann::json& pool :
       {object_.value("global_pool", nlohmann::json()), entry("model_args", "global_pool")})
    TERN_CHECK(pool.is_null() || (pool.is_string() && one_of(pools, pool.get<std::string>())), source_,
               ": \"global_pool\" is ", shortened(pool), ", which Tern does not implement for ", architecture_);
}

int64_t TimmConfig::vit_heads(int64_t width, bool mean_pool) const {
  static const std::regex plain("(vit|deit)_([a-z]+)_patch[0-9]+_[0-9]+(_miil)?");
  std::smatch parts;
  const auto* size = std::end(kSizes);
  if (std::regex_match(architecture_, parts, plain))
    size = std::find_if(std::begin(kSizes), std::end(kSizes),
                        [&](const auto& known) { return parts[2].str() == known.name; });
  TERN_CHECK(size != std::end(kSizes), source_, ": the architecture is timm's ", printable(architecture_),
             ", whose computation Tern does not have or does not know; it has the plain ViTs and DeiTs "
             "(vit_SIZE_patchP_N, deit_SIZE_patchP_N)");
  check_arguments({"img_size", "patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "qkv_bias", "class_token",
                   "global_pool", "fc_norm", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"},
                  {"token", "avg"});
  const std::string pool = object_.value("global_pool", nlohmann::json()).is_string()
                               ? object_["global_pool"].get<std::string>()
                               : (mean_pool ? "avg" : "token");
  TERN_CHECK((pool == "avg") == mean_pool, source_, ": \"global_pool\" is ", pool, ", but the weights have ",
             mean_pool ? "a" : "no", " norm behind the pool (fc_norm), which Tern does not implement");
  const nlohmann::json &heads = entry("model_args", "num_heads"), &given = entry("model_args", "embed_dim");
  TERN_CHECK(!given.is_null() || width == size->width, source_, ": ", architecture_, " has a width of ", size->width,
             ", its weights have ", width, "; \"model_args\" must say how it was changed");
  if (heads.is_null()) return size->heads;
  TERN_CHECK(integer_in(heads) && *integer_in(heads) >= 1, source_, ": \"num_heads\" must be a positive integer, got ",
             shortened(heads));
  return *integer_in(heads);
}

void TimmConfig::require_cnn(const std::string& name) const {
  // timm's names of the same networks with other weights.
  std::string plain = architecture_;
  for (const std::string prefix : {"tv_", "ssl_", "swsl_"})
    if (plain.starts_with(prefix)) plain = plain.substr(prefix.size());
  TERN_CHECK(plain == name, source_, ": the architecture is timm's ", printable(architecture_),
             ", whose computation Tern does not have or does not know; the shapes of the weights are nearest to ",
             name);
  check_arguments({"global_pool"}, {"avg"});
}

TimmConfig::Images TimmConfig::images() const {
  Images images;
  // timm's defaults: ImageNet's statistics.
  const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  std::copy_n(mean, 3, images.normalization.mean);
  std::copy_n(deviation, 3, images.normalization.std);
  const auto wrong = [&](const char* name, const nlohmann::json& value) {
    fail(source_, ": \"", name, "\" of \"pretrained_cfg\" is ", shortened(value), ", which Tern does not implement");
  };
  const auto get = [&](const char* name) -> const nlohmann::json& { return entry("pretrained_cfg", name); };
  for (const auto& [name, values] : {std::pair{"mean", images.normalization.mean}, {"std", images.normalization.std}}) {
    const nlohmann::json& given = get(name);
    if (given.is_null()) continue;
    if (!given.is_array() || given.size() != 3) wrong(name, given);
    for (size_t c = 0; c < 3; ++c) {
      if (!given[c].is_number() || (std::string_view(name) == "std" && given[c].get<double>() <= 0)) wrong(name, given);
      values[c] = given[c].get<float>();
    }
  }
  if (const nlohmann::json& size = get("input_size"); !size.is_null()) {
    const bool good = size.is_array() && size.size() == 3 && integer_in(size[1]) && size[1] == size[2] &&
                      *integer_in(size[1]) >= 1 && *integer_in(size[1]) <= 1 << 14;
    if (!good) wrong("input_size", size);
    images.size = *integer_in(size[1]);
  }
  if (const nlohmann::json& crop = get("crop_pct"); !crop.is_null()) {
    if (!crop.is_number() || crop.get<double>() <= 0.05 || crop.get<double>() > 1) wrong("crop_pct", crop);
    images.crop = crop.get<double>();
  }
  if (const nlohmann::json& mode = get("crop_mode"); !mode.is_null()) {
    images.squash = mode == "squash";
    if (mode != "center" && !(images.squash && images.crop == 1)) wrong("crop_mode", mode);
  }
  if (const nlohmann::json& interpolation = get("interpolation"); !interpolation.is_null()) {
    if (interpolation != "bicubic" && interpolation != "bilinear") wrong("interpolation", interpolation);
    if (interpolation == "bilinear") images.interpolation = data::Interpolation::kBilinear;
  }
  return images;
}

}  // namespace tern::models
