#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tern/core/io/pickle.h"
#include "tern/data/hub/hub.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/commands/line_input.h"
#include "tern/models/cli/commands/predictor.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/run/resume.h"
#include "tern/models/families.h"
#include "tern/models/image/image_pipeline.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;

/// A file that cannot be read has no answer (an empty line of features, an "error" in JSON). Stderr gets the reason;
/// the others are predicted, and the command fails in the end.
class ImagePredictor final : public Predictor {
 public:
  ImagePredictor(const PredictOptions& arguments, Device device)
      : Predictor(arguments),
        pipeline_(models::ImagePipeline::load(arguments.dir, {.device = device, .log = log_to_stderr(arguments)})),
        views_(models::test_time_views(arguments.tta.empty() ? views_of_run(arguments_of_run(arguments.dir))
                                                             : arguments.tta)) {
    pipeline_.model().eval();
  }

 private:
  void read_all() override {
    for (const std::string& file : a_.files) add(file, false);
    if (!a_.files.empty()) return require_all_read();
    LineInput input("-");
    for (std::string line; input.next(line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      add(a_.jsonl ? string_in(line, "image", input.place()) : line, input.pauses());
    }
    require_all_read();
  }

  void add(const std::string& name, bool pauses) {
    ++files_;
    try {
      images_.push_back(data::read_image(name));
      names_.push_back(name);
      bytes_ += images_.back().pixels.size();
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      flush();  // the answers keep the order of the inputs
      if (++unread_ > 1) std::cerr << "tern: " << reason_ << "\n";
      reason_ = tern::detail::printable(error.what(), std::string_view(error.what()).size());
      if (a_.jsonl || a_.features) print_answer(a_.jsonl ? Json{{"error", error.what()}} : Json(""), name);
      end_output();
    }
    if (images_.size() >= 64 || bytes_ >= size_t{64} << 20 || pauses) flush();
  }

  void require_all_read() {
    flush();
    const std::string count = std::to_string(unread_) + " of " + std::to_string(files_);
    TERN_CHECK(unread_ == 0, reason_, unread_ > 1 ? "; " + count + " images could not be read" : "");
  }

  /// With the name of the file; features are numbers alone.
  void print_answer(Json answer, const std::string& name) const override {
    if (a_.jsonl)
      answer["image"] = name;
    else if (!a_.features)
      answer = answer.get<std::string>() + "\t" + tern::detail::printable(name, name.size());
    Predictor::print_answer(answer, name);
  }

  void flush() override {
    bytes_ = 0;
    const std::vector<std::string> names = std::exchange(names_, {});
    std::vector<data::Image> images = std::exchange(images_, {});
    if (images.empty()) return;
    if (a_.features)
      print(pipeline_.features(images), names);
    else
      print(pipeline_.predict(images, views_), pipeline_.model(), names);
    if (a_.attention.empty()) return;
    const std::vector<Tensor> maps = pipeline_.model().attention_rollout(pipeline_.prepare(images));
    for (size_t i = 0; i < maps.size(); ++i) {
      light(images[i], maps[i]);
      data::write_png(free_name(names[i]), images[i]);
    }
  }

  /// Darkens what the map is small at.
  static void light(data::Image& image, const Tensor& map) {
    constexpr float kMinLight = 0.15f;  // of regions without attention
    const Tensor light = data::resize(map, image.height, image.width, {.antialias = false});
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const float value = light.data<float>()[i / static_cast<size_t>(image.channels)];
      const float bright = static_cast<float>(image.pixels[i]) * (kMinLight + (1 - kMinLight) * value);
      image.pixels[i] = static_cast<uint8_t>(bright + 0.5f);
    }
  }

  /// FOLDER/NAME.png, with a number added if another image has the same name.
  fs::path free_name(const std::string& image) const {
    const std::string stem = (fs::path(a_.attention) / fs::path(image).stem()).string();
    std::string path = stem + ".png";
    std::error_code error;
    for (int i = 2; fs::exists(path, error); ++i) path = stem + "-" + std::to_string(i) + ".png";
    return path;
  }

  const models::ImagePipeline pipeline_;
  const models::TestTimeViews views_;
  std::vector<std::string> names_;
  std::vector<data::Image> images_;
  size_t bytes_ = 0;
  int64_t files_ = 0, unread_ = 0;
  std::string reason_;  // why the last one was not read: the error that the command ends with
};

int predict(PredictOptions a) {
  if (a.features && !a.tta.empty() && a.tta != "none")
    throw UsageError("--features and --tta exclude each other: the mean over views is one of probabilities");
  if (a.features && a.similarity) throw UsageError("--features and --similarity exclude each other");
  if (!a.pool.empty() && !a.features && !a.similarity)
    throw UsageError("--pool is for --features and --similarity, which print a text's vector or compare two");
  const Device device = apply_common(a);
  std::ios::sync_with_stdio(false);
  const auto log = [&](const std::string& line) {
    if (!a.quiet) std::cerr << line << "\n";
  };
  a.dir = data::local_model(a.dir, data::HubUse::kModel, log);
  apply_matmul_options({.tf32 = a.tf32}, device, log);
  restore_autotune(a.dir, device, log);
  const bool images = models::kind_of_model(a.dir) == models::ModelKind::kImages;
  check_options_are_for(images ? For::kImages : For::kTexts, a);
  if (images)
    ImagePredictor(a, device).run();
  else
    text_predictor(a, device)->run();
  return 0;
}

}  // namespace

Command predict_command() {
  const auto options = std::make_shared<PredictOptions>();
  return {"predict", "label lines of text, or image files, by a trained folder",
          "Example: echo 'A wonderful film.' | tern predict " + example_run(), options,
          [options] { return predict(*options); }};
}

}  // namespace tern::cli
