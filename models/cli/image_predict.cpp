#include "tern/models/cli/image_predict.h"

#include <filesystem>

#include "tern/kernels/base/check.h"
#include "tern/models/cli/line_input.h"
#include "tern/models/cli/predictions.h"
#include "tern/models/image/image_pipeline.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;

// Images are predicted in groups, so that memory is bounded and results appear continuously for endless input.
constexpr size_t kImages = 64;
constexpr size_t kBytes = size_t{64} << 20;  // of decoded pixels
// Brightness factor of regions without attention.
constexpr float kMinLight = 0.15f;

class Predictor {
 public:
  Predictor(const ImagePredictArguments& arguments, const models::ImagePipeline& pipeline)
      : a_(arguments), pipeline_(pipeline) {}

  void add(const std::string& name) {
    data::Image image;
    try {
      image = data::read_image(name);
    } catch (const Error&) {
      flush();  // writes the results of earlier images first
      throw;
    }
    if (bytes_ + image.pixels.size() > kBytes) flush();  // limits the pixels held at once
    names_.push_back(name);
    bytes_ += image.pixels.size();
    images_.push_back(std::move(image));
    if (images_.size() >= kImages || bytes_ >= kBytes) flush();
  }

  void read_names() {
    LineInput input("-");
    for (std::string line; input.next(line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      add(a_.jsonl ? image_of(line, input.place()) : line);
      if (input.pauses()) flush();
    }
  }

  void flush() {
    if (images_.empty()) return;
    print_predictions(pipeline_.predict(images_), pipeline_.model().labels(), a_.jsonl);
    if (!a_.attention.empty()) write_attention();
    names_.clear();
    images_.clear();
    bytes_ = 0;
  }

 private:
  std::string image_of(const std::string& line, const std::string& place) {
    try {
      return string_in(line, "image", place);
    } catch (const Error&) {
      flush();
      throw;
    }
  }

  void write_attention() {
    const std::vector<Tensor> maps = pipeline_.model().attention_rollout(pipeline_.prepare(images_));
    for (size_t i = 0; i < maps.size(); ++i) {
      data::Image& image = images_[i];
      const Tensor light = data::resize(maps[i], image.height, image.width, {.antialias = false});
      const float* value = light.data<float>();
      for (int64_t pixel = 0; pixel < image.height * image.width; ++pixel)
        for (int64_t c = 0; c < image.channels; ++c) {
          uint8_t& byte = image.pixels[static_cast<size_t>(pixel * image.channels + c)];
          byte = static_cast<uint8_t>(static_cast<float>(byte) * (kMinLight + (1 - kMinLight) * value[pixel]) + 0.5f);
        }
      data::write_png(free_name(names_[i]), image);
    }
  }

  /// FOLDER/NAME.png, with a number added if another image has the same name.
  fs::path free_name(const std::string& image) const {
    const std::string stem = fs::path(image).stem().string();
    fs::path path = fs::path(a_.attention) / (stem + ".png");
    std::error_code error;
    for (int i = 2; fs::exists(path, error); ++i)
      path = fs::path(a_.attention) / (stem + "-" + std::to_string(i) + ".png");
    return path;
  }

  const ImagePredictArguments& a_;
  const models::ImagePipeline& pipeline_;
  std::vector<std::string> names_;
  std::vector<data::Image> images_;
  size_t bytes_ = 0;
};

}  // namespace

int predict_images(const ImagePredictArguments& a, Device device) {
  const models::ImagePipeline pipeline = models::ImagePipeline::load(a.dir, {.device = device});
  pipeline.model().eval();
  Predictor predictor(a, pipeline);
  for (const std::string& name : a.files) predictor.add(name);
  if (a.files.empty()) predictor.read_names();
  predictor.flush();
  return 0;
}

}  // namespace tern::cli
