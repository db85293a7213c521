#pragma once
// An LSTM classifier of texts: embedding, nn::LSTM, pooling over the tokens, a linear layer.
//
//   auto model = LstmClassifier::from_pretrained("run");
//   model->eval();
//   Tensor logits = model->forward(data::padded_input(ids, mask));

#include <memory>
#include <string>
#include <vector>

#include "tern/models/families.h"
#include "tern/models/lstm/config.h"
#include "tern/nn/layers/embedding.h"
#include "tern/nn/layers/linear.h"
#include "tern/nn/layers/recurrent.h"

namespace tern::models {

class LstmClassifier final : public SequenceClassifier {
 public:
  LstmClassifier(const nn::Scope& s, const LstmConfig& config);

  /// Reads DIR/config.json and the weights next to it. Throws Error on missing, unexpected, mis-shaped or contradictory
  /// entries.
  static std::unique_ptr<LstmClassifier> from_pretrained(const std::string& dir, const BuildOptions& options = {}) {
    return load_pretrained<LstmClassifier>(dir, options);
  }
  static PublicCheckpoint<LstmConfig> read_checkpoint(const std::string& dir, const BuildOptions& options);
  void save_pretrained(const std::string& dir) const override;

  /// Tokens with a mask of 0 are left out. On a GPU the host waits for the offsets.
  Tensor forward(const data::TokenInput& input) const override;
  bool reads_lengths() const override { return true; }
  /// The pooled states, [sequences, LstmConfig::pooled()].
  Tensor features(const data::TokenInput& input) const override;
  Tensor forward_head(const Tensor& features, const Tensor& keys = {}) const override;

  std::string hidden_layers() const override { return "lstm."; }
  /// Throws Error unless layers is 0: a layer is one op over all steps, which keeps little besides its gates.
  void set_recompute(int64_t layers) override;

  const LstmConfig& config() const { return config_; }
  const std::vector<std::string>& labels() const override { return config_.labels; }
  data::LabelKind label_kind() const override { return config_.label_kind; }
  std::string config_json() const override { return config_.to_json(dtype()); }
  std::string record() const override;
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  double forward_flops(const std::vector<int64_t>& lengths) const override;

 private:
  Tensor dropped(const Tensor& x, const Tensor& keys) const;
  Tensor pool(const nn::RecurrentOutput& states, const RecurrentLayout& layout) const;

  LstmConfig config_;
  nn::Embedding word_;
  nn::LSTM lstm_;
  nn::Linear classifier_;
};

/// The names in files: the parameters' own.
KeyMap lstm_key_map(const LstmConfig& config);

/// The row of model_families().
ModelFamily lstm_family();

}  // namespace tern::models
