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
#include "tern/data/hub/hub.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/commands/line_input.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/matmul_options.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/cli/run/resume.h"
#include "tern/models/families.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/text/text_pipeline.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct PredictOptions : ModelOptions {
  using Self = PredictOptions;
  std::string dir = option(&Self::dir, "", "dir", kModelHelp, Required{});
  std::vector<std::string> files = option(
      &Self::files, {}, "files",
      "texts: files of lines, or .csv, .tsv and .jsonl files, of which the text column is read as by --data; - or "
      "none: lines of stdin; images: PNG and JPEG files, none: their names on stdin");
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
             "images: write into this folder, as PNG, each image lit by what the model attended to (" +
                 notes_on("--attention", "; ") + ")",
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
  explicit Predictor(const PredictOptions& arguments) : a_(arguments) {}
  virtual ~Predictor() = default;

  void run() {
    try {
      read_all();
    } catch (const Error&) {  // damaged input: what came before it is answered first
      flush();
      throw;
    }
    flush();
  }

 protected:
  /// Reads the files or stdin, and predicts full groups.
  virtual void read_all() = 0;
  /// Empties the group and prints its predictions.
  virtual void flush() = 0;

  /// Throws Error for an output that is not finite, after the lines before it. `what`: "the model's output is".
  template <class Values>
  void require_finite(const Values& values, const std::string& input, const char* what) const {
    const auto bad = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
    if (bad == values.end()) return;
    end_output();
    fail(tern::detail::printable(input), ": ", what, std::isnan(*bad) ? " NaN" : " infinite",
         "; the model's weights are damaged, or its training diverged");
  }

  /// inputs: what an error calls them.
  void print(const std::vector<models::Prediction>& predictions, const models::Model& model,
             const std::vector<std::string>& inputs) const {
    for (size_t i = 0; i < predictions.size(); ++i) {
      const models::Prediction& p = predictions[i];
      require_finite(p.logits, inputs[i], "the model's output is");
      print_answer(a_.jsonl ? record_of(p, model) : Json(line_of(p, model)), inputs[i]);
    }
    end_output();
  }

  /// features: [n, width].
  void print(const Tensor& features, const std::vector<std::string>& inputs) const {
    const std::vector<float> values = features.to_vector<float>();
    const size_t width = static_cast<size_t>(features.size(1));
    for (size_t begin = 0; begin < values.size(); begin += width) {
      const std::vector<float> row(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                   values.begin() + static_cast<std::ptrdiff_t>(begin + width));
      require_finite(row, inputs[begin / width], "a feature is");
      if (a_.jsonl)
        print_answer(Json{{"features", row}}, inputs[begin / width]);
      else
        std::cout << tabulated(row) << "\n";
    }
    end_output();
  }

  /// An answer: a JSON object, or a line as a JSON string.
  virtual void print_answer(Json answer, const std::string& /*input*/) const { std::cout << json_text(answer) << "\n"; }

  void end_output() const {
    std::cout.flush();
    check_output();
  }

  const PredictOptions& a_;
};

/// Lines about how the model was read; none with --quiet.
std::function<void(const std::string&)> log_to_stderr(const PredictOptions& arguments) {
  if (arguments.quiet) return {};
  return [](const std::string& line) { std::cerr << line << "\n"; };
}

class TextPredictor final : public Predictor {
 public:
  TextPredictor(const PredictOptions& arguments, Device device)
      : Predictor(arguments),
        pipeline_(models::TextPipeline::load(arguments.dir, {.device = device, .log = log_to_stderr(arguments)})) {
    pipeline_.model().eval();
  }

 private:
  void read_all() override {
    const auto add = [this](const std::string& text, bool pauses) {
      texts_.push_back(text);
      bytes_ += text.size();
      if (texts_.size() >= 256 || bytes_ >= size_t{1} << 20 || pauses) flush();
    };
    if (a_.files.empty()) for_each_text("-", a_.jsonl, add);
    for (const std::string& file : a_.files) for_each_text(file, a_.jsonl, add);
  }
  void flush() override {
    bytes_ = 0;
    const std::vector<std::string> texts = std::exchange(texts_, {});
    if (texts.empty()) return;
    if (a_.features)
      print(pipeline_.features(texts, a_.max_length), texts);
    else
      print(pipeline_.predict(texts, a_.max_length), pipeline_.model(), texts);
  }

  const models::TextPipeline pipeline_;
  std::vector<std::string> texts_;
  size_t bytes_ = 0;
};

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
  const Device device = apply_common(a);
  std::ios::sync_with_stdio(false);
  const auto log = [&](const std::string& line) {
    if (!a.quiet) std::cerr << line << "\n";
  };
  a.dir = data::local_model(a.dir, data::HubUse::kModel, log);
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
          "Example: echo 'A wonderful film.' | tern predict " + example_run(), options,
          [options] { return predict(*options); }};
}

}  // namespace tern::cli
