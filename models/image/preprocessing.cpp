#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "tern/core/io/json.h"
#include "tern/models/hf_config.h"
#include "tern/models/image/image_pipeline.h"

namespace tern::models {
namespace {

// PIL's resampling codes.
constexpr int64_t kBilinear = 2, kBicubic = 3;

/// The classes of transformers that resize to a square, rescale and normalise, and do nothing else; the first is what a
/// file is of that names none.
constexpr std::string_view kProcessors[] = {"ViTImageProcessor", "ViTImageProcessorFast", "ViTImageProcessorPil",
                                            "ViTFeatureExtractor"};
/// That resize the shorter side and cut out the centre.
constexpr std::string_view kCuttingProcessors[] = {"BitImageProcessor", "BitImageProcessorFast",
                                                   "BitImageProcessorPil"};

bool fits_float(const nlohmann::json& value) {
  return value.is_number() && std::abs(value.get<double>()) <= std::numeric_limits<float>::max();
}

/// A number for each channel, or one for all.
void read_channels(ConfigFields& fields, const char* name, const std::string& source, float (&values)[3]) {
  const nlohmann::json* given = fields.take(name);
  if (!given) return;
  const nlohmann::json list = given->is_array() ? *given : nlohmann::json::array({*given});
  const bool good = (list.size() == 1 || list.size() == 3) && std::all_of(list.begin(), list.end(), fits_float);
  TERN_CHECK(good, source, ": \"", name, "\" must be three numbers, or one for all channels, got ", shortened(*given));
  for (size_t c = 0; c < 3; ++c) values[c] = list[list.size() == 1 ? 0 : c].get<float>();
}

/// A flag of which null means no, as false does: where it is absent, `value` stays.
bool read_step(ConfigFields& fields, const char* name, bool value) {
  if (fields.is_null(name)) value = false;
  fields.read(name, value);
  return value;
}

int64_t read_size(ConfigFields& fields, const char* name, const std::string& source, int64_t fallback) {
  const nlohmann::json* size = fields.take(name);
  if (!size) return fallback;
  int64_t height = 0, width = 0;
  if (size->is_number_integer()) {
    height = width = size->get<int64_t>();
  } else if (size->is_array() && size->size() == 2 && (*size)[0].is_number_integer() &&
             (*size)[1].is_number_integer()) {
    height = (*size)[0].get<int64_t>();
    width = (*size)[1].get<int64_t>();
  } else if (size->is_object() && size->contains("height") && size->contains("width") &&
             (*size)["height"].is_number_integer() && (*size)["width"].is_number_integer()) {
    height = (*size)["height"].get<int64_t>();
    width = (*size)["width"].get<int64_t>();
  }
  TERN_CHECK(height >= 1 && height == width && height <= (1 << 14), source, ": \"", name,
             "\" must be a square's side, got ", size->dump().substr(0, 60));
  return height;
}

bool one_of(std::span<const std::string_view> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// BitImageProcessor: the shorter side is resized, and the centre cut out. Its defaults are not Tern's, so that nothing
/// may be left out.
void read_crop(ConfigFields& fields, const std::string& source, ImagePreprocessing& result) {
  for (const char* name : {"resample", "image_mean", "image_std", "crop_size", "size", "do_center_crop"})
    TERN_CHECK(fields.take(name), source, ": has no \"", name, "\"");
  const nlohmann::json& size = *fields.take("size");
  const bool good = size.is_object() && size.size() == 1 && size.contains("shortest_edge") &&
                    size["shortest_edge"].is_number_integer();
  result.size = read_size(fields, "crop_size", source, result.size);
  result.crop_from = good ? size["shortest_edge"].get<int64_t>() : 0;
  TERN_CHECK(result.crop_from >= result.size && result.crop_from <= (1 << 14), source,
             ": \"size\" must be {\"shortest_edge\": N} of at least the ", result.size,
             " pixels of \"crop_size\", got ", shortened(size));
}

}  // namespace

ImagePreprocessing ImagePreprocessing::from_json(const std::string& text, const std::string& source) {
  ConfigFields fields(text, source);
  ImagePreprocessing result;
  for (int c = 0; c < 3; ++c) result.normalization.mean[c] = result.normalization.std[c] = 0.5f;
  // Other image processors take steps that their files do not name.
  std::string processor(kProcessors[0]);
  for (const char* name : {"feature_extractor_type", "image_processor_type"}) fields.read(name, processor);
  const bool cuts = one_of(kCuttingProcessors, processor);
  TERN_CHECK(cuts || one_of(kProcessors, processor), source, ": images are prepared by ",
             tern::detail::printable(processor), ", which Tern does not implement; it has ", kProcessors[0], " and ",
             kCuttingProcessors[0]);
  if (cuts)
    read_crop(fields, source, result);
  else
    result.size = read_size(fields, "size", source, result.size);
  int64_t resample = kBilinear;
  fields.read("resample", resample);
  TERN_CHECK(resample == kBilinear || resample == kBicubic, source, ": \"resample\" must be 2 (bilinear) or 3 ",
             "(bicubic), got ", resample);
  result.interpolation = resample == kBicubic ? data::Interpolation::kBicubic : data::Interpolation::kBilinear;
  TERN_CHECK(read_step(fields, "do_resize", true), source, ": \"do_resize\" is ",
             fields.is_null("do_resize") ? "null" : "false", ", which Tern does not implement");
  TERN_CHECK(cuts == read_step(fields, "do_center_crop", false), source, ": \"do_center_crop\" is ",
             cuts ? "not true" : "true", ", which Tern does not implement for ", processor);
  for (const char* other : {"do_pad", "do_reduce_labels"})
    TERN_CHECK(!read_step(fields, other, false), source, ": \"", other, "\" is true, which Tern does not implement");
  const bool rescales = read_step(fields, "do_rescale", true), normalizes = read_step(fields, "do_normalize", true);
  double factor = 1.0 / 255;
  fields.read("rescale_factor", factor);
  TERN_CHECK(!rescales || (factor > 0 && factor <= 1e6), source, ": \"rescale_factor\" must be positive, got ", factor);
  read_channels(fields, "image_mean", source, result.normalization.mean);
  read_channels(fields, "image_std", source, result.normalization.std);
  // Tern's pixels are divided by 255: (255 f x - mean) / std = (x - mean / 255 f) / (std / 255 f).
  const double scale = rescales ? factor * 255 : 255;
  const bool usual = std::abs(scale - 1) < 1e-6;
  for (int c = 0; c < 3; ++c) {
    float &mean = result.normalization.mean[c], &deviation = result.normalization.std[c];
    TERN_CHECK(!normalizes || deviation > 0, source, ": \"image_std\" must be positive");
    if (!normalizes) mean = 0, deviation = 1;
    if (usual) continue;
    mean = static_cast<float>(mean / scale);
    deviation = static_cast<float>(deviation / scale);
  }
  return result;
}

std::string ImagePreprocessing::to_json() const {
  ConfigFields::Json json;
  json["do_normalize"] = true;
  json["do_rescale"] = true;
  json["do_resize"] = true;
  json["image_mean"] = normalization.mean;
  json["image_processor_type"] = crop_from > 0 ? kCuttingProcessors[0] : kProcessors[0];
  json["image_std"] = normalization.std;
  json["resample"] = interpolation == data::Interpolation::kBicubic ? kBicubic : kBilinear;
  json["rescale_factor"] = 1.0 / 255;
  json["size"] = {{"height", size}, {"width", size}};
  if (crop_from > 0) {
    json["do_center_crop"] = true;
    json["crop_size"] = {{"height", size}, {"width", size}};
    json["size"] = {{"shortest_edge", crop_from}};
  }
  return json.dump(2) + "\n";
}

}  // namespace tern::models
