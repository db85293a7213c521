#include "tern/models/pretrained.h"

#include <algorithm>
#include <filesystem>

#include "tern/models/hf_config.h"

namespace tern::models {

std::vector<std::string> chosen_labels(const std::vector<std::string>& own, const std::vector<std::string>& asked) {
  const bool same = asked.empty() || std::is_permutation(asked.begin(), asked.end(), own.begin(), own.end());
  return same ? own : asked;
}

bool sees_images(const std::string& path) {
  if (std::filesystem::is_regular_file(path)) return true;  // text models need a vocabulary beside their weights
  const auto json = ConfigFields::Json::parse(read_model_text(path, "config.json"), nullptr, false);
  if (!json.is_object()) return false;  // the model's own reader says what is wrong
  const auto type = json.find("model_type");
  if (type == json.end()) return json.contains("architecture");
  return *type == "vit" || *type == "tern_vit";
}

}  // namespace tern::models
