#pragma once
// BERT (Devlin et al., arXiv:1810.04805) and RoBERTa (Liu et al., arXiv:1907.11692) with the heads of Hugging Face's
// classes, numerically equal to them.
//
//   auto model = BertClassifier::from_pretrained("bert-imdb");
//   model->eval();
//   Tensor logits = model->forward(data::padded_input(ids, mask, token_types));

#include <memory>
#include <optional>
#include <string>

#include "tern/models/bert/config.h"
#include "tern/models/encoder/encoder.h"
#include "tern/models/families.h"

namespace tern::models {

/// Embeddings and encoder, which every head stands on.
class BertBody final : public nn::Module {
 public:
  BertBody(const nn::Scope& s, const BertConfig& config);

  /// The last hidden states of all rows, [rows, width].
  Tensor hidden_states(const data::TokenInput& input) const { return encoder_.forward(embed(input), input); }
  /// Those of each sequence's first token, [sequences, width].
  Tensor first_states(const data::TokenInput& input) const { return encoder_.forward_first(embed(input), input); }
  void set_recompute(int64_t layers) { encoder_.set_recompute(layers); }
  const Parameter& word_weight() const { return word_.weight(); }
  /// Two for each multiply-add.
  double forward_flops(const std::vector<int64_t>& lengths) const;

 private:
  Tensor embed(const data::TokenInput& input) const;
  Tensor positions(const data::TokenInput& input) const;

  BertConfig config_;
  nn::Embedding word_, position_, token_type_;
  nn::LayerNorm embedding_norm_;
  Encoder encoder_;
};

/// Maps to Hugging Face's names of models with this head. Of a checkpoint without head the encoder's names have the
/// head's prefix, "bert." or "roberta.", which files of bare encoders lack.
const KeyMap& bert_key_map(const BertConfig& config);

/// DIR/config.json and the weights next to it, for a model with this head, whatever head the folder has.
PublicCheckpoint<BertConfig> read_bert(const std::string& dir, BertHead head, const BuildOptions& options);

/// What the models of all heads have in common. Base: TextModel or what is derived from it.
template <class Base>
class BertOf : public Base {
 public:
  BertOf(const nn::Scope& s, const BertConfig& config, BertHead head)
      : Base(s), config_(config), bert_((config_.head = head, config_.validate("BERT"), this->sub("bert")), config_) {}

  const BertConfig& config() const { return config_; }
  Tensor hidden_states(const data::TokenInput& input) const override { return bert_.hidden_states(input); }
  std::string hidden_layers() const override { return "bert.encoder."; }
  void set_recompute(int64_t layers) override { bert_.set_recompute(layers); }
  const std::vector<std::string>& labels() const override { return config_.labels; }
  data::LabelKind label_kind() const override { return config_.label_kind; }
  std::string config_json() const override { return config_.to_json(this->dtype()); }
  std::string record() const override;
  void save_pretrained(const std::string& dir) const override;
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t token_types() const override { return config_.token_types; }
  int64_t max_positions() const override { return config_.max_positions(); }
  double forward_flops(const std::vector<int64_t>& lengths) const override { return bert_.forward_flops(lengths); }

 protected:
  /// The head's dropout.
  Tensor dropped(const Tensor& x, const Tensor& keys) const;

  BertConfig config_;
  BertBody bert_;
};

/// The encoder alone: Hugging Face's BertModel.
class Bert final : public BertOf<TextModel> {
 public:
  Bert(const nn::Scope& s, const BertConfig& config);

  static std::unique_ptr<Bert> from_pretrained(const std::string& dir, const BuildOptions& options = {}) {
    return load_pretrained<Bert>(dir, options);
  }
  static PublicCheckpoint<BertConfig> read_checkpoint(const std::string& dir, const BuildOptions& options) {
    return read_bert(dir, BertHead::kNone, options);
  }
  /// pooler_output, [sequences, width]: tanh of a linear layer of each sequence's first state.
  Tensor pooled(const data::TokenInput& input) const;

 private:
  nn::Linear pooler_;
};

/// A label for each sequence.
class BertClassifier final : public BertOf<SequenceClassifier> {
 public:
  BertClassifier(const nn::Scope& s, const BertConfig& config);

  static std::unique_ptr<BertClassifier> from_pretrained(const std::string& dir, const BuildOptions& options = {}) {
    return load_pretrained<BertClassifier>(dir, options);
  }
  static PublicCheckpoint<BertConfig> read_checkpoint(const std::string& dir, const BuildOptions& options) {
    return read_bert(dir, BertHead::kClassifier, options);
  }
  Tensor forward(const data::TokenInput& input) const override {
    return forward_head(features(input), input.sequence_keys());
  }
  /// BERT's pooler_output, or RoBERTa's dense layer's, which is the same but for a dropout before it.
  Tensor features(const data::TokenInput& input) const override;
  Tensor forward_head(const Tensor& features, const Tensor& keys = {}) const override;

 private:
  nn::Linear pooler_, classifier_;
};

/// A label for each token.
class BertTagger final : public BertOf<TokenClassifier> {
 public:
  BertTagger(const nn::Scope& s, const BertConfig& config);

  static std::unique_ptr<BertTagger> from_pretrained(const std::string& dir, const BuildOptions& options = {}) {
    return load_pretrained<BertTagger>(dir, options);
  }
  static PublicCheckpoint<BertConfig> read_checkpoint(const std::string& dir, const BuildOptions& options) {
    return read_bert(dir, BertHead::kTagger, options);
  }
  Tensor forward(const data::TokenInput& input) const override;

 private:
  nn::Linear classifier_;
};

/// The words behind masked tokens; the weight of its last layer is the word embedding.
class BertMaskedWords final : public BertOf<MaskedWordModel> {
 public:
  BertMaskedWords(const nn::Scope& s, const BertConfig& config);

  static std::unique_ptr<BertMaskedWords> from_pretrained(const std::string& dir, const BuildOptions& options = {}) {
    return load_pretrained<BertMaskedWords>(dir, options);
  }
  static PublicCheckpoint<BertConfig> read_checkpoint(const std::string& dir, const BuildOptions& options) {
    return read_bert(dir, BertHead::kMaskedWords, options);
  }
  Tensor forward(const data::TokenInput& input, const Tensor& rows = {}) const override;

 private:
  nn::Linear transform_;
  nn::LayerNorm transform_norm_;
  Parameter bias_;
};

/// The row of model_families().
ModelFamily bert_family();

}  // namespace tern::models
