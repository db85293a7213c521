#pragma once
// The network of an ONNX file as the classes of models/model.h use it.

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
      : state_(std::move(state)), roles_(roles) {}

  /// Makes the weights members of the model.
  void join(nn::Module& model, const onnx::SubScope& sub) { onnx::make_members(*state_, model, sub); }

  const OnnxRoles& roles() const { return roles_; }
  const onnx::detail::ModelState& state() const { return *state_; }
  /// Numbers for an input, or for a token: the last dimension of the output; one call decides where the file does not
  /// say it.
  int64_t outputs(const nn::Module& model) const;

  /// The output for sequences of tokens: [sequences, outputs], or [sequences, length, outputs].
  Tensor of_texts(const nn::Module& model, const data::TokenInput& input, int64_t padding_id) const;
  /// The rows of a result of of_texts() that are tokens of the input, [rows, outputs]. The host reads the lengths.
  Tensor rows_of(const Tensor& result, const data::TokenInput& input) const;
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
  /// Writes DIR/model.onnx, and then DIR/config.json.
  void save(const std::string& dir, const OnnxConfig& config) const;

 private:
  /// One call, or several of as many rows as the file fixes.
  Tensor run(const nn::Module& model, const std::vector<Tensor>& inputs) const;
  Tensor run_once(const nn::Module& model, const std::vector<Tensor>& inputs) const;
  std::vector<Tensor> example(const nn::Module& model, int64_t size) const;
  const onnx::ValueInfo& input(int i) const { return state_->inputs[static_cast<size_t>(i)]; }

  std::unique_ptr<onnx::detail::ModelState> state_;
  OnnxRoles roles_;
};

}  // namespace tern::models
