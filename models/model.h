#pragma once
// What the trainer, the pipelines and the program know of a model, whatever its family.

#include <functional>
#include <string>
#include <vector>

#include "tern/data/datasets/labelled_set.h"
#include "tern/data/samples/token_batch.h"
#include "tern/kernels/image.h"
#include "tern/nn/module.h"

namespace tern::models {

class Model : public nn::Module {
 public:
  using Module::Module;
  /// The names of the outputs, in their order.
  virtual const std::vector<std::string>& labels() const = 0;
  /// What an input is labelled with: one of labels(), any number of them, or numbers, as many as labels().
  virtual data::LabelKind label_kind() const { return data::LabelKind::kOne; }
  /// The content of config.json, with the end of its last line, for weights stored in the model's dtype.
  virtual std::string config_json() const = 0;
  /// A JSON object: what run.json says of the configuration and a resumed run must have as well.
  virtual std::string record() const = 0;
  /// Writes config.json and the weights, atomically. Creates the folder. A folder with a config.json is complete.
  virtual void save_pretrained(const std::string& dir) const = 0;
  /// What the names of its hidden layers' parameters begin with (TrainOptions::hidden_layers).
  virtual std::string hidden_layers() const { return ""; }
  /// Whether Muon keeps the norms of the hidden layers' matrices (TrainOptions::fixed_norm): for a model with a norm
  /// behind each of them and a default rate that fits.
  virtual bool keeps_hidden_norms() const { return false; }
  /// Recomputes activations in backward, in segments of this many layers; 0: off.
  virtual void set_recompute(int64_t layers) = 0;

 protected:
  [[noreturn]] void fail_without_features() const {
    fail(type_name(), ": this model has no features(): its class does not define what its classifier reads");
  }
};

/// Reads sequences of tokens.
class TextModel : public Model {
 public:
  using Model::Model;
  /// The last hidden states of all rows, [rows, width]; rows of padding have no meaning. Throws Error if the family has
  /// none.
  virtual Tensor hidden_states(const data::TokenInput& /*input*/) const {
    fail(type_name(), ": this model has no hidden_states(): it has no state for each token");
  }
  /// The largest int64 if it is unknown.
  virtual int64_t vocab_size() const = 0;
  /// How many types of tokens the model tells apart (TokenInput::token_types); 1: it does not read them.
  virtual int64_t token_types() const { return 1; }
  /// Whether `tern train --init` makes a classifier of its weights, with a new head.
  virtual bool takes_a_head() const { return true; }
  /// The longest sequence that the model takes.
  virtual int64_t max_positions() const = 0;
  /// True when forward() reads the lengths of the sequences on the host: its steps cannot be captured.
  virtual bool reads_lengths() const { return false; }
  /// Floating-point operations of one forward pass over sequences of these lengths (two per multiply-add); training
  /// takes three times as many.
  virtual double forward_flops(const std::vector<int64_t>& lengths) const = 0;
};

/// Logits of sequences of tokens.
class SequenceClassifier : public TextModel {
 public:
  using TextModel::TextModel;
  /// Logits [sequences, labels].
  virtual Tensor forward(const data::TokenInput& input) const = 0;
  /// What the classifier's last linear layer reads of each sequence, before its dropout: [sequences, width]. Without
  /// dropout forward(input) is forward_head(features(input)), bit for bit. Throws Error if the family has none.
  virtual Tensor features(const data::TokenInput& /*input*/) const { fail_without_features(); }
  /// Logits [n, labels] of features [n, width]. keys: int64 [n] or undefined, of the dropout masks.
  virtual Tensor forward_head(const Tensor& /*features*/, const Tensor& /*keys*/ = {}) const {
    fail_without_features();
  }
};

/// A label for each token.
class TokenClassifier : public TextModel {
 public:
  using TextModel::TextModel;
  /// Logits [rows, labels].
  virtual Tensor forward(const data::TokenInput& input) const = 0;
};

/// The words behind masked tokens.
class MaskedWordModel : public TextModel {
 public:
  using TextModel::TextModel;
  /// Logits [n, vocab_size] of these rows (int64 [n]), or of all rows if undefined.
  virtual Tensor forward(const data::TokenInput& input, const Tensor& rows = {}) const = 0;
};

/// Logits of images.
class ImageClassifier : public Model {
 public:
  struct Input {
    int64_t size = 0;  // pixels a side, in training
    int64_t channels = 3;
    int64_t multiple = 1;  // sides must be multiples of it
    /// The normalization of pixels, where no preprocessor_config.json says another; by default that of Google's ViTs.
    kernels::ImageNormalization normalization = {{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};
    std::string preprocessing = {};  // the content of a preprocessor_config.json, where the model's file carries one
  };

  using Model::Model;
  /// images: floating [n, channels, height, width], normalised as in training. image_keys: int64 [n] or undefined, keys
  /// of each image's dropout masks. Logits [n, labels].
  virtual Tensor forward(const Tensor& images, const Tensor& image_keys = {}) const = 0;
  /// What the classifier's last linear layer reads of each image, before its dropout: [n, width], timm's
  /// forward_head(forward_features(images), pre_logits=True). Without dropout forward(images) is
  /// forward_head(features(images)), bit for bit. Throws Error if the family has none.
  virtual Tensor features(const Tensor& /*images*/, const Tensor& /*image_keys*/ = {}) const {
    fail_without_features();
  }
  /// Logits [n, labels] of features [n, width]. image_keys: as forward()'s.
  virtual Tensor forward_head(const Tensor& /*features*/, const Tensor& /*image_keys*/ = {}) const {
    fail_without_features();
  }
  virtual Input input() const = 0;
  /// Sets initial values that depend on the data: called once for a new model, before training. first_images(n) gives
  /// the first n images that it is trained with, or all if there are fewer, normalised but not augmented.
  virtual void initialize(const std::function<Tensor(int64_t n)>& /*first_images*/) {}
  /// Floating-point operations of one forward pass over one image of input().size.
  virtual double forward_flops() const = 0;
  /// What the model looked at in each image, [height, width] of any size with the greatest value 1, on the CPU. Throws
  /// Error if the model cannot say.
  virtual std::vector<Tensor> attention_rollout(const Tensor& /*images*/) const {
    fail(type_name(), ": this model has no attention to show");
  }
};

}  // namespace tern::models
