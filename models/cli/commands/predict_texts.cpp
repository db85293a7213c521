#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tern/core/io/json.h"
#include "tern/data/hub/hub.h"
#include "tern/models/cli/commands/line_input.h"
#include "tern/models/cli/commands/predictor.h"
#include "tern/models/cli/run/data_sets.h"
#include "tern/models/text/sentence_embedder.h"
#include "tern/models/text/text_pipeline.h"
#include "tern/models/text/token_predictions.h"

namespace tern::cli {
namespace {

/// Reads texts into groups.
class TextPredictor : public Predictor {
 public:
  using Predictor::Predictor;

 protected:
  /// Empty groups are never given.
  virtual void answer(const std::vector<std::string>& texts) = 0;
  /// Of pairs of texts.
  virtual void answer_pairs(const std::vector<std::string>& /*texts*/, const std::vector<std::string>& /*pairs*/) {
    fail(a_.dir, ": the input has pairs of texts (text and text_pair); these are for classifiers and --similarity");
  }
  /// Whether every line must hold two texts.
  virtual bool needs_pairs() const { return a_.pairs; }

 private:
  void add(const GivenText& given, bool pauses) {
    TERN_CHECK(!pairs_given_ || *pairs_given_ == given.pair.has_value(), "'", tern::detail::printable(given.text),
               given.pair ? "': two texts after inputs of one" : "': one text after inputs of two",
               "; give both kinds in separate calls");
    pairs_given_ = given.pair.has_value();
    texts_.push_back(given.text);
    if (given.pair) pairs_.push_back(*given.pair);
    bytes_ += given.text.size() + (given.pair ? given.pair->size() : 0);
    if (texts_.size() >= 256 || bytes_ >= size_t{1} << 20 || pauses) flush();
  }
  void read_all() final {
    const LineForm form{.jsonl = a_.jsonl, .pairs = needs_pairs()};
    const auto use = [this](const GivenText& given, bool pauses) { add(given, pauses); };
    if (a_.files.empty()) for_each_text("-", form, use);
    for (const std::string& file : a_.files) for_each_text(file, form, use);
  }
  void flush() final {
    bytes_ = 0;
    const std::vector<std::string> texts = std::exchange(texts_, {}), pairs = std::exchange(pairs_, {});
    if (texts.empty()) return;
    if (pairs.empty())
      answer(texts);
    else
      answer_pairs(texts, pairs);
  }

  std::vector<std::string> texts_, pairs_;
  std::optional<bool> pairs_given_;
  size_t bytes_ = 0;
};

/// Labels of texts, or what the classifier reads.
class LabelPredictor final : public TextPredictor {
 public:
  LabelPredictor(const PredictOptions& arguments, models::TextPipeline pipeline)
      : TextPredictor(arguments), pipeline_(std::move(pipeline)) {}

 private:
  void answer(const std::vector<std::string>& texts) override {
    if (a_.features)
      print(pipeline_.features(texts, a_.max_length), texts);
    else
      print(pipeline_.predict(texts, a_.max_length), pipeline_.model(), texts);
  }
  void answer_pairs(const std::vector<std::string>& texts, const std::vector<std::string>& pairs) override {
    if (a_.features)
      print(pipeline_.pair_features(texts, pairs, a_.max_length), texts);
    else
      print(pipeline_.predict_pairs(texts, pairs, a_.max_length), pipeline_.model(), texts);
  }

  const models::TextPipeline pipeline_;
};

/// Vectors of texts as sentence-transformers computes them.
class VectorPredictor : public TextPredictor {
 public:
  VectorPredictor(const PredictOptions& arguments, Device device)
      : TextPredictor(arguments),
        embedder_(models::SentenceEmbedder::load(
            arguments.dir,
            arguments.pool.empty() ? std::nullopt : std::optional(models::pool_mode(arguments.pool, "--pool")),
            {.device = device, .log = log_to_stderr(arguments)},
            arguments.tokenizer.empty() ? "" : data::local_model(arguments.tokenizer, data::HubUse::kTokenizer, {}))) {}

 protected:
  void answer(const std::vector<std::string>& texts) override { print(embedder_.embed(texts, a_.max_length), texts); }

  const models::SentenceEmbedder embedder_;
};

/// How alike the two texts of a pair are.
class SimilarityPredictor final : public VectorPredictor {
 public:
  using VectorPredictor::VectorPredictor;

