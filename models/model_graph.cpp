#include "tern/models/model_graph.h"

#include "tern/data/samples/token_batch.h"

namespace tern::models {
namespace {

/// Numbers for each token, of rows of a padded input.
Tensor of_rows(const TextModel& model, const data::TokenInput& input) {
  if (const auto* const tagger = dynamic_cast<const TokenClassifier*>(&model)) return tagger->forward(input);
  if (const auto* const words = dynamic_cast<const MaskedWordModel*>(&model)) return words->forward(input);
  return model.hidden_states(input);
}

Graph graph_of_texts(const TextModel& model, const StateView& names, Device device) {
  const auto* const classifier = dynamic_cast<const SequenceClassifier*>(&model);
  const bool has_head = classifier != nullptr || dynamic_cast<const TokenClassifier*>(&model) != nullptr ||
                        dynamic_cast<const MaskedWordModel*>(&model) != nullptr;
  TraceOptions options{.names = names,
                       .dynamic = {{0, 0, "batch"}, {0, 1, "length"}},
                       .input_names = {"input_ids"},
                       .output_names = {has_head ? "logits" : "last_hidden_state"}};
  const Tensor ones_of = ones({2, 4}, {.dtype = int64, .device = device});
  std::vector<Tensor> inputs = {ones_of};
  if (!model.reads_lengths()) {
    inputs.push_back(ones_of.clone());
    options.dynamic.insert(options.dynamic.end(), {{1, 0, "batch"}, {1, 1, "length"}});
    options.input_names.emplace_back("attention_mask");
  }
  const bool typed = model.token_types() > 1;
  if (typed) {
    const auto at = static_cast<int>(inputs.size());
    inputs.push_back(zeros({2, 4}, {.dtype = int64, .device = device}));
    options.dynamic.insert(options.dynamic.end(), {{at, 0, "batch"}, {at, 1, "length"}});
    options.input_names.emplace_back("token_type_ids");
  }
  const auto forward = [&](const std::vector<Tensor>& in) {
    const Tensor mask = model.reads_lengths() ? Tensor() : in[1];
    const data::TokenInput input = data::padded_input(in[0], mask, typed ? in.back() : Tensor());
    if (classifier != nullptr) return std::vector<Tensor>{classifier->forward(input)};
    const Tensor rows = of_rows(model, input);
    return std::vector<Tensor>{rows.reshape({in[0].size(0), in[0].size(1), rows.size(1)})};
  };
  return trace(forward, inputs, options);
}

Graph graph_of_images(const ImageClassifier& model, const StateView& names, const TensorOptions& tensors) {
  const ImageClassifier::Input input = model.input();
  const Tensor images = zeros({2, input.channels, input.size, input.size}, tensors);
  return trace(
      [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{model.forward(in[0])}; }, {images},
      {.names = names, .dynamic = {{0, 0, "batch"}}, .input_names = {"pixel_values"}, .output_names = {"logits"}});
}

}  // namespace

Graph graph_of(const Model& model) {
  TERN_CHECK(!model.is_training(), "graph_of: the model is in training mode; call eval() first");
  const StateView names = model.state_dict();
  const StateView parameters = model.parameters();
  const TensorOptions tensors = parameters.empty() ? TensorOptions() : parameters.front().tensor.options();
  if (const auto* const text = dynamic_cast<const TextModel*>(&model))
    return graph_of_texts(*text, names, tensors.device);
  const auto* const image = dynamic_cast<const ImageClassifier*>(&model);
  TERN_CHECK(image, "graph_of: ", model.type_name(), " is no model of texts or images");
  return graph_of_images(*image, names, tensors);
}

}  // namespace tern::models
