#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tern/core/io/pickle.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/common_options.h"
#include "tern/models/cli/line_input.h"
#include "tern/models/cli/matmul_options.h"
#include "tern/models/cli/option_record.h"
#include "tern/models/cli/train_arguments.h"
#include "tern/models/families.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/text/text_pipeline.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct PredictOptions : ModelOptions {
  using Self = PredictOptions;
  std::string dir = option(&Self::dir, "", "dir", "model folder", Required{});
  std::vector<std::string> files =
      option(&Self::files, {}, "files",
             "texts: files of lines, - or none: stdin; images: PNG and JPEG files, none: their names on stdin");
  bool jsonl = option(&Self::jsonl, false, "--jsonl",
                      "lines are {\"text\": ...} or {\"image\": FILE}; answers {\"label\", \"score\", \"logits\"}, of "
                      "several labels {\"labels\", \"scores\", \"logits\"}, of regression {\"value\"}");
  bool features =
      option(&Self::features, false, "--features",
             "in place of labels what the classifier's last layer reads of each input, numbers with tabs between them; "
             "with --jsonl {\"features\": [...]}");
  int64_t max_length = option(&Self::max_length, 0, "--max-length",
                              "tokens a text is cut to; default: the model's maximum", Bounds{2, 1 << 24}, For::kTexts);
  std::string tta = option(&Self::tta, "", "--tta",
                           "test-time augmentation of images, the mean of the probabilities of several views; default: "
                           "as in the test after training, else none; one of:",
                           Words{models::test_time_names()}, For::kImages);
  std::string attention =
      option(&Self::attention, "", "--attention",
             "images: write into this folder, as PNG, each image lit by what the model attended to (ViT: attention "
             "rollout; CNNs: Grad-CAM of the label)",
             For::kImages);
};

/// The names of the labels that are predicted.
std::vector<std::string> labels_of(const models::Prediction& p, const models::Model& model) {
  std::vector<std::string> names;
  for (const int64_t label : p.labels) names.push_back(model.labels()[static_cast<size_t>(label)]);
  return names;
}

Json record_of(const models::Prediction& p, const models::Model& model) {
  if (model.label_kind() == data::LabelKind::kSeveral)
    return {{"labels", labels_of(p, model)}, {"scores", p.scores}, {"logits", p.logits}};
  if (model.label_kind() == data::LabelKind::kOne)
    return {{"label", model.labels()[static_cast<size_t>(p.label)]}, {"score", p.score}, {"logits", p.logits}};
  return p.logits.size() == 1 ? Json{{"value", p.logits[0]}} : Json{{"values", p.logits}};
}

/// A label in a line of fields: a tab or a line end in it is written as \x09 or \x0a.
std::string word_of(const std::string& label) { return tern::detail::printable(label, label.size()); }

/// Fields with tabs between them: each label and its score, or the numbers. Empty when there is no label.
std::string line_of(const models::Prediction& p, const models::Model& model) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(6);
  const auto field = [&](const auto& value) { line << (line.tellp() > 0 ? "\t" : "") << value; };
  if (model.label_kind() == data::LabelKind::kOne) {
    field(word_of(model.labels()[static_cast<size_t>(p.label)]));
    field(p.score);
  } else if (model.label_kind() == data::LabelKind::kNumber) {
    for (const double value : p.logits) field(value);
  }
  const std::vector<std::string> names = labels_of(p, model);
  for (size_t i = 0; i < names.size(); ++i) {
    field(word_of(names[i]));
    field(p.scores[i]);
  }
  return line.str();
}

/// With tabs between the numbers, from which the same are read again.
std::string tabulated(const std::vector<float>& row) {
  std::ostringstream line;
  line << std::setprecision(std::numeric_limits<float>::max_digits10);
  for (size_t i = 0; i < row.size(); ++i) line << (i > 0 ? "\t" : "") << row[i];
  return line.str();
}

/// Predicts inputs in groups, so that endless input needs bounded memory and answers keep coming.
class Predictor {
 public:
  /// key: of an input in a line of JSON.
  Predictor(const PredictOptions& arguments, const char* key, bool skips_blank_lines)
      : a_(arguments), key_(key), skips_blank_lines_(skips_blank_lines) {}
  virtual ~Predictor() = default;

  void run() {
    try {
      if (a_.files.empty()) read_lines("-");
      for (const std::string& file : a_.files) read(file);
    } catch (const Error&) {  // damaged input: what came before it is answered first
      flush();
      throw;
    }
    flush();
  }

 protected:
  virtual void read(const std::string& file) = 0;
  /// Adds an input to the group. The result is true when the group is full.
  virtual bool add(const std::string& input) = 0;
  /// Empties the group and prints its predictions.
  virtual void flush() = 0;

  void read_lines(const std::string& file) {
    LineInput input(file);
    for (std::string line; input.next(line);) {
      if (skips_blank_lines_ && line.find_first_not_of(" \t") == std::string::npos) continue;
      if (add(a_.jsonl ? string_in(line, key_, input.place()) : line) || input.pauses()) flush();
    }
  }

