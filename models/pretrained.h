#pragma once
// Options for loading a public checkpoint, common to all models.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tern/core/generator.h"
#include "tern/core/tensor.h"

namespace tern::models {

struct FromPretrainedOptions {
  Device device = {};
  DType dtype = DType::kFloat32;              // of the loaded weights, independent of the file's
  Generator generator = default_generator();  // for dropout and for parameters missing in the folder
  /// Replaces the configuration's labels. If they are the same in another order, the folder's order and head are kept;
  /// if their number differs, the head is newly initialized.
  std::vector<std::string> labels = {};
  /// Replaces all dropout probabilities.
  std::optional<double> dropout = std::nullopt;
  /// Initializes a missing classification head instead of failing: for fine-tuning a bare encoder.
  bool allow_new_head = false;
  /// Called with one line if the head, or a part of it, is newly initialized.
  std::function<void(const std::string&)> log = {};
};

/// The labels of a loaded model: `asked`, the options' labels, in place of `own`, the folder's.
std::vector<std::string> chosen_labels(const std::vector<std::string>& own, const std::vector<std::string>& asked);

/// Whether the folder or weights file is an image model: by config.json's model_type, or if the file is timm's or
/// torchvision's. Throws Error if config.json cannot be read.
bool sees_images(const std::string& path);

}  // namespace tern::models
