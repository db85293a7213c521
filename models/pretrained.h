#pragma once
// What loading a public checkpoint can be asked for: the same for every model.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/generator.h"
#include "tern/core/tensor.h"

namespace tern::models {

struct FromPretrainedOptions {
  Device device = {};
  DType dtype = DType::kFloat32;              // of the weights, whatever the file's
  Generator generator = default_generator();  // of dropout, and of what is not in the folder
  /// Replaces the configuration's labels, unless they are the same in another order: then the folder's order stays and
  /// the head keeps its meaning. Where their number differs, the head starts anew.
  std::vector<std::string> labels = {};
  /// Replaces all dropout probabilities.
  std::optional<double> dropout = std::nullopt;
  /// Start a missing classification head anew instead of failing: for fine-tuning a bare encoder.
  bool allow_new_head = false;
  /// Hears in one line that the head, or a part of it, starts anew.
  std::function<void(const std::string&)> log = {};
};

/// The labels of a model that is loaded with the options' labels in place of `own`.
std::vector<std::string> chosen_labels(const std::vector<std::string>& own, const std::vector<std::string>& asked);

/// True for the folder, or the file of weights, of a model that sees images: by config.json's model_type, and timm's
/// and torchvision's files. Throws Error when config.json cannot be read.
bool sees_images(const std::string& path);

}  // namespace tern::models
