#pragma once
// DistilBERT with a sequence-classification head (Sanh et al., arXiv:1910.01108), numerically equal to Hugging Face's
// DistilBertForSequenceClassification.
//
//   auto model = DistilBert::from_pretrained("distilbert-imdb");
//   model->eval();
//   Tensor logits = model->forward(encoder_input(ids, mask));

#include <memory>
#include <string>

#include "tern/models/distilbert/config.h"
#include "tern/models/encoder/encoder.h"
#include "tern/models/key_map.h"
#include "tern/models/pretrained.h"

namespace tern::models {

class DistilBert final : public nn::Module {
 public:
  DistilBert(const nn::Scope& s, const DistilBertConfig& config);

  /// Reads DIR/config.json and the weights next to it (see load_state_folder: safetensors or PyTorch format, one file
  /// or several) as written by transformers. Throws Error on missing, unexpected, mis-shaped or contradictory entries.
  static std::unique_ptr<DistilBert> from_pretrained(const std::string& dir, const FromPretrainedOptions& options = {});
  /// Writes both files atomically, the weights in the model's dtype. Creates the folder.
  void save_pretrained(const std::string& dir) const;

  /// Logits [sequences, labels].
  Tensor forward(const EncoderInput& input) const;
  /// The last hidden states of all rows: [rows, width].
  Tensor hidden_states(const EncoderInput& input) const;
  /// Logits from the last hidden state of each sequence's first token, [sequences, width].
  Tensor classify(const Tensor& first, const EncoderInput& input) const;

  /// Recomputes activations in backward, in segments of this many layers; 0: off (see Encoder::set_recompute).
  void set_recompute(int64_t layers) { encoder_.set_recompute(layers); }

  const DistilBertConfig& config() const { return config_; }
  /// Floating-point operations of one forward pass over sequences of these lengths (two per multiply-add); training
  /// takes three times as many. What forward() skips in the last layer is not counted.
  double forward_flops(const std::vector<int64_t>& lengths) const;

 private:
  Tensor embed(const EncoderInput& input) const;

  DistilBertConfig config_;
  nn::Embedding word_, position_;
  nn::LayerNorm embedding_norm_;
  Encoder encoder_;
  nn::Linear pre_classifier_, classifier_;
};

/// Maps to Hugging Face's names.
const KeyMap& distilbert_key_map();

}  // namespace tern::models
