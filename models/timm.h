#pragma once
// The config.json of timm's model folders: which network the weights are of, and how images are prepared for it.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tern/data/transforms/resize.h"
#include "tern/kernels/image.h"

namespace tern::models {

/// timm's config.json as far as Tern uses it. Reading it does not check whether Tern computes the architecture.
class TimmConfig {
 public:
  /// Nothing if the object is not timm's: it names no architecture, or a model_type, as transformers' and Tern's do.
  static std::optional<TimmConfig> from_json(const nlohmann::json& object, const std::string& source);
  /// The contents of DIR/config.json; nothing also if there is none.
  static std::optional<TimmConfig> from_folder(const std::string& dir);

  const std::string& architecture() const { return architecture_; }
  /// The names of the labels, "label_names"; empty if they are absent.
  std::vector<std::string> labels() const;
  /// The heads of one of timm's Vision Transformers. `width` and `mean_pool` are those of its weights. Throws Error
  /// if Tern does not compute the architecture, or another setting than the published one changes what it computes.
  int64_t vit_heads(int64_t width, bool mean_pool) const;
  /// Throws Error unless the weights are of the convolutional network `name`, as published.
  void require_cnn(const std::string& name) const;

  /// How images are prepared (pretrained_cfg), by default timm's.
  struct Images {
    int64_t size = 224;   // pixels a side
    double crop = 0.875;  // size is this part of the side that the shorter side is resized to; the centre is cut out
    bool squash = false;  // both sides are resized
    data::Interpolation interpolation = data::Interpolation::kBicubic;
    kernels::ImageNormalization normalization = {};
  };
  /// Throws Error for values that Tern does not implement.
  Images images() const;

 private:
  /// Throws Error for an entry of model_args that is set and not one of `known`, or a pool that is not one of `pools`.
  void check_arguments(std::initializer_list<const char*> known, std::initializer_list<const char*> pools) const;
  const nlohmann::json& entry(const char* object, const char* name) const;

  nlohmann::json object_;
  std::string source_, architecture_;
};

}  // namespace tern::models
