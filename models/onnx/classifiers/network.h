#pragma once
// The network of an ONNX file as the classes of models/model.h use it.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/samples/token_batch.h"
#include "tern/models/families.h"
#include "tern/models/onnx/classifiers/files.h"
#include "tern/models/onnx/state.h"

namespace tern::models {

/// What a network's inputs and outputs are. Numbers of inputs and outputs; -1: there is none.
struct OnnxRoles {
  ModelKind kind = ModelKind::kTexts;
  int ids = -1, mask = -1, token_types = -1, positions = -1;  // of texts: [batch, length]
  int64_t length = 0;                                         // of a text; 0: any
  int image = -1;                                             // [batch, channels, height, width]
  bool channels_last = false;                                 // [batch, height, width, channels]
  int64_t channels = 3, size = 0;                             // of an image; size 0: any
  int64_t batch = 0;                                          // of a call; 0: any
  int output = 0;
  bool of_tokens = false;  // the output is [batch, length, width]
};

/// Throws Error, which lists the inputs and outputs, for a network that reads neither texts nor images.
OnnxRoles onnx_roles(const std::vector<onnx::ValueInfo>& inputs, const std::vector<onnx::ValueInfo>& outputs);

/// A network as a part of a model, which has the file's weights as its members.
class OnnxNetwork {
 public:
  OnnxNetwork(std::unique_ptr<onnx::detail::ModelState> state, const OnnxRoles& roles)
      : state_(std::move(state)), roles_(roles) {
    for (const auto& weight : state_->weights) has_float16_ = has_float16_ || weight->element == onnx::kFloat16;
  }

  /// Makes the weights members of the model.
  void join(nn::Module& model, const onnx::SubScope& sub) { onnx::make_members(*state_, model, sub); }

  const OnnxRoles& roles() const { return roles_; }
  const onnx::detail::ModelState& state() const { return *state_; }
  /// Numbers for an input, or for a token: the last dimension of the output. One call decides where the file does not
  /// say it.
  int64_t outputs(const nn::Module& model) const;
  /// What a call must give from now on.
  void expect_outputs(int64_t count) { outputs_ = count; }

  /// Whether texts are given by their lengths, which the host reads: without a mask a filler would be text.
  bool reads_lengths() const { return roles_.ids >= 0 && roles_.mask < 0 && roles_.length == 0; }
  /// Logits of sequences of tokens, [sequences, outputs].
  Tensor of_texts(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const;
  /// What the network gives for each token: [rows, outputs], rows of no sequence have no meaning. The host reads the
  /// lengths.
  Tensor of_tokens(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const;
  /// [images, outputs] of floating images [n, 3, height, width].
  Tensor of_images(const nn::Module& model, const Tensor& images) const;

  /// Rows of the table that tokens are looked up in; 0 if it is not found.
  int64_t vocab_size() const;
  /// Floating-point operations of a call with one input of this many tokens or pixels a side; 0 if it cannot be
  /// counted.
  double count_flops(const nn::Module& model, int64_t size) const;

  /// For this number of outputs.
  void replace_head(int64_t outputs, Generator& generator) {
    onnx::replace_head(*state_, outputs, generator, static_cast<size_t>(roles_.output));
  }
  /// The op at the end that is left out where logits are needed; empty: there is none.
  std::string activation() const;
  /// The file that is written will end without it too.
  void drop_activation();
  /// Writes the file, with what predict, eval and train read of it again in its metadata.
  void save_file(const std::string& path, const OnnxConfig& config, std::map<std::string, std::string> metadata) const;
  /// Writes DIR/model.onnx, and then DIR/config.json.
  void save(const std::string& dir, const OnnxConfig& config) const;

 private:
  /// One call, or several of as many rows as the file fixes, of texts of this many tokens.
  Tensor run(const nn::Module& model, const std::vector<Tensor>& inputs, int64_t length = 0) const;
  Tensor run_once(const nn::Module& model, const std::vector<Tensor>& inputs) const;
  void check_result(const Tensor& result, int64_t rows, int64_t length) const;
  /// Inputs of which `lay_out` makes what a sequence has for each token, and the result.
  Tensor run_texts(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config, int64_t n,
                   int64_t length, const Tensor& real,
                   const std::function<Tensor(const Tensor& x, int64_t filler)>& lay_out) const;
  /// All sequences, filled up to one length: [sequences, outputs] or [sequences, length, outputs].
  Tensor filled_up(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const;
  /// Sequences of one length at a time: [sequences, outputs] or [rows, outputs].
  Tensor by_length(const nn::Module& model, const data::TokenInput& input, const OnnxConfig& config) const;
  std::vector<Tensor> example(const nn::Module& model, int64_t size) const;
  const onnx::ValueInfo& input(int i) const { return state_->inputs[static_cast<size_t>(i)]; }
  const onnx::ValueInfo& output() const { return state_->outputs[static_cast<size_t>(roles_.output)]; }

  std::unique_ptr<onnx::detail::ModelState> state_;
  OnnxRoles roles_;
  int64_t outputs_ = 0;  // 0: any number
  bool has_float16_ = false;
};

}  // namespace tern::models
