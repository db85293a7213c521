#pragma once

#include <array>
#include <string>
#include <vector>

#include "tern/models/families.h"

namespace tern::models {

/// Sizes of a residual network (He et al., arXiv:1512.03385; Xie et al., arXiv:1611.05431, for groups; Hu et al.,
/// arXiv:1709.01507, for squeeze-and-excitation).
struct ResNetSizes {
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};  // of the four stages
  bool bottleneck = false;                       // 1 x 1, 3 x 3, 1 x 1 instead of two 3 x 3
  int64_t groups = 1;
  int64_t group_width = 64;  // of a bottleneck's 3 x 3 convolution in the first stage
  bool squeezes = false;     // squeeze-and-excitation behind each block's last norm
};

/// Which networks a name stands for.
enum class CnnKind { kResNet, kMobileNetV2, kMobileNetV3Small, kMobileNetV3Large, kEfficientNetB0, kSpeedrun };

/// The configuration of a convolutional classifier: the architectures of torchvision, by its names.
struct CnnConfig {
  std::string architecture = "resnet18";
  int64_t image_size = 224;  // pixels per side in training; the model accepts others
  int64_t channels = 3;
  /// In a residual network the first convolution is 3 x 3 with stride 1 and no pooling follows, for images of about 32
  /// pixels, instead of 7 x 7 with stride 2 and pooling. Of the others: the first stride is 1.
  bool small_images = false;
  double dropout = 0;           // in front of the last layer
  double stochastic_depth = 0;  // of the last block; those before have less, in proportion (arXiv:1603.09382)
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};

  /// The architecture with its published dropout. Throws Error that lists the names for another one.
  static CnnConfig preset(const std::string& name);
  static std::vector<ModelPreset> presets();
  /// Pixels a side that "speedrun" needs: its three poolings must leave one.
  static constexpr int64_t kSpeedrunSide = 16;
  /// ModelFamily::preset_for: "speedrun" for 16 to 64 pixels, otherwise "resnet18".
  static const char* preset_for(int64_t side);
  /// Parses a config.json as written by to_json(), or by timm for the networks that both have; `source` names it in
  /// errors. Throws Error on unknown fields, wrong types and contradictory values.
  static CnnConfig from_json(const std::string& text, const std::string& source);
  /// The config of weights with torchvision's names and no config.json. Throws Error that says what was not recognized.
  static CnnConfig from_weights(const StateView& weights, const std::string& source);
  /// Whether from_weights() could read it: whether the names are those of a convolutional network of the table.
  static bool recognizes(const StateView& weights);
  std::string to_json(DType dtype = DType::kFloat32) const;
  void validate(const std::string& source) const;

  void set_dropout(double p) { dropout = p; }
  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  CnnKind kind() const;
  /// The sizes of a residual network.
  ResNetSizes resnet() const;
};

}  // namespace tern::models
