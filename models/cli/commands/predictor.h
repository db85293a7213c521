#pragma once
// What predict does for models of every kind.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/matmul_options.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/cli/run/run_folder.h"
#include "tern/models/image/test_time.h"
#include "tern/models/model.h"
#include "tern/models/prediction.h"
#include "tern/models/text/pooling.h"

namespace tern::cli {

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
  bool pairs = option(&Self::pairs, false, "--pairs",
                      "for classifiers of pairs: a line holds two texts with a tab between them, or with --jsonl "
                      "{\"text\", \"text_pair\"}; rows of files with two texts are pairs without it",
                      For::kTexts);
  bool features =
      option(&Self::features, false, "--features",
             "in place of labels what the classifier's last layer reads of each input, numbers with tabs between them; "
             "with --jsonl {\"features\": [...]}");
  std::string pool =
      option(&Self::pool, "", "--pool",
             "with --features or --similarity: a text's vector is pooled from the states of its tokens in this way; "
             "default: as modules.json says, else with --features what the classifier reads, else mean; one of:",
             Words{models::pool_mode_names()}, For::kTexts);
  bool similarity =
      option(&Self::similarity, false, "--similarity",
             "a line holds two texts with a tab between them, or with --jsonl {\"text\", \"text_pair\"}: the cosine of "
             "their vectors, with --jsonl {\"similarity\"}",
             For::kTexts);
  int64_t top =
      option(&Self::top, 1, "--top", "words that are proposed for a masked one", Bounds{1, 1000}, For::kTexts);
  std::string tokenizer = option(&Self::tokenizer, "", "--tokenizer", kTokenizerHelp, For::kTexts);
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

/// Predicts inputs in groups, so that endless input needs bounded memory and answers keep coming.
class Predictor {
 public:
  explicit Predictor(const PredictOptions& arguments) : a_(arguments) {}
  virtual ~Predictor() = default;

  void run();

 protected:
  /// Reads the files or stdin, and predicts full groups.
  virtual void read_all() = 0;
  /// Empties the group and prints its predictions.
  virtual void flush() = 0;

  /// Throws Error for an output that is not finite, after the lines before it. `what`: "the model's output is".
  void require_finite(const std::vector<double>& values, const std::string& input, const char* what) const;
  /// inputs: what an error calls them.
  void print(const std::vector<models::Prediction>& predictions, const models::Model& model,
             const std::vector<std::string>& inputs) const;
  /// features: [n, width].
  void print(const Tensor& features, const std::vector<std::string>& inputs) const;
  /// An answer: a JSON object, or a line as a JSON string.
  virtual void print_answer(Json answer, const std::string& input) const;
  void end_output() const;

  const PredictOptions& a_;
};

/// With tabs between the numbers, from which the same are read again.
std::string tabulated(const std::vector<double>& row);
/// A label or token in a line of fields: a tab or a line end in it is written as \x09 or \x0a.
std::string word_of(const std::string& label);

/// Lines about how the model was read; none with --quiet.
std::function<void(const std::string&)> log_to_stderr(const PredictOptions& arguments);

/// For the texts that a model folder is made for: labels, tags, masked words, vectors, similarities.
std::unique_ptr<Predictor> text_predictor(const PredictOptions& arguments, Device device);

}  // namespace tern::cli