 private:
  bool needs_pairs() const override { return true; }
  void answer_pairs(const std::vector<std::string>& first, const std::vector<std::string>& second) override {
    const Tensor similarities =
        embedder_.similarity(embedder_.embed(first, a_.max_length), embedder_.embed(second, a_.max_length));
    const std::vector<float> values = similarities.to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      require_finite({values[i]}, first[i], "a similarity is");
      print_answer(a_.jsonl ? Json{{"similarity", values[i]}} : Json(tabulated({values[i]})), first[i]);
    }
    end_output();
  }
};

/// The label of each token: fields of a token and its label by turns.
class TagPredictor final : public TextPredictor {
 public:
  TagPredictor(const PredictOptions& arguments, std::unique_ptr<models::TokenClassifier> model)
      : TextPredictor(arguments),
        model_(std::move(model)),
        tokenizer_(tokenizer_of(arguments.tokenizer, arguments.dir, log_to_stderr(arguments))) {
    models::check_vocabulary(*model_, *tokenizer_);
  }

 private:
  void answer(const std::vector<std::string>& texts) override {
    const std::vector<models::TaggedText> tagged = models::tag_texts(*model_, *tokenizer_, texts, a_.max_length);
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<std::string> labels;
      std::string line;
      for (size_t j = 0; j < tagged[i].tokens.size(); ++j) {
        labels.push_back(model_->labels()[static_cast<size_t>(tagged[i].labels[j])]);
        line += (j > 0 ? "\t" : "") + word_of(tagged[i].tokens[j]) + "\t" + word_of(labels[j]);
      }
      require_finite(tagged[i].scores, texts[i], "the model's output is");
      print_answer(
          a_.jsonl ? Json{{"tokens", tagged[i].tokens}, {"labels", labels}, {"scores", tagged[i].scores}} : Json(line),
          texts[i]);
    }
    end_output();
  }

  const std::unique_ptr<models::TokenClassifier> model_;
  const std::shared_ptr<const data::Tokenizer> tokenizer_;
};

/// The words in the place of masks: fields of a word and its probability by turns.
class MaskPredictor final : public TextPredictor {
 public:
  MaskPredictor(const PredictOptions& arguments, std::unique_ptr<models::MaskedWordModel> model)
      : TextPredictor(arguments),
        model_(std::move(model)),
        tokenizer_(tokenizer_of(arguments.tokenizer, arguments.dir, log_to_stderr(arguments))) {
    models::check_vocabulary(*model_, *tokenizer_);
  }

 private:
  void answer(const std::vector<std::string>& texts) override {
    const auto filled = models::fill_masks(*model_, *tokenizer_, texts, a_.top, a_.max_length);
    for (size_t i = 0; i < texts.size(); ++i) {
      Json masks = Json::array();
      std::string line;
      for (const models::MaskedWord& word : filled[i]) {
        require_finite(word.scores, texts[i], "the model's output is");
        masks.push_back({{"tokens", word.tokens}, {"scores", word.scores}});
        for (size_t j = 0; j < word.tokens.size(); ++j)
          line += (line.empty() ? "" : "\t") + word_of(word.tokens[j]) + "\t" + tabulated({word.scores[j]});
      }
      print_answer(a_.jsonl ? Json{{"masks", masks}} : Json(line), texts[i]);
    }
    end_output();
  }

  const std::unique_ptr<models::MaskedWordModel> model_;
  const std::shared_ptr<const data::Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Predictor> text_predictor(const PredictOptions& a, Device device) {
  if (a.similarity) return std::make_unique<SimilarityPredictor>(a, device);
  if (!a.pool.empty() || (a.features && models::SentenceEmbedder::has_modules(a.dir)))
    return std::make_unique<VectorPredictor>(a, device);
  auto model = models::load_pretrained<models::Model>(a.dir, {.device = device, .log = log_to_stderr(a)});
  model->eval();
  if (dynamic_cast<models::SequenceClassifier*>(model.get()))
    return std::make_unique<LabelPredictor>(
        a, models::TextPipeline(models::model_as<models::SequenceClassifier>(std::move(model), a.dir),
                                tokenizer_of(a.tokenizer, a.dir, log_to_stderr(a)), a.dir, log_to_stderr(a)));
  if (a.features) return std::make_unique<VectorPredictor>(a, device);
  if (dynamic_cast<models::TokenClassifier*>(model.get()))
    return std::make_unique<TagPredictor>(a, models::model_as<models::TokenClassifier>(std::move(model), a.dir));
  if (dynamic_cast<models::MaskedWordModel*>(model.get()))
    return std::make_unique<MaskPredictor>(a, models::model_as<models::MaskedWordModel>(std::move(model), a.dir));
  const bool takes_a_head = models::model_as<models::TextModel>(std::move(model), a.dir)->takes_a_head();
  fail(a.dir, ": the model has no classifier; --features prints its vectors of texts, --similarity compares two texts",
       takes_a_head ? ", and tern train --init makes a classifier of it" : "");
}

}  // namespace tern::cli
