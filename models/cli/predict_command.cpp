#include <iostream>

#include "tern/models/cli/commands.h"
#include "tern/models/cli/image_predict.h"
#include "tern/models/cli/line_input.h"
#include "tern/models/cli/matmul_options.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/subcommand.h"
#include "tern/models/pretrained.h"
#include "tern/models/text/text_classifier.h"

namespace tern::cli {
namespace {

struct PredictArguments {
  std::string dir, attention;
  std::vector<std::string> files;
  bool jsonl = false;
  int64_t max_length = 0;
  MatmulOptions matmul;
  CommonOptions common;
};

// Lines are predicted in groups, so that endless input needs bounded memory and answers keep coming.
constexpr size_t kLines = 256;
constexpr size_t kBytes = size_t{1} << 20;

class Predictor {
 public:
  Predictor(const PredictArguments& arguments, const models::TextClassifier& classifier)
      : a_(arguments), classifier_(classifier) {}

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
    const std::vector<models::TextPrediction> predictions = classifier_.predict(texts_, a_.max_length);
    for (const models::TextPrediction& p : predictions) {
      const std::string& label = classifier_.model().config().labels[static_cast<size_t>(p.label)];
      if (a_.jsonl) {
        std::cout << Json({{"label", label}, {"score", p.score}, {"logits", p.logits}})
                         .dump(-1, ' ', false, Json::error_handler_t::replace)
                  << "\n";
      } else {
        std::cout << label << "\t" << std::fixed << std::setprecision(6) << p.score << "\n";
      }
    }
    std::cout.flush();
    TERN_CHECK(std::cout, "stdout: cannot be written (closed or full)");
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

  const PredictArguments& a_;
  const models::TextClassifier& classifier_;
  std::vector<std::string> texts_;
  size_t bytes_ = 0;
};

int predict_texts(const PredictArguments& a, Device device) {
  if (!a.attention.empty()) throw UsageError("predict: --attention is for models that see images");
  const models::TextClassifier classifier = models::TextClassifier::load(a.dir, {.device = device});
  classifier.model().eval();
  Predictor predictor(a, classifier);
  if (a.files.empty()) predictor.read("-");
  for (const std::string& name : a.files) predictor.read(name);
  return 0;
}

int predict(const PredictArguments& a) {
  const Device device = apply_common(a.common);
  std::ios::sync_with_stdio(false);
  const auto log = [&](const std::string& line) {
    if (!a.common.quiet) std::cerr << line << "\n";
  };
  apply_matmul_options(a.matmul, device, log);
  restore_autotune(a.dir, device, log);
  if (!models::sees_images(a.dir)) return predict_texts(a, device);
  if (a.max_length > 0) throw UsageError("predict: --max-length is for models that read texts");
  return predict_images({a.dir, a.files, a.attention, a.jsonl}, device);
}

}  // namespace

Command add_predict(CLI::App& app) {
  Subcommand c(app, "predict", "label lines of text, or image files, by a trained folder");
  auto a = std::make_shared<PredictArguments>();
  c.add_option("dir", &a->dir, "model folder").required();
  c.add_option("files", &a->files,
               "texts: files of lines, - or none: stdin; images: PNG and JPEG files, none: their names on stdin");
  c.add_flag("--jsonl", &a->jsonl,
             "lines are {\"text\": ...} or {\"image\": FILE}; answers {\"label\", \"score\", \"logits\"}");
  c.add_option("--max-length", &a->max_length, "tokens a text is cut to; default: the model's most")
      .whole_in(2, int64_t{1} << 24);
  c.add_option(
      "--attention", &a->attention,
      "images: write into this folder, as PNG, each image lit by what the model looked at (attention rollout)");
  add_matmul_options(c, a->matmul, false);
  add_common(c, a->common);
  c.footer("Example: echo 'A wonderful film.' | tern predict runs/distilbert-20250131-120000");
  return [a] { return predict(*a); };
}

}  // namespace tern::cli
