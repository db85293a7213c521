#pragma once
// DistilBERT with a sequence-classification head (Sanh et al., arXiv:1910.01108), numerically equal to Hugging Face's
// DistilBertForSequenceClassification.
//
//   auto model = DistilBert::from_pretrained("distilbert-imdb");
//   model->eval();
//   Tensor logits = model->forward(data::padded_input(ids, mask));

#include <memory>
#include <string>

#include "tern/models/distilbert/config.h"
#include "tern/models/encoder/encoder.h"
#include "tern/models/families.h"

namespace tern::models {

class DistilBert final : public SequenceClassifier {
 public:
  DistilBert(const nn::Scope& s, const DistilBertConfig& config);

  /// Reads DIR/config.json and the weights next to it (see load_state_folder: safetensors or PyTorch format, one file
  /// or several) as written by transformers. Throws Error on missing, unexpected, mis-shaped or contradictory entries.
  static std::unique_ptr<DistilBert> from_pretrained(const std::string& dir, const BuildOptions& options = {}) {
    return load_pretrained<DistilBert>(dir, options);
  }
  static PublicCheckpoint<DistilBertConfig> read_checkpoint(const std::string& dir, const BuildOptions& options);
  void save_pretrained(const std::string& dir) const override;

  Tensor forward(const data::TokenInput& input) const override;
  Tensor hidden_states(const data::TokenInput& input) const override;
  /// The pre-classifier's result, [sequences, width].
  Tensor features(const data::TokenInput& input) const override;
  Tensor forward_head(const Tensor& features, const Tensor& keys = {}) const override;
  /// Logits from the last hidden state of each sequence's first token, [sequences, width].
  Tensor classify(const Tensor& first, const data::TokenInput& input) const {
    return forward_head(pre_classify(first), input.sequence_keys());
  }

  std::string hidden_layers() const override { return "encoder."; }
  void set_recompute(int64_t layers) override { encoder_.set_recompute(layers); }

  const DistilBertConfig& config() const { return config_; }
  const std::vector<std::string>& labels() const override { return config_.labels; }
  data::LabelKind label_kind() const override { return config_.label_kind; }
  std::string config_json() const override { return config_.to_json(dtype()); }
  std::string record() const override;
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  /// What forward() skips in the last layer is not counted.
  double forward_flops(const std::vector<int64_t>& lengths) const override;

 private:
  Tensor embed(const data::TokenInput& input) const;
  Tensor pre_classify(const Tensor& first) const;

  DistilBertConfig config_;
  nn::Embedding word_, position_;
  nn::LayerNorm embedding_norm_;
  Encoder encoder_;
  nn::Linear pre_classifier_, classifier_;
};

/// Maps to Hugging Face's names.
const KeyMap& distilbert_key_map();

/// The row of model_families().
ModelFamily distilbert_family();

}  // namespace tern::models
