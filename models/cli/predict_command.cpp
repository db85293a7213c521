#include <iostream>

#include "tern/models/cli/commands.h"
#include "tern/models/cli/common_options.h"
#include "tern/models/cli/image_predict.h"
#include "tern/models/cli/line_input.h"
#include "tern/models/cli/matmul_options.h"
#include "tern/models/cli/predictions.h"
#include "tern/models/families.h"
#include "tern/models/text/text_pipeline.h"

namespace tern::cli {
namespace {

struct PredictOptions : ModelOptions {
  using Self = PredictOptions;
  std::string dir = option(&Self::dir, "", "dir", "model folder", Required{});
  std::vector<std::string> files =
      option(&Self::files, {}, "files",
             "texts: files of lines, - or none: stdin; images: PNG and JPEG files, none: their names on stdin");
  bool jsonl = option(&Self::jsonl, false, "--jsonl",
                      "lines are {\"text\": ...} or {\"image\": FILE}; answers {\"label\", \"score\", \"logits\"}");
  int64_t max_length = option(&Self::max_length, 0, "--max-length",
                              "tokens a text is cut to; default: the model's maximum", Bounds{2, 1 << 24}, For::kTexts);
  std::string attention =
      option(&Self::attention, "", "--attention",
             "images: write into this folder, as PNG, each image lit by the model's attention (attention rollout)",
             For::kImages);
};

// Lines are predicted in groups, so that endless input needs bounded memory and answers keep coming.
constexpr size_t kLines = 256;
constexpr size_t kBytes = size_t{1} << 20;

class Predictor {
 public:
  Predictor(const PredictOptions& arguments, const models::TextPipeline& pipeline)
      : a_(arguments), pipeline_(pipeline) {}

  void read(const std::string& file) {
    LineInput input(file);
    for (std::string line; input.next(line);) {
      if (a_.jsonl && line.find_first_not_of(" \t") == std::string::npos) continue;
      add(a_.jsonl ? text_of(line, input.place()) : line);
      if (input.pauses() || texts_.size() >= kLines || bytes_ >= kBytes) flush();
    }
    flush();
  }

  void flush() {
    if (texts_.empty()) return;
    print_predictions(pipeline_.predict(texts_, a_.max_length), pipeline_.model().labels(), a_.jsonl);
    texts_.clear();
    bytes_ = 0;
  }

 private:
  void add(std::string text) {
    bytes_ += text.size();
    texts_.push_back(std::move(text));
  }

  /// A damaged line is an error, but what came before it is answered first.
  std::string text_of(const std::string& line, const std::string& place) {
    try {
      return string_in(line, "text", place);
    } catch (const Error&) {
      flush();
      throw;
    }
  }

  const PredictOptions& a_;
  const models::TextPipeline& pipeline_;
  std::vector<std::string> texts_;
  size_t bytes_ = 0;
};

int predict_texts(const PredictOptions& a, Device device) {
  const models::TextPipeline pipeline = models::TextPipeline::load(a.dir, {.device = device});
  pipeline.model().eval();
  Predictor predictor(a, pipeline);
  if (a.files.empty()) predictor.read("-");
  for (const std::string& name : a.files) predictor.read(name);
  return 0;
}

int predict(const PredictOptions& a) {
  const Device device = apply_common(a);
  std::ios::sync_with_stdio(false);
  const auto log = [&](const std::string& line) {
    if (!a.quiet) std::cerr << line << "\n";
  };
  apply_matmul_options({.tf32 = a.tf32}, device, log);
  restore_autotune(a.dir, device, log);
  const bool images = models::family_of(a.dir).kind == models::ModelKind::kImages;
  check_options_are_for(images ? For::kImages : For::kTexts, a);
  return images ? predict_images({a.dir, a.files, a.attention, a.jsonl}, device) : predict_texts(a, device);
}

}  // namespace

Command predict_command() {
  const auto options = std::make_shared<PredictOptions>();
  return {"predict", "label lines of text, or image files, by a trained folder",
          "Example: echo 'A wonderful film.' | tern predict runs/distilbert-20250131-120000", options,
          [options] { return predict(*options); }};
}

}  // namespace tern::cli
