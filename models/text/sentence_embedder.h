#pragma once
// Vectors of texts, as sentence-transformers computes them.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/models/pretrained.h"
#include "tern/models/text/pooling.h"
#include "tern/models/text/text_pipeline.h"

namespace tern::models {

/// A text model whose tokens' states are pooled, and what follows: the modules that a folder's modules.json lists.
/// Equal to sentence-transformers' encode() for Transformer, Pooling, Dense and Normalize.
class SentenceEmbedder {
 public:
  /// Reads modules.json and the folders that it names, with max_seq_length and do_lower_case of
  /// sentence_bert_config.json and similarity_fn_name and the
  /// default prompt of config_sentence_transformers.json. Without a modules.json the
  /// states are pooled by their mean, as in sentence-transformers. `mode` replaces the pooling. `tokenizer`: another
  /// folder with one. The path may be that of an ONNX file, beside or below which the other files are. Throws Error for
  /// a module that Tern does not have, naming it.
  static SentenceEmbedder load(const std::string& path, std::optional<PoolMode> mode = {},
                               const BuildOptions& options = {}, const std::string& tokenizer = "");
  /// Whether a folder, or that of an ONNX file, lists modules.
  static bool has_modules(const std::string& path);

  /// float32 [texts, width] on the CPU, in the order of the texts; undefined without texts. Texts are cut to max_length
  /// tokens (0: the folder's number) and packed into batches of about batch_tokens.
  Tensor embed(const std::vector<std::string>& texts, int64_t max_length = 0, int64_t batch_tokens = 16384) const;
  /// [n] of two sets of n vectors: the cosine, or what similarity_fn_name says ("dot", "euclidean" and "manhattan", the
  /// latter two negative distances).
  Tensor similarity(const Tensor& a, const Tensor& b) const;

  TextModel& model() const { return *model_; }

 private:
  using Step = std::function<Tensor(const Tensor& vectors)>;  // of a module behind the pooling
  SentenceEmbedder() = default;
  /// config_sentence_transformers.json.
  void read_facts(const std::string& dir);

  std::unique_ptr<TextModel> model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  int64_t max_length_ = 0;
  std::vector<PoolMode> modes_;  // their results are concatenated
  std::vector<Step> steps_;
  std::string similarity_ = "cosine";
  std::string prompt_;  // is put in front of every text
};

}  // namespace tern::models
