#include "tern/models/pretrained.h"

#include <algorithm>
#include <filesystem>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/models/hf_config.h"

namespace tern::models {

namespace fs = std::filesystem;

std::vector<std::string> chosen_labels(const std::vector<std::string>& own, const std::vector<std::string>& asked) {
  const bool same = asked.empty() || std::is_permutation(asked.begin(), asked.end(), own.begin(), own.end());
  return same ? own : asked;
}

bool sees_images(const std::string& path) {
  std::error_code error;
  if (tern::detail::name_exists(path) && !fs::is_directory(path, error))
    return true;  // text models need a vocabulary file as well
  const nlohmann::json json =
      parse_json_object(read_model_text(path, "config.json"), (fs::path(path) / "config.json").string());
  const auto type = json.find("model_type");
  if (type == json.end()) return json.contains("architecture");
  return *type == "vit" || *type == "tern_vit";
}

}  // namespace tern::models
