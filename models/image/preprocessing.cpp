#include <cmath>
#include <limits>

#include "tern/models/hf_config.h"
#include "tern/models/image/image_pipeline.h"

namespace tern::models {
namespace {

// PIL's resampling codes.
constexpr int64_t kBilinear = 2, kBicubic = 3;

void read_channels(ConfigFields& fields, const char* name, const std::string& source, float (&values)[3]) {
  const nlohmann::json* list = fields.take(name);
  if (!list) return;
  TERN_CHECK(list->is_array() && list->size() == 3, source, ": \"", name, "\" must be three numbers");
  for (size_t c = 0; c < 3; ++c) {
    TERN_CHECK((*list)[c].is_number() && std::abs((*list)[c].get<double>()) <= std::numeric_limits<float>::max(),
               source, ": \"", name, "\" must be three numbers");
    values[c] = (*list)[c].get<float>();
  }
}

int64_t read_size(ConfigFields& fields, const std::string& source, int64_t fallback) {
  const nlohmann::json* size = fields.take("size");
  if (!size) return fallback;
  int64_t height = 0, width = 0;
  if (size->is_number_integer()) {
    height = width = size->get<int64_t>();
  } else if (size->is_object() && size->contains("height") && size->contains("width") &&
             (*size)["height"].is_number_integer() && (*size)["width"].is_number_integer()) {
    height = (*size)["height"].get<int64_t>();
    width = (*size)["width"].get<int64_t>();
  }
  TERN_CHECK(height >= 1 && height == width && height <= (1 << 14), source, ": \"size\" must be a square's side, got ",
             size->dump().substr(0, 60));
  return height;
}

}  // namespace

ImagePreprocessing ImagePreprocessing::from_json(const std::string& text, const std::string& source) {
  ConfigFields fields(text, source);
  ImagePreprocessing result;
  for (int c = 0; c < 3; ++c) result.normalization.mean[c] = result.normalization.std[c] = 0.5f;
  result.size = read_size(fields, source, result.size);
  int64_t resample = kBilinear;
  fields.read("resample", resample);
  TERN_CHECK(resample == kBilinear || resample == kBicubic, source, ": \"resample\" must be 2 (bilinear) or 3 ",
             "(bicubic), got ", resample);
  result.interpolation = resample == kBicubic ? data::Interpolation::kBicubic : data::Interpolation::kBilinear;
  for (const char* wanted : {"do_resize", "do_rescale", "do_normalize"}) {
    bool value = true;
    fields.read(wanted, value);
    TERN_CHECK(value, source, ": \"", wanted, "\" is false, which Tern does not implement");
  }
  for (const char* other : {"do_center_crop", "do_pad"}) {
    bool value = false;
    fields.read(other, value);
    TERN_CHECK(!value, source, ": \"", other, "\" is true, which Tern does not implement");
  }
  double factor = 1.0 / 255;
  fields.read("rescale_factor", factor);
  TERN_CHECK(std::abs(factor * 255 - 1) < 1e-6, source, ": \"rescale_factor\" must be 1/255, got ", factor);
  read_channels(fields, "image_mean", source, result.normalization.mean);
  read_channels(fields, "image_std", source, result.normalization.std);
  for (const float deviation : result.normalization.std)
    TERN_CHECK(deviation > 0, source, ": \"image_std\" must be positive");
  return result;
}

std::string ImagePreprocessing::to_json() const {
  ConfigFields::Json json;
  json["do_normalize"] = true;
  json["do_rescale"] = true;
  json["do_resize"] = true;
  json["image_mean"] = normalization.mean;
  json["image_processor_type"] = "ViTImageProcessor";
  json["image_std"] = normalization.std;
  json["resample"] = interpolation == data::Interpolation::kBicubic ? kBicubic : kBilinear;
  json["rescale_factor"] = 1.0 / 255;
  json["size"] = {{"height", size}, {"width", size}};
  return json.dump(2) + "\n";
}

}  // namespace tern::models