  /// inputs: what an error calls them. Throws Error for an output that is NaN, after the lines before it.
  void print(const std::vector<models::Prediction>& predictions, const models::Model& model,
             const std::vector<std::string>& inputs) const {
    for (size_t i = 0; i < predictions.size(); ++i) {
      const models::Prediction& p = predictions[i];
      if (std::any_of(p.logits.begin(), p.logits.end(), [](double value) { return std::isnan(value); })) {
        end_output();
        fail(tern::detail::printable(inputs[i]),
             ": the model's output is NaN; its weights are damaged, or its training diverged");
      }
      std::cout << (a_.jsonl ? json_text(record_of(p, model)) : line_of(p, model)) << "\n";
    }
    end_output();
  }

  /// features: [n, width].
  void print(const Tensor& features) const {
    const std::vector<float> values = features.to_vector<float>();
    const size_t width = static_cast<size_t>(features.size(1));
    for (size_t begin = 0; begin < values.size(); begin += width) {
      const std::vector<float> row(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                   values.begin() + static_cast<std::ptrdiff_t>(begin + width));
      if (a_.jsonl)
        std::cout << json_text(Json{{"features", row}}) << "\n";
      else
        std::cout << tabulated(row) << "\n";
    }
    end_output();
  }

  void end_output() const {
    std::cout.flush();
    check_output();
  }

  const PredictOptions& a_;
  const char* const key_;
  const bool skips_blank_lines_;
};

/// Lines about how the model was read; none with --quiet.
std::function<void(const std::string&)> log_to_stderr(const PredictOptions& arguments) {
  if (arguments.quiet) return {};
  return [](const std::string& line) { std::cerr << line << "\n"; };
}

class TextPredictor final : public Predictor {
 public:
  TextPredictor(const PredictOptions& arguments, Device device)
      : Predictor(arguments, "text", arguments.jsonl),
        pipeline_(models::TextPipeline::load(arguments.dir, {.device = device, .log = log_to_stderr(arguments)})) {
    pipeline_.model().eval();
  }

 private:
  void read(const std::string& file) override { read_lines(file); }
  bool add(const std::string& text) override {
    texts_.push_back(text);
    bytes_ += text.size();
    return texts_.size() >= 256 || bytes_ >= size_t{1} << 20;
  }
  void flush() override {
    bytes_ = 0;
    const std::vector<std::string> texts = std::exchange(texts_, {});
    if (texts.empty()) return;
    if (a_.features)
      print(pipeline_.features(texts, a_.max_length));
    else
      print(pipeline_.predict(texts, a_.max_length), pipeline_.model(), texts);
  }

  const models::TextPipeline pipeline_;
  std::vector<std::string> texts_;
  size_t bytes_ = 0;
};

class ImagePredictor final : public Predictor {
 public:
  ImagePredictor(const PredictOptions& arguments, Device device)
      : Predictor(arguments, "image", true),
        pipeline_(models::ImagePipeline::load(arguments.dir, {.device = device, .log = log_to_stderr(arguments)})),
        views_(models::test_time_views(arguments.tta.empty() ? views_of_run(arguments_of_run(arguments.dir))
                                                             : arguments.tta)) {
    pipeline_.model().eval();
  }

 private:
  void read(const std::string& file) override {
    if (add(file)) flush();
  }
  bool add(const std::string& name) override {
    images_.push_back(data::read_image(name));
    names_.push_back(name);
    bytes_ += images_.back().pixels.size();
    return images_.size() >= 64 || bytes_ >= size_t{64} << 20;
  }
  void flush() override {
    bytes_ = 0;
    const std::vector<std::string> names = std::exchange(names_, {});
    std::vector<data::Image> images = std::exchange(images_, {});
    if (images.empty()) return;
    if (a_.features)
      print(pipeline_.features(images));
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
};

int predict(const PredictOptions& a) {
  if (a.features && !a.tta.empty() && a.tta != "none")
    throw UsageError("--features and --tta exclude each other: the mean over views is one of probabilities");
  const Device device = apply_common(a);
  std::ios::sync_with_stdio(false);
  const auto log = [&](const std::string& line) {
    if (!a.quiet) std::cerr << line << "\n";
  };
  apply_matmul_options({.tf32 = a.tf32}, device, log);
  restore_autotune(a.dir, device, log);
  const bool images = models::family_of(a.dir).kind == models::ModelKind::kImages;
  check_options_are_for(images ? For::kImages : For::kTexts, a);
  if (images)
    ImagePredictor(a, device).run();
  else
    TextPredictor(a, device).run();
  return 0;
}

}  // namespace

Command predict_command() {
  const auto options = std::make_shared<PredictOptions>();
  return {"predict", "label lines of text, or image files, by a trained folder",
          "Example: echo 'A wonderful film.' | tern predict runs/distilbert-20250131-120000", options,
          [options] { return predict(*options); }};
}

}  // namespace tern::cli
